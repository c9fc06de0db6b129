"""Whether a wanted program is here already: the choice of a resolve, without its answer."""

from __future__ import annotations

from mxr.artifact import matching
from mxr.artifact.qualities import Request
from mxr.errors import Usage
from mxr_registry.artifacts import resolution
from mxr_registry.database.session import Session


def artifact_of(session: Session, namespace: str, request: Request) -> str | None:
    """The id of the artifact that a resolve would choose, or None.

    Raises `Usage` where a feature is open and those that would serve disagree.
    """
    asked = resolution.ResolveRequest.of(request)
    wanted = {"namespace": namespace, "digest": asked.digest, "generic": asked.generic_digest or asked.digest}
    rows = session.execute(resolution.ASKED, wanted).all()
    chosen = matching.choose(request.demands, resolution.candidates(rows, asked.digest, asked.family)) if rows else None
    return chosen[0].id if chosen else None


def artifact_for(session: Session, namespace: str, request: Request) -> str | None:
    """The same for a job that is open already: where those that would serve disagree, none does."""
    try:
        return artifact_of(session, namespace, request)
    except Usage:
        return None
