"""The authenticated caller of a request.

There are no access tokens yet: every caller is the principal `local` in the namespace `default`, and `serve` listens on
loopback only unless started with --insecure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity behind a request: its principal, the namespace that it works in, and the address of the client."""

    namespace: str = "default"
    principal: str = "local"
    address: str = ""


def caller_of(authorization: str | None, address: str) -> Caller:
    """Return the caller that an Authorization header identifies. The header is accepted and ignored for now."""
    del authorization
    return Caller(address=address)
