"""Find the artifact that makes the compile of a request unnecessary."""

from __future__ import annotations

from mxr.artifact.attributes import Request
from mxr.errors import UsageError
from mxr_registry.artifacts import resolution
from mxr_registry.database.session import Session


def artifact_of(session: Session, namespace: str, request: Request) -> str | None:
    """Return the id of the artifact that makes a compile unnecessary, or None.

    Raises `UsageError` if the request leaves a feature open and the matching artifacts differ in it.
    """
    chosen = resolution.find_compiled(session, namespace, request)
    return chosen[0].id if chosen else None


def artifact_for(session: Session, namespace: str, request: Request) -> str | None:
    """Like `artifact_of`, for an open job: returns None if the matching artifacts differ in an open feature."""
    try:
        return artifact_of(session, namespace, request)
    except UsageError:
        return None
