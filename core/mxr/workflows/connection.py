"""Opens the client of a registry: of one that answers, or of the static form of one, which is files.

What a URL is, is found out once: by `mxr.json` there. A registry that answered before is not asked again for it.
"""

from __future__ import annotations

import time
from contextlib import suppress

from mxr.cache.folder import CacheFolder
from mxr.cache.partition import CachePolicy
from mxr.cache.store import VERSION
from mxr.client.credentials import is_loopback_url
from mxr.client.registry import Client
from mxr.configuration.file_urls import names_files
from mxr.errors import MxrError
from mxr.settings import Settings

KNOWN_SECONDS = 86_400.0
"""Seconds for which a URL is known to be that of files."""

PATIENCE = 5.0
"""Seconds for the question whether a URL is that of files."""


def open_client(settings: Settings) -> Client:
    """Return the client of the registry of these settings. It connects at most to find out what answers there."""
    url = settings.registry
    if names_files(url):
        from mxr.client.static import StaticClient

        return StaticClient(settings)
    # A port of this host belongs to whichever program takes it: files there are taken below a path only, which nobody
    # configures for a registry.
    may_be_files = url.startswith(("http://", "https://")) and not (is_loopback_url(url) and url.count("/") == 2)
    if not may_be_files or "registry" not in settings.sources:
        return Client(settings)
    policy = CachePolicy.of(settings)
    folder, home = CacheFolder(settings.cache_dir, VERSION, policy.owners), f"registries/{policy.home}"
    with suppress(MxrError):
        if _is_known_static(folder, home) or (folder.read(f"{home}/registry.json") is None and _is_static(settings)):
            from mxr.client.static import StaticClient

            if not _is_known_static(folder, home):
                with suppress(MxrError):
                    folder.write(f"{home}/static.json", b"%d" % time.time())
            return StaticClient(settings)
    return Client(settings)


def _is_known_static(folder: CacheFolder, home: str) -> bool:
    said = folder.read(f"{home}/static.json") or b""
    return said.isdigit() and 0 <= time.time() - int(said[:15]) < KNOWN_SECONDS


def _is_static(settings: Settings) -> bool:
    from mxr.client.static import StaticClient

    return StaticClient(settings).with_timeout(PATIENCE).is_there()
