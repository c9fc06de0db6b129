"""Namespaces and their rule `serve`: which artifacts answer requests.

Until there are tokens, `default` is the only namespace. A namespace without a rule of its own has that of the process
that answers: `any` for a registry that only this host can reach, otherwise `built`.
"""

from __future__ import annotations

from sqlalchemy import select

from mxr.artifact.serving import SERVE_RULES
from mxr.errors import NotFoundError, UsageError
from mxr_registry.database.session import Session, default_serve, now, upsert
from mxr_registry.database.tables import NamespaceRow

DEFAULT = "default"
AUTO = "auto"
"""The rule of a namespace without one of its own."""


def rule_of(session: Session, namespace: str) -> str:
    """Return the rule `serve` that holds in a namespace."""
    query = select(NamespaceRow.serve).where(NamespaceRow.name == namespace)
    return session.execute(query).scalar() or default_serve(session)


def change_command(namespace: str) -> str:
    """Return the advice that lets pushed artifacts answer requests, as the end of a hint."""
    return f"serve every artifact: `mxr-registry namespace set {namespace} --serve any` on the registry's host"


def listed(session: Session) -> dict[str, str]:
    """Return the rule of each namespace by its name, `auto` for those that have none."""
    rows = session.execute(select(NamespaceRow.name, NamespaceRow.serve).order_by(NamespaceRow.name))
    return {DEFAULT: AUTO} | {row.name: row.serve or AUTO for row in rows}


def set_serve(session: Session, namespace: str, rule: str) -> None:
    """Set the rule of a namespace; `auto` removes it. It holds at once in every registry on this database.

    Raises `NotFoundError`, and `UsageError` for an unknown rule.
    """
    if namespace != DEFAULT:
        raise NotFoundError(f"There is no namespace {namespace[:120]!r}.", hint="The only namespace is `default`.")
    if rule not in (*SERVE_RULES, AUTO):
        raise UsageError(f"{rule[:40]!r} is not a rule.", hint=f"Use one of {', '.join((*SERVE_RULES, AUTO))}.")
    serve = None if rule == AUTO else rule
    values = {"serve": serve, "created_at": now(session)}
    upsert(session, NamespaceRow, {"name": namespace}, values, {"serve": serve})
