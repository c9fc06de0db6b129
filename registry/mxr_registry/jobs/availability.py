"""Find the artifact that already satisfies a request: a resolve without its reply."""

from __future__ import annotations

from mxr.artifact import matching
from mxr.artifact.qualities import Request
from mxr.errors import Usage
from mxr_registry.artifacts import resolution
from mxr_registry.database.session import Session


def artifact_of(session: Session, namespace: str, request: Request) -> str | None:
    """Return the id of the artifact that a resolve would choose, or None.

    Raises `Usage` if the request leaves a feature open and the matching artifacts differ in it.
    """
    wanted = resolution.ResolveRequest.of(request)
    values = {"namespace": namespace, "digest": wanted.digest, "generic": wanted.generic_digest or wanted.digest}
    rows = session.execute(resolution.MATCHING_DIGEST, values).all()
    candidates = resolution.candidates(rows, wanted.digest, wanted.family)
    chosen = matching.choose(request.demands, candidates) if rows else None
    return chosen[0].id if chosen else None


def artifact_for(session: Session, namespace: str, request: Request) -> str | None:
    """Like `artifact_of`, for an open job: returns None if the matching artifacts differ in an open feature."""
    try:
        return artifact_of(session, namespace, request)
    except Usage:
        return None
