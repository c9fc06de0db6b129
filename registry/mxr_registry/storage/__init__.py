"""Blob stores: the protocol (`store`) and its implementations for a local folder and for S3."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit

from mxr.display.text import redact
from mxr.errors import UsageError
from mxr.s3.s3_settings import S3Settings

from .local import LocalStore
from .store import Store

__all__ = ["S3Settings", "Store", "open_store"]


def open_store(url: str, s3: S3Settings | None = None) -> Store:
    """Open the store at a URL. `s3` applies to an `s3://` URL only. Raises `UsageError`."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return LocalStore(unquote(parts.path))
    if parts.scheme == "s3" and parts.netloc and "@" not in parts.netloc and not (parts.query or parts.fragment):
        return _open_s3(parts, s3 or S3Settings())
    raise UsageError(
        f"MXR_STORE_URL: {redact(url)!r} is not a supported store URL.",
        hint="Use file:///var/lib/mxr/store or s3://BUCKET/PREFIX, or unset it to store files in the data directory.",
    )


def _open_s3(parts: SplitResult, s3: S3Settings) -> Store:
    # boto3 is large, and a registry with a local store does not need it.
    from mxr.s3.bucket import Bucket

    from .objects import ObjectStore

    prefix = unquote(parts.path).strip("/")
    return ObjectStore(
        Bucket(parts.netloc, s3),
        f"{prefix}/" if prefix else "",
        signs_for_remote=s3.signs_for(local=False),
        signs_for_local=s3.signs_for(local=True),
    )
