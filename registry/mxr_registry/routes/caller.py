"""The authenticated caller of a request.

There are no access tokens yet: every caller is the principal `local` in the namespace `default`, and `serve` listens on
loopback only unless started with --insecure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity behind a request: its principal, and the namespace that it works in."""

    namespace: str = "default"
    principal: str = "local"


def caller_of(authorization: str | None) -> Caller:
    """Return the caller that an Authorization header identifies. The header is accepted and ignored for now."""
    del authorization
    return Caller()
