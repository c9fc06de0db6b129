"""A publication whose bytes were read and compared with its key, and what the registry itself knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mxr.protocol.artifacts import Publish

from .inspection import Description


@dataclass(frozen=True, slots=True)
class PublicationSource:
    """What the registry itself knows of a publication: its origin, the principal, and job and worker of a built one.

    `admin`: the principal may publish again what others removed.
    """

    origin: str
    created_by: str
    job: str | None = None
    worker: str | None = None
    admin: bool = False

    @property
    def uploader(self) -> str | None:
        """The principal to whose uploads it is restricted; None for an administrator."""
        return None if self.admin else self.created_by


@dataclass(frozen=True, slots=True)
class CheckedPublication:
    """A publication with verified bytes and programs that match its key.

    `sources` tells who states each fact. `repairs`: the artifact already exists, and the store has lost blobs of its
    current manifest.
    """

    message: Publish
    source: PublicationSource
    digest: str
    id: str
    sources: Mapping[str, str]
    description: Description
    repairs: bool = False
