"""The request defaults of a registry's namespace: asked for once in `max_age`, otherwise from the cache."""

from __future__ import annotations

from mxr.artifact.request_defaults import NO_DEFAULTS, RequestDefaults
from mxr.cache.store import Cache
from mxr.errors import MxrError, TemporaryError, UnreachableError
from mxr.protocol.artifacts import NamespaceDefaults, message_document
from mxr.util import codec

from .fetch import Connect

SOURCE = "the registry's defaults"

PATIENCE = 3.0
"""Seconds without an answer after which a request does without newer defaults."""


def find_namespace_defaults(cache: Cache, connect: Connect | None) -> RequestDefaults:
    """Return the request defaults of the namespace. Without `connect` (offline), or where the registry is away, those
    that it told last count, whatever their age.

    Raises `MxrError` for an invalid reply.
    """
    known, age = _remembered(cache)
    if connect is None or (known is not None and 0 <= age < cache.policy.max_age):
        return known or NO_DEFAULTS
    try:
        client = connect().with_timeout(PATIENCE)
        found = client.defaults()
        cache.note_registry(client.identity)
    except (UnreachableError, TemporaryError):
        return known or NO_DEFAULTS
    cache.store_defaults(message_document(found))
    return found.as_defaults(SOURCE)


def _remembered(cache: Cache) -> tuple[RequestDefaults | None, float]:
    stored = cache.defaults()
    if stored is None:
        return None, 0.0
    try:
        return codec.decode(NamespaceDefaults, stored[0], "defaults", lenient=True).as_defaults(SOURCE), stored[1]
    except MxrError:
        return None, 0.0
