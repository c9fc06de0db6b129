"""Pins requests to artifacts, and fetches exactly the pinned artifacts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mxr import consumers
from mxr.artifact.attributes import RelatedKey, Request
from mxr.artifact.candidates import DIVIDING, Choice
from mxr.artifact.key import Key
from mxr.artifact.matching import ANY, choose_candidate
from mxr.artifact.partial import PartialRequest
from mxr.artifact.records import Artifact
from mxr.artifact.target import DynamicDim, GfxArch
from mxr.cache.store import CONFIRMABLE, Answer, Cache, CachedArtifact, CacheState
from mxr.display.text import shell_quoted
from mxr.errors import (
    DamagedError,
    MismatchError,
    MxrError,
    NoSuchArtifactError,
    NoSuchModelError,
    NotFoundError,
    TemporaryError,
    UnreachableError,
    UsageError,
)
from mxr.facts import stated
from mxr.host_facts import Host
from mxr.onnxfile import OnnxInput
from mxr.request import builder
from mxr.request import model as models
from mxr.request.builder import PreparedRequest, RequestOptions
from mxr.request.choices import distinguishing, options_of
from mxr.request.model import ModelReference
from mxr.util.frozen import dataclass
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Connect, Fetched

from .lockfile import LockEntry, LockFile

if TYPE_CHECKING:
    from mxr.client.registry import Client
    from mxr.host_facts import Host

MAX_CHOICES = 10
"""Entries that an error lists, when several fit a request."""


def pin_request(prepared: PreparedRequest, client: Client, base: Path) -> LockEntry:
    """Pin a request to the artifact that the registry resolves it to now; `base` is the folder of the lock.

    Raises `NoSuchArtifactError` with the nearest artifacts, and `UsageError` for a name that is not UTF-8.
    """
    request, model = prepared.request, prepared.model
    artifact = fetch_workflow.resolve(request, client).artifact
    if artifact.digest != request.key.digest:
        # The lock names what is there: the program of the generic family, or of another release.
        request = replace(request, key=artifact.key)
    name = model.identity
    if model.path is not None:
        name = Path(os.path.relpath(model.path.absolute(), base.absolute())).as_posix()
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"The name {name} is not UTF-8, so that no lock can hold it.",
                hint=f"Rename the model, or lock it by its identity: `mxr lock {model.identity}`.",
            ) from None
    return LockEntry(name, prepared.consumer.name, request, artifact.id, artifact.sha256)


def entries_for(lock: LockFile, request: Request) -> tuple[LockEntry, ...]:
    """Return the entries that can serve a request: exactly its own, else those of its key.

    Of several, the rules of matching choose: a host states facts, such as its CUs and patch versions, that the lock may
    leave open. Raises `MismatchError` for a request that is not in the lock.
    """
    entries = lock.entries_serving(request)
    if not entries:
        raise _not_locked_error(lock, request.key)
    return entries


def recorded_form(
    model: ModelReference, consumer: str | None, output: object, name: str | None, options: Mapping[str, str]
) -> str | None:
    """Return the form of the recorded artifacts that a consumer would take for an output; None where it takes none.

    `name` replaces that of the model in the output; `options` are those of the consumer.
    """
    if output is None or consumer is None:
        return None
    from mxr.install.installer import installer_for

    return installer_for(consumers.find_consumer(consumer)).locked_form(model, name, options)


def find_locked_model(
    lock: LockFile, model: str, cache: Cache, connect: Connect | None, *, follow_links: bool = False
) -> ModelReference:
    """Return the model of a path or an identity, also where nobody but the lock knows it. Raises as `find_model`."""
    try:
        return models.find_model(model, cache, connect, follow_links=follow_links)
    except (NoSuchModelError, UnreachableError, TemporaryError):
        inputs = _inputs_in(lock, model)
        if not inputs:
            raise
        return ModelReference.of_identity(model, inputs)


def _inputs_in(lock: LockFile, model: str) -> list[OnnxInput]:
    """The inputs of a model as its entries have them; dims in which they differ are unknown."""
    found: dict[str, Sequence[int | DynamicDim | None] | None] = {}
    for entry in lock.entries:
        for name, shape in entry.request.key.inputs if entry.request.key.model == model else ():
            before = found.setdefault(name, shape)
            if before is None or len(before) != len(shape):
                found[name] = None
            else:
                found[name] = [one if one == other else None for one, other in zip(before, shape, strict=True)]
    return [
        OnnxInput(name, "", None if dims is None else tuple(dim if isinstance(dim, int) else None for dim in dims))
        for name, dims in found.items()
    ]


def build_locked_request(
    lock: LockFile, options: RequestOptions, model: ModelReference, host: Host, recorded: str | None = None
) -> PreparedRequest:
    """Build a request from options and host, completed by the only entry of the lock that has all of their facts.

    `recorded`: the form of recorded artifacts, which are preferred where the lock has them.

    Raises `MismatchError` if there is none, and `UsageError` with the options that choose if there are several. An
    exact request leaves nothing open.
    """
    built = builder.gather(options, model, host)
    partial = built.known
    if recorded is not None and lock.entries_admitted(replace(partial, form=recorded)):
        partial = replace(partial, form=recorded)
    if options.exact or not partial.open_facts:
        return builder.settle(built, host).with_form(partial.form)
    entries = lock.entries_admitted(partial)
    if not entries:
        raise _not_locked_error(lock, partial)
    keys = {entry.request.key: entry for entry in entries}
    rows = [options_of(replace(built, known=partial), _choice(entry)) for entry in keys.values()]
    if len(keys) > 1:
        chosen = [" ".join(map(shell_quoted, words)) for words in distinguishing(rows)]
        more = f"; and {len(keys) - MAX_CHOICES} more" if len(keys) > MAX_CHOICES else ""
        raise UsageError(
            f"{len(keys)} entries of the lock fit this request.",
            hint=f"Choose one of them: {'; '.join(chosen[:MAX_CHOICES])}{more}.",
            context={"entries": [entry.to_json() for entry in keys.values()]},
        )
    (entry,) = keys.values()
    taken = " ".join(word for words in rows[0].values() for word in words)
    consumer = built.named or consumers.find_consumer(entry.consumer)
    note = f"taken from the only entry of the lock that fits: {taken}"
    known = PartialRequest.of(partial.completed(entry.request.key))
    return PreparedRequest(known, model, consumer, (*built.notes, note))


def _choice(entry: LockEntry) -> Choice:
    wanted = entry.request.constraints
    consumer, key = consumers.find_consumer(entry.consumer), entry.request.key
    own_flags = (key.offload_copy, key.fast_math) == (consumer.offload_copy, consumer.fast_math)
    stated = {name: getattr(wanted, name) for name in DIVIDING}
    return Choice(key, **stated, id=entry.id, consumer=consumer.name if own_flags else None)


def _not_locked_error(lock: LockFile, key: Key | PartialRequest) -> MismatchError:
    digest = {"digest": key.digest} if isinstance(key, Key) else {}
    return MismatchError(
        "This request is not in the lock.",
        hint="Request what was locked (`mxr key` shows the request), or add this request: `mxr lock --add`.",
        context={**digest, "nearest": lock.nearest(key)},
    )


def _index_of_best(request: Request, artifacts: list[Artifact]) -> int:
    """The index of the artifact that a registry with only these artifacts would choose."""
    rows = [artifact.candidate(RelatedKey(request.key, artifact.key)) for artifact in artifacts]
    found = choose_candidate(request.constraints, rows, serve=ANY)
    return rows.index(found[0]) if found else 0


@dataclass(frozen=True, slots=True)
class PinnedArtifact:
    """The artifact of an entry. `etag`: its entity tag if the registry answered. `warnings`: as in `Fetched`."""

    artifact: Artifact
    etag: str = ""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, artifact: Artifact, etag: str = "", warnings: tuple[str, ...] = ()) -> PinnedArtifact:
        """Return the artifact, with a warning if it was yanked. Raises `RecalledError` if it was quarantined."""
        artifact.refuse_quarantined()
        yanked = () if artifact.recall is None else (artifact.recall.sentence(artifact.id),)
        return cls(artifact, etag, (*warnings, *yanked))


@dataclass(frozen=True, slots=True)
class PinnedProgram:
    """What a lock names for a request: the entry, its artifact, and how well it serves the request."""

    entry: LockEntry
    found: PinnedArtifact
    answer: Answer


def lookup_pinned(
    request: Request, entries: Sequence[LockEntry], cache: Cache, connect: Connect | None
) -> PinnedProgram:
    """Find the artifact that a lock pins for a request, by id: the registry does not resolve it.

    It comes from the cache if its record is young enough or the registry confirms it. Raises `DamagedError` if it
    contradicts its entry, `NoSuchArtifactError` if it is gone, `MismatchError` if it does not serve the request, and
    `UnreachableError`.
    """
    found = [_find_record(entry, cache, connect) for entry in entries]
    for entry, each in zip(entries, found, strict=True):
        check_pinned(entry, each.artifact)
    at = 0 if len(found) == 1 else _index_of_best(request, [each.artifact for each in found])
    cache.collect_proof(found[at].artifact, connect)
    cache.require_proof(found[at].artifact)
    what = f"The locked artifact for {entries[at].model}"
    return PinnedProgram(entries[at], found[at], fetch_workflow.check_match(request, found[at].artifact, what))


def check_pinned(entry: LockEntry, artifact: Artifact) -> Artifact:
    """Return the artifact if it is the one of an entry. Raises `DamagedError`."""
    if not artifact.sound or (artifact.id, artifact.digest, artifact.sha256) != (entry.id, entry.digest, entry.sha256):
        raise DamagedError(
            f"{entry.model}: the lock and artifact {entry.id[:12]} disagree on digest, id, or sha256.",
            hint="Write the lock again with `mxr lock`. If the error persists, run `mxr-registry fsck`.",
            context={"id": entry.id, "found": {"digest": artifact.digest, "sha256": artifact.sha256}},
        )
    return artifact


def _find_record(entry: LockEntry, cache: Cache, connect: Connect | None) -> PinnedArtifact:
    record = cache.artifact_record(entry.digest, entry.id)
    state = cache.state_of(record)
    if record is not None and (state is CacheState.FRESH or (connect is None and state in CONFIRMABLE)):
        return PinnedArtifact.of(record.artifact)
    if connect is None:
        raise _absent_error(entry, cache) if record is None else _gone_error(entry, record)
    client = connect()
    try:
        if record is not None and state in CONFIRMABLE and fetch_workflow.confirm_record(record, cache, client):
            return PinnedArtifact.of(record.artifact)
        try:
            artifact, etag = client.confirm(entry.id, "")
        except NotFoundError as gone:
            if client.identity:
                cache.note_reply(client)
            raise _gone_error(entry) from gone
        cache.note_reply(client)
        assert artifact is not None
        return PinnedArtifact.of(artifact, etag)
    except (UnreachableError, TemporaryError) as problem:
        if record is not None and state is CacheState.UNCONFIRMED:
            return PinnedArtifact.of(record.artifact, warnings=fetch_workflow.stale_warnings(record, problem))
        if record is not None:
            record.artifact.refuse_quarantined()
        raise


def _gone_error(entry: LockEntry, record: CachedArtifact | None = None) -> MxrError:
    recall = record.artifact.recall if record is not None and not record.gone else None
    if recall is not None:
        return recall.error(entry.id)
    return NoSuchArtifactError(
        f"{entry.model}: the locked artifact {entry.id} is gone from the registry.",
        hint="Publish it again (from a bundle: `mxr import --into registry`), or write a new lock with `mxr lock`.",
        context={"id": entry.id, "digest": entry.digest},
    )


def download_pinned(pinned: PinnedProgram, cache: Cache, connect: Connect | None) -> Fetched:
    """Bring the files of a pinned artifact into the cache. Raises as `lookup_pinned` does.

    The answer is not cached for later fetches without a lock: the registry may resolve the request differently.
    """
    answer, found, entry = pinned.answer, pinned.found, pinned.entry
    if cache.all_intact_or_removed(answer):
        if found.etag:
            with suppress(MxrError):
                cache.store_artifact(answer.artifact, found.etag)
        fetch_workflow.log_use(answer, cache, None)
        return fetch_workflow.make_fetched(answer, cache, "cache", found.warnings)
    if connect is None:
        raise _absent_error(entry, cache)
    client = connect()
    try:
        fetch_workflow.download_missing(answer, cache, client)
    except NotFoundError as gone:
        raise _gone_error(entry) from gone
    if found.etag:
        with suppress(MxrError) if cache.optional else nullcontext():
            cache.store_artifact(answer.artifact, found.etag)
    fetch_workflow.log_use(answer, cache, client)
    return fetch_workflow.make_fetched(answer, cache, "registry", found.warnings)


def _absent_error(entry: LockEntry, cache: Cache) -> UnreachableError:
    state = "had a damaged copy, now removed," if entry.sha256 in cache.damaged else "does not have it,"
    return UnreachableError(
        f"Artifact {entry.id[:12]} of {entry.model}: the cache {state} and {stated('offline')} forbids a download.",
        hint=f"Run the same command once without {stated('offline')}, or import a bundle: `mxr import`.",
    )


def needed_entries(lock: LockFile, host: Host, arch: str | None = None) -> LockFile:
    """The entries of a lock that a host needs: those for `arch`, or else for its own GPUs, if the lock has any.

    A host without GPUs needs all of them: it prepares folders for others. Raises `UsageError` for an `arch` that the
    lock does not have.
    """
    archs = {target.arch for target in host.targets if target.arch} if arch is None else {GfxArch.parse(arch).base}
    found = lock.for_archs(archs)
    if any(entry.request.key.arch for entry in found.entries):
        return found
    if arch is None:
        return lock
    locked = sorted({entry.request.key.arch or entry.request.key.kind for entry in lock.entries})
    raise UsageError(
        f"The lock has no entry for {arch}: it has {', '.join(locked) or 'none at all'}.",
        hint="Choose one of those, or add the request: `mxr lock --add`.",
    )
