"""The tokens of the registries that this process has started, also by way of what stands before a registry."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_TOKENS: dict[int, Mapping[str, str]] = {}
"""By port: every registry of the tests is on this host."""


def remember(url: str, tokens: Mapping[str, str]) -> None:
    """Keep the tokens of a registry, by their scope."""
    _TOKENS[_port(url)] = tokens


def stands_before(url: str, target: str) -> None:
    """What is sent to `url` goes to the registry at `target`."""
    if _port(target) in _TOKENS:
        remember(url, _TOKENS[_port(target)])


def token_for(url: str, scope: str = "admin") -> str:
    """The token with this scope for a registry; empty where none is known."""
    return _TOKENS.get(_port(url), {}).get(scope, "")


def authorization(url: str, scope: str = "admin") -> dict[str, str]:
    """The header with this token, if there is one."""
    token = token_for(url, scope)
    return {"authorization": f"Bearer {token}"} if token else {}


def variable(url: str, scope: str = "admin") -> dict[str, str]:
    """The environment variable with this token, if there is one."""
    token = token_for(url, scope)
    return {"MXR_TOKEN": token} if token else {}


def _port(url: str) -> int:
    return urlsplit(url).port or 0
