"""Prepares a request: from options, the facts of the host and all defaults, and from the only program that fits."""

from __future__ import annotations

import functools
from dataclasses import replace

from mxr.artifact.request_defaults import NO_DEFAULTS, RequestDefaults
from mxr.cache.store import Cache
from mxr.errors import MxrError, TemporaryError, UnreachableError
from mxr.facts import all_stated
from mxr.host_facts import Host
from mxr.request import builder
from mxr.request import model as models
from mxr.request.builder import PreparedRequest, RequestOptions
from mxr.request.defaults import apply_defaults, may_allow_rocm
from mxr.request.model import ModelReference
from mxr.util import codec

from .fetch import Connect

REGISTRY_DEFAULTS = "the registry's defaults"

PATIENCE = 3.0
"""Seconds without an answer after which a request does without newer defaults."""


def prepare(
    options: RequestOptions,
    model: str | ModelReference,
    cache: Cache,
    connect: Connect | None,
    host: Host,
    *,
    defaults: RequestDefaults = NO_DEFAULTS,
    takes_open: bool = False,
) -> PreparedRequest:
    """Return the request for a model. `defaults` fill what options and host leave open.

    `takes_open`: what is then still open comes from the only program that fits. What records or compiles needs every
    fact. Raises `UsageError` for a missing fact, with the toolchains for which the registry has programs; and as
    `completion.complete_request` does.
    """
    if isinstance(model, str):
        model = models.find_model(model, cache, connect, follow_links=options.follow_links)
    built = _gather(options, model, cache, connect, host, defaults)
    records = built.named is not None and built.named.records
    if takes_open and not (options.exact or records) and built.known.open_facts and built.known.has_target:
        from .completion import complete_request

        return complete_request(built, cache, connect)

    def toolchains(identity: str, arch: str | None) -> list[str]:
        try:
            found = connect().artifacts(model=identity, arch=arch, limit=1000).items if connect else ()
        except MxrError:
            return []
        rows = {(each.key.rocm, each.key.migraphx) for each in found}
        return sorted(
            all_stated((name, version) for name, version in (("rocm", rocm), ("migraphx", migraphx)) if version)
            for rocm, migraphx in rows
        )

    return builder.settle(built, host, toolchains)


def _gather(
    options: RequestOptions,
    model: ModelReference,
    cache: Cache,
    connect: Connect | None,
    host: Host,
    configured: RequestDefaults,
) -> PreparedRequest:
    """Gather a request from all sources: options, host, configured defaults, and those of the registry's namespace.

    The namespace is asked where the others leave a fact open, or where another release of ROCm could serve: it can
    allow that.
    """
    sha256_of = functools.cache(builder.calibration_sha256)

    def gathered(defaults: RequestDefaults) -> PreparedRequest:
        stated, notes = apply_defaults(options, defaults, model, host)
        built = builder.gather(stated, model, host, sha256_of)
        return replace(built, notes=(*notes, *built.notes))

    built = gathered(configured)
    if not built.known.has_target or not (built.known.open_facts or may_allow_rocm(built.options, host)):
        return built
    found = find_namespace_defaults(cache, connect)
    return built if found == NO_DEFAULTS else gathered(configured.over(found))


def find_namespace_defaults(cache: Cache, connect: Connect | None) -> RequestDefaults:
    """Return the request defaults of the registry's namespace: asked for once in `max_age`, otherwise from the cache.

    Without `connect` (offline), or where the registry is away, those that it told last count, whatever their age.
    Raises `MxrError` for an invalid reply.
    """
    known, age = _remembered(cache)
    fresh = known is not None and 0 <= age < cache.policy.max_age
    if connect is None or fresh or cache.defaults_away:
        return known or NO_DEFAULTS
    try:
        client = connect().with_timeout(PATIENCE)
        found = client.defaults()
        cache.note_reply(client)
    except (UnreachableError, TemporaryError):
        # Several programs of one call do not wait for it each.
        cache.defaults_away = True
        return known or NO_DEFAULTS
    from mxr.protocol.artifacts import message_document

    cache.store_defaults(message_document(found))
    return found.as_defaults(REGISTRY_DEFAULTS)


def _remembered(cache: Cache) -> tuple[RequestDefaults | None, float]:
    stored = cache.defaults()
    if stored is None:
        return None, 0.0
    from mxr.protocol.artifacts import NamespaceDefaults

    try:
        found = codec.decode(NamespaceDefaults, stored[0], "defaults", lenient=True)
        return found.as_defaults(REGISTRY_DEFAULTS), stored[1]
    except MxrError:
        return None, 0.0
