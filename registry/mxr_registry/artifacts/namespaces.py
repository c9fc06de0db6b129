"""Namespaces: their rule `serve`, which says which artifacts answer requests, and their request defaults.

`default` is the only namespace so far. A namespace without a rule of its own has that of the process
that answers: `any` for a registry that only this host can reach, otherwise `built`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from sqlalchemy import Row, select

from mxr import consumers
from mxr.artifact.matching import SERVE_RULES
from mxr.errors import NotFoundError, UsageError
from mxr.protocol.artifacts import NamespaceDefaults, message_document
from mxr.util import codec
from mxr.util.frozen import dataclass
from mxr_registry.database import trail
from mxr_registry.database.session import Session, default_serve, now, upsert
from mxr_registry.database.tables import NamespaceRow

DEFAULT = "default"
AUTO = "auto"
"""The rule of a namespace without one of its own."""

COLUMNS = select(NamespaceRow.name, NamespaceRow.serve, NamespaceRow.defaults_json)


def rule_of(session: Session, namespace: str) -> str:
    """Return the rule `serve` that holds in a namespace."""
    query = select(NamespaceRow.serve).where(NamespaceRow.name == namespace)
    return session.execute(query).scalar() or default_serve(session)


def change_command(namespace: str) -> str:
    """Return the advice that lets pushed artifacts answer requests, as the end of a hint."""
    return f"serve every artifact: `mxr-registry namespace set {namespace} --serve any` on the registry's host"


@dataclass(frozen=True, slots=True)
class NamespaceSettings:
    """The settings of a namespace. `serve`: a rule of its own, or `auto`."""

    name: str
    serve: str = AUTO
    defaults: NamespaceDefaults = field(default_factory=NamespaceDefaults)

    def to_json(self) -> dict[str, Any]:
        """Return `{"name", "serve", "defaults"}`."""
        return {"name": self.name, "serve": self.serve, "defaults": message_document(self.defaults)}


def list_namespaces(session: Session) -> list[NamespaceSettings]:
    """Return the settings of each namespace, by name."""
    found = {DEFAULT: NamespaceSettings(DEFAULT)}
    for row in session.execute(COLUMNS.order_by(NamespaceRow.name)):
        found[row.name] = _settings(row)
    return list(found.values())


def _settings(row: Row[str, str | None, str | None]) -> NamespaceSettings:
    return NamespaceSettings(row.name, row.serve or AUTO, _defaults(row.defaults_json))


def defaults_of(session: Session, namespace: str) -> NamespaceDefaults:
    """Return the request defaults of a namespace."""
    return _defaults(session.execute(select(NamespaceRow.defaults_json).where(NamespaceRow.name == namespace)).scalar())


def _defaults(text: str | None) -> NamespaceDefaults:
    return codec.decode(NamespaceDefaults, codec.parse(text, "defaults")) if text else NamespaceDefaults()


def change_namespace(session: Session, namespace: str, changes: Mapping[str, object]) -> NamespaceSettings:
    """Set the rule of a namespace (`serve`; `auto` removes it) and its request defaults by name (None removes one).

    Return its settings. They hold at once in every registry on this database. Raises `NotFoundError`, and `UsageError`
    for an unknown rule or an invalid default.
    """
    if namespace != DEFAULT:
        raise NotFoundError(f"There is no namespace {namespace[:120]!r}.", hint="The only namespace is `default`.")
    row = session.execute(COLUMNS.where(NamespaceRow.name == namespace).with_for_update()).first()
    known = NamespaceSettings(namespace) if row is None else _settings(row)
    named: dict[str, Any] = {name: value for name, value in changes.items() if name != "serve"}
    found = NamespaceSettings(namespace, str(changes.get("serve", known.serve)), replace(known.defaults, **named))
    if found.serve not in (*SERVE_RULES, AUTO):
        raise UsageError(f"{found.serve[:40]!r} is not a rule.", hint=f"Use one of {', '.join((*SERVE_RULES, AUTO))}.")
    if found.defaults.consumer is not None:
        consumers.find_consumer(found.defaults.consumer)
    text = None if found.defaults == NamespaceDefaults() else codec.canonical(message_document(found.defaults))
    own = {"serve": None if found.serve == AUTO else found.serve, "defaults_json": text}
    upsert(session, NamespaceRow, {"name": namespace}, {**own, "created_at": now(session)}, own)
    detail = {"set": found.to_json(), "replaced": known.to_json()}
    trail.record(session, "namespace.set", namespace, detail, namespace=namespace)
    return found
