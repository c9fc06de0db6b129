"""Opens the client of a registry: of one that answers, or of the static form of one, which is files.

What a URL is, is found out once: by `mxr.json` there. A registry that answered before is not asked again for it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from mxr.cache.folder import CacheFolder
from mxr.cache.partition import CachePolicy
from mxr.cache.store import VERSION
from mxr.client.credentials import is_loopback_url
from mxr.client.registry import Client
from mxr.configuration.file_urls import names_files
from mxr.errors import MxrError
from mxr.settings import Settings

if TYPE_CHECKING:
    from mxr.protocol.static_form import ModelIndex

DAY = KNOWN_SECONDS = 86_400.0
"""Seconds for which a URL is known to be that of files."""

PATIENCE = 5.0
"""Seconds for the question whether a URL is that of files."""


def open_client(settings: Settings) -> Client:
    """Return the client of the registry of these settings. It connects at most to find out what answers there."""
    url = settings.registry
    policy = CachePolicy.of(settings)
    folder, home = CacheFolder(settings.cache_dir, VERSION, policy.owners), f"registries/{policy.home}"
    if names_files(url):
        return _static(settings, folder, home)
    # A port of this host belongs to whichever program takes it: files there are taken below a path only, which nobody
    # configures for a registry.
    may_be_files = url.startswith(("http://", "https://")) and not (is_loopback_url(url) and url.count("/") == 2)
    if not may_be_files or "registry" not in settings.sources:
        return Client(settings)
    with suppress(MxrError):
        since = _static_since(folder, home)
        if since is not None and 0 <= time.time() - since < KNOWN_SECONDS:
            return _static(settings, folder, home)
        # What was files before is asked again, and so is what nobody has reached.
        if (since is not None or folder.read(f"{home}/registry.json") is None) and _is_static(settings):
            with suppress(MxrError):
                folder.write(f"{home}/static.json", b"%d" % time.time())
            return _static(settings, folder, home)
    return Client(settings)


def _static(settings: Settings, folder: CacheFolder, home: str) -> Client:
    from mxr.client.static import StaticClient
    from mxr.protocol import static_form

    def seen(head: ModelIndex) -> tuple[float, int]:
        name, now = f"{home}/{static_form.index_name(head.model)}", time.time()
        number, age = head.recalls, 0.0
        with suppress(MxrError, ValueError):
            number = max(number, int(folder.read(f"{home}/recalls.number") or b"0"))
            newest, since = map(float, (folder.read(name) or b"0 0").split())
            age = max(0.0, now - since) if head.written_at < newest else 0.0
            # One of the future would make each later one an old one.
            if newest < head.written_at < now + DAY:
                folder.write(name, b"%a %a" % (float(head.written_at), now))
                folder.write(f"{home}/recalls.number", b"%d" % number)
        return age, number

    client = StaticClient(settings)
    client.seen = seen
    return client


def _static_since(folder: CacheFolder, home: str) -> int | None:
    """When files answered at this URL; None if they never did."""
    said = folder.read(f"{home}/static.json") or b""
    return int(said[:15]) if said.isdigit() else None


def _is_static(settings: Settings) -> bool:
    from mxr.client.static import StaticClient

    return StaticClient(settings).with_timeout(PATIENCE).is_there()
