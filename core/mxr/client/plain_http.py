"""Refuses to send a token where others can read it: over plain http to another machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from mxr.errors import NotAllowedError
from mxr.facts import stated


def refuse_plain(url: str) -> None:
    """Raise `NotAllowedError` if a token for this URL would leave this machine unencrypted."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise NotAllowedError(
            f"The token would go to {parts.hostname} over plain http, where others can read it.",
            hint=f"Use an https:// URL. In a network that you trust: {stated('plaintext')} or MXR_PLAINTEXT=1.",
        )


def is_loopback_url(url: str) -> bool:
    """Whether a URL is that of a TCP port of this host."""
    return url.startswith("http://") and is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this host."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
