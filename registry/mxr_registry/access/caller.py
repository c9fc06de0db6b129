"""The caller of a request: who sent it, and what its token allows. All requests with one token share the value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mxr.protocol.access import ADMIN


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal of a request, the namespace that it works in, and its scopes.

    `token`: the id of its token. `expires_at`: when that expires, in seconds since 1970.
    """

    principal: str
    namespace: str
    scopes: frozenset[str]
    token: str
    expires_at: float | None = None

    @property
    def is_admin(self) -> bool:
        """Whether it may do everything."""
        return ADMIN in self.scopes

    @property
    def owner(self) -> str | None:
        """The principal to whose own objects and jobs it is restricted; None for an administrator."""
        return None if self.is_admin else self.principal

    def may(self, scopes: Iterable[str]) -> bool:
        """Whether it has one of these scopes."""
        return not self.scopes.isdisjoint(scopes)
