"""Whose answers a cache serves, and for how long."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from mxr.settings import Settings


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """The rules of one cache.

    `registry`: URL. `owners`: users, besides this one and root, whose cache folder is read. `max_age`: seconds after
    which the registry must confirm an answer. `max_stale`: seconds for which answers serve while the registry is away.
    `private`: a folder of this user for the memo, where the cache belongs to someone else.
    """

    registry: str = ""
    namespace: str = "default"
    owners: tuple[int, ...] = ()
    max_age: float = 3600.0
    max_stale: float = 7 * 86400.0
    private: Path | None = None

    @classmethod
    def of(cls, settings: Settings) -> CachePolicy:
        """Return the policy in the settings of a client."""
        return cls(
            registry=settings.registry,
            owners=settings.cache_owners,
            max_age=settings.max_age,
            max_stale=settings.max_stale,
            private=settings.state_dir,
        )

    @property
    def url(self) -> str:
        """The URL of the registry without user name and password."""
        scheme, colon, rest = self.registry.partition("://")
        host, slash, path = rest.partition("/")
        return scheme + colon + host.rpartition("@")[2] + slash + path

    @property
    def home(self) -> str:
        """The name of the folder for this registry URL and namespace."""
        return sha256(f"{self.url}\n{self.namespace}".encode()).hexdigest()[:32]
