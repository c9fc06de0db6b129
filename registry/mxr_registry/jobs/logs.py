"""The log of a job, bounded: its head and its tail are kept, and what lay between is counted.

Offsets are in bytes of UTF-8 from the start of the log, and go on counting over what was left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, insert, select, update

from mxr_registry.database.job_tables import JobLogRow, JobRow
from mxr_registry.database.session import Row, Session

HEAD = 256 * 1024
TAIL = 1024 * 1024
STRETCH = 32 * 1024
"""Bytes, about, in one row."""

PAGE = 512 * 1024
"""Bytes, about, in one reply of a stream."""

SIZE = select(JobRow.log_size).where(JobRow.seq == bindparam("of"))
GROWN = update(JobRow).where(JobRow.seq == bindparam("of")).values(log_size=bindparam("to"))
LAST = (
    select(JobLogRow.start, JobLogRow.size, JobLogRow.data)
    .where(JobLogRow.job == bindparam("of"))
    .order_by(JobLogRow.start.desc())
    .limit(1)
)
WRITE = insert(JobLogRow)


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A stretch of a log: `skipped` bytes were left out before `start`; `next` is where to go on."""

    start: int
    next: int
    skipped: int
    data: bytes


def append(session: Session, seq: int, text: str) -> None:
    """Add to a job's log, and drop what is neither head nor tail. The job's row is locked by the caller's change."""
    if not text:
        return
    row = JobLogRow
    size = session.execute(SIZE, {"of": seq}).scalar_one()
    last = session.execute(LAST, {"of": seq}).first() if size else None
    for data in _stretches(text):
        if last is not None and last.start + last.size == size and last.size + len(data) <= STRETCH:
            where = (row.job == seq, row.start == last.start)
            session.execute(update(row).where(*where).values(size=last.size + len(data), data=last.data + data))
        else:
            session.execute(WRITE, {"job": seq, "start": size, "size": len(data), "data": data})
        size, last = size + len(data), None
    session.execute(GROWN, {"of": seq, "to": size})
    if size > HEAD + TAIL:
        session.execute(delete(row).where(row.job == seq, row.start >= HEAD, row.start + row.size <= size - TAIL))


def _stretches(text: str) -> Iterator[bytes]:
    """The text in stretches of whole characters."""
    step = STRETCH // 4
    for start in range(0, len(text), step):
        yield text[start : start + step].encode()


def read(session: Session, seq: int, offset: int, most: int | None = None) -> list[LogChunk]:
    """What is kept of a log from an offset on; with `most`, no more than about so many bytes."""
    row = JobLogRow
    asked = select(row.start, row.size, row.data).where(row.job == seq, row.start + row.size > offset)
    found: list[LogChunk] = []
    at, taken = offset, 0
    for each in session.execute(asked.order_by(row.start)):
        piece = _piece(each, at)
        found.append(piece)
        at, taken = piece.next, taken + len(piece.data)
        if most is not None and taken >= most:
            break
    return found


def _piece(row: Row, at: int) -> LogChunk:
    begin = max(at, row.start)
    return LogChunk(begin, row.start + row.size, begin - at, bytes(row.data)[begin - row.start :])


def text_of(pieces: list[LogChunk]) -> bytes:
    """The bytes of a log for a person, saying where some were left out."""
    parts = []
    for piece in pieces:
        if piece.skipped:
            parts.append(f"\n[... {piece.skipped} bytes of the log were not kept ...]\n".encode())
        parts.append(piece.data)
    return b"".join(parts)
