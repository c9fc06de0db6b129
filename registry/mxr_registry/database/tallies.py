"""Counts by the hour and running sums, each kept in the transaction that changes what is counted.

A page that shows them reads some rows, however much there is to count.
"""

from __future__ import annotations

from sqlalchemy import func, select

from .session import Session, now, upsert
from .tables import TallyRow

ANSWERED, MISSED, STORED_BYTES = NAMES = ("answered", "missed", "stored_bytes")
"""Resolves by the hour with and without an artifact; the bytes of all blobs of a namespace."""

HOUR = 3600.0
SUM = 0
"""The hour of a running sum."""


def count(session: Session, namespace: str, name: str, value: int = 1) -> None:
    """Add to the count of this hour. Call it last in a transaction: others wait for its row."""
    _add(session, namespace, name, int(now(session) // HOUR), value)


def add(session: Session, namespace: str, name: str, value: int) -> None:
    """Add to a running sum. Call it last in a transaction: others wait for its row."""
    if value:
        _add(session, namespace, name, SUM, value)


def _add(session: Session, namespace: str, name: str, hour: int, value: int) -> None:
    keys = {"namespace": namespace, "name": name, "hour": hour}
    upsert(session, TallyRow, keys, {"value": value}, {"value": TallyRow.value + value})


def total(session: Session, namespace: str, name: str) -> int:
    """Return a running sum."""
    row = TallyRow
    query = select(func.sum(row.value)).where(row.namespace == namespace, row.name == name, row.hour == SUM)
    return int(session.execute(query).scalar() or 0)


def by_hour(session: Session, namespace: str, name: str, hours: int) -> list[int]:
    """Return the counts of the last hours, the present one last."""
    row, last = TallyRow, int(now(session) // HOUR)
    query = select(row.hour, row.value).where(row.namespace == namespace, row.name == name, row.hour > last - hours)
    found = {each.hour: each.value for each in session.execute(query)}
    return [found.get(hour, 0) for hour in range(last - hours + 1, last + 1)]
