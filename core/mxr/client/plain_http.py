"""Refuses to send a token where others can read it: over plain http to another machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from mxr.errors import NotAllowedError
from mxr.settings import Settings


def check_token(settings: Settings) -> None:
    """Raise `NotAllowedError` if the token would leave this machine unencrypted and `plaintext` does not allow it."""
    parts = urlsplit(settings.registry)
    if settings.token and parts.scheme != "https" and not settings.plaintext and not _is_loopback(parts.hostname or ""):
        raise NotAllowedError(
            f"The token would go to {parts.hostname} over plain http, where others can read it.",
            hint="Use an https:// URL. In a network that you trust: --plaintext or MXR_PLAINTEXT=1.",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
