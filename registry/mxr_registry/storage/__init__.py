"""Where blobs lie: one protocol of few verbs (`store`), and the stores that keep it."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from mxr.errors import Usage

from .local import LocalStore
from .store import Store

__all__ = ["Store", "open_store"]


def open_store(url: str) -> Store:
    """The store that a URL names. Raises `Usage`."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return LocalStore(unquote(parts.path))
    raise Usage(
        f"MXR_STORE_URL: {url!r} is no store that this registry knows.",
        hint="Write it as file:///var/lib/mxr/store, or leave it out for the embedded default.",
    )
