"""Where blobs lie: one protocol of few verbs (`store`), and the stores that keep it."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit

from mxr.errors import Usage

from .local import LocalStore
from .place import S3Place
from .store import Store

__all__ = ["S3Place", "Store", "open_store"]


def open_store(url: str, place: S3Place | None = None) -> Store:
    """The store that a URL names; `place`: how S3 is spoken to, where it is there. Raises `Usage`."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return LocalStore(unquote(parts.path))
    if parts.scheme == "s3" and parts.netloc and not (parts.query or parts.fragment):
        return _objects(parts, place or S3Place())
    raise Usage(
        f"MXR_STORE_URL: {url!r} is no store that this registry knows.",
        hint="Write it as file:///var/lib/mxr/store or s3://BUCKET/PREFIX, or leave it out for the embedded default.",
    )


def _objects(parts: SplitResult, place: S3Place) -> Store:
    # boto3 is large, and a registry with files does without it.
    from .objects import ObjectStore
    from .s3 import Bucket

    prefix = unquote(parts.path).strip("/")
    far, near = (place.signs_for(near) for near in (False, True))
    return ObjectStore(Bucket(parts.netloc, place), f"{prefix}/" if prefix else "", (far, near))
