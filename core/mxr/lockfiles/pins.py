"""Pins requests to artifacts, fetches exactly the pinned artifacts, and checks what changed since."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr import consumers
from mxr.artifact.attributes import RelatedKey, Request
from mxr.artifact.candidates import DIVIDING, Choice
from mxr.artifact.key import MODEL, Key
from mxr.artifact.matching import choose_candidate
from mxr.artifact.partial import PartialRequest
from mxr.artifact.records import Artifact
from mxr.artifact.serving import ANY
from mxr.artifact.target import GfxArch
from mxr.cache.store import CONFIRMABLE, Answer, Cache, CacheState
from mxr.display.text import counted, shell_quoted
from mxr.errors import (
    DamagedError,
    MismatchError,
    MxrError,
    NoSuchArtifactError,
    NotFoundError,
    TemporaryError,
    UnreachableError,
    UsageError,
)
from mxr.facts import stated
from mxr.host_facts import Host
from mxr.request import builder
from mxr.request import model as subjects
from mxr.request.builder import PreparedRequest, RequestOptions
from mxr.request.choices import distinguishing, options_of
from mxr.request.model import ModelReference
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import StatMemo, sha256_file
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Connect, Fetched, Watch, unwatched

from .lockfile import FILE_NAME, LockEntry, LockFile

if TYPE_CHECKING:
    from mxr.client.registry import Client
    from mxr.host_facts import Host

MAX_CHOICES = 10
"""Entries that an error lists, when several fit a request."""

SAME, OTHER, GONE, UNSERVED, CHANGED, MISSING = "same", "other", "gone", "unserved", "changed", "missing"
OTHER_MODEL = "other_model"
"""The state of an entry. SAME: unchanged. OTHER: the registry resolves the request to another artifact now. GONE: the
registry no longer has the artifact. UNSERVED: it has the artifact, but no artifact answers the request any more.
CHANGED: the file has other content. OTHER_MODEL: the ONNX file that the lock names is another model. MISSING: the file
does not exist."""


@dataclass(frozen=True, slots=True)
class LockFinding:
    """The state of an entry. `first`: the id of the artifact that the registry resolves to now. `path`: its file."""

    entry: LockEntry
    state: str
    first: str | None = None
    path: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry, its `state`, and what was found."""
        rest = {"first": self.first, "path": None if self.path is None else str(self.path)}
        return self.entry.to_json() | {"state": self.state} | {name: each for name, each in rest.items() if each}


def pin_request(asked: PreparedRequest, client: Client, base: Path) -> LockEntry:
    """Pin a request to the artifact that the registry resolves it to now; `base` is the folder of the lock.

    Raises `NoSuchArtifactError` with the nearest artifacts, and `UsageError` for a name that is not UTF-8.
    """
    request, subject = asked.request, asked.model
    artifact = fetch_workflow.resolve(request, client).artifact
    if artifact.digest != request.key.digest:
        # The lock names what is there: the program of the generic family, or of another release.
        request = replace(request, key=artifact.key)
    model = subject.model
    if subject.path is not None:
        model = Path(os.path.relpath(subject.path.absolute(), base.absolute())).as_posix()
        try:
            model.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"The name {model} is not UTF-8, so that no lock can hold it.",
                hint=f"Rename the model, or lock it by its identity: `mxr lock {subject.model}`.",
            ) from None
    return LockEntry(model, asked.consumer.name, request, artifact.id, artifact.sha256)


def fetch_pinned(
    lock: LockFile, request: Request, cache: Cache, connect: Connect | None, *, watch: Watch = unwatched
) -> Fetched:
    """Fetch the program that the lock pins for a request, by id; the registry does not resolve the request.

    An entry with exactly this request is preferred. Otherwise the entry must have the same key, and its artifact must
    meet the constraints by the usual rules: a host states facts, such as its CUs and patch versions, that the lock may
    leave open. Raises `MismatchError` for a request that is not in the lock, `NoSuchArtifactError` if the artifact is
    gone.
    """
    entries = lock.entries_serving(request)
    if not entries:
        raise _not_locked_error(lock, request.key)
    found = [find_pinned(entry, cache, connect) for entry in entries]
    at = 0 if len(found) == 1 else _index_of_best(request, [each.artifact for each in found])
    answer = fetch_workflow.check_match(request, found[at].artifact, "The locked artifact")
    return _download_pinned(answer, found[at], entries[at], cache, connect, watch)


def build_locked_request(
    lock: LockFile, options: RequestOptions, subject: ModelReference, host: Host, recorded: str | None = None
) -> PreparedRequest:
    """Build a request from options and host, completed by the only entry of the lock that has all of their facts.

    `recorded`: the form of recorded artifacts, which are preferred where the lock has them.

    Raises `MismatchError` if there is none, and `UsageError` with the options that choose if there are several. An
    exact request leaves nothing open.
    """
    built = builder.gather(options, subject, host)
    partial = built.known
    if recorded is not None and lock.entries_admitted(replace(partial, form=recorded)):
        partial = replace(partial, form=recorded)
    if options.exact or not partial.open_facts:
        return builder.build_request(options, subject, host).with_form(partial.form)
    entries = lock.entries_admitted(partial)
    if not entries:
        raise _not_locked_error(lock, partial)
    keys = {entry.request.key: entry for entry in entries}
    rows = [options_of(partial, _choice(entry), options, subject) for entry in keys.values()]
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
    return PreparedRequest(known, subject, consumer, (*built.notes, note))


def _choice(entry: LockEntry) -> Choice:
    wanted = entry.request.constraints
    consumer, key = consumers.find_consumer(entry.consumer), entry.request.key
    own_flags = (key.offload_copy, key.fast_math) == (consumer.offload_copy, consumer.fast_math)
    stated = {name: getattr(wanted, name) for name in DIVIDING}
    return Choice(key, **stated, id=entry.id, consumer=consumer.name if own_flags else None)


def _not_locked_error(lock: LockFile, asked: Key | PartialRequest) -> MismatchError:
    digest = {"digest": asked.digest} if isinstance(asked, Key) else {}
    return MismatchError(
        "This request is not in the lock.",
        hint="Request what was locked (`mxr key` shows the request), or add this request: `mxr lock --add`.",
        context={**digest, "nearest": lock.nearest(asked)},
    )


def fetch_entry(entry: LockEntry, cache: Cache, connect: Connect | None, *, watch: Watch = unwatched) -> Fetched:
    """Fetch the program of one entry. Raises what `fetch_pinned` raises."""
    found = find_pinned(entry, cache, connect)
    answer = fetch_workflow.check_match(entry.request, found.artifact, f"The locked artifact for {entry.model}")
    return _download_pinned(answer, found, entry, cache, connect, watch)


def _index_of_best(request: Request, artifacts: list[Artifact]) -> int:
    """The index of the artifact that a registry with only these artifacts would choose."""
    rows = [each.candidate(RelatedKey(request.key, each.key)) for each in artifacts]
    found = choose_candidate(request.constraints, rows, serve=ANY)
    return rows.index(found[0]) if found else 0


@dataclass(frozen=True, slots=True)
class PinnedArtifact:
    """The artifact of an entry. `etag`: its entity tag if the registry answered. `warnings`: as in `Fetched`."""

    artifact: Artifact
    etag: str = ""
    warnings: tuple[str, ...] = ()


def find_pinned(entry: LockEntry, cache: Cache, connect: Connect | None) -> PinnedArtifact:
    """Find the pinned artifact, in the cache if its record is young enough or the registry confirms it.

    Raises `DamagedError` if it contradicts the entry, `NoSuchArtifactError` if it is gone, `UnreachableError`.
    """
    found = _find_record(entry, cache, connect)
    check_pinned(entry, found.artifact)
    return found


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
        return PinnedArtifact(record.artifact)
    if connect is None:
        raise _absent_error(entry, cache) if record is None else _gone_error(entry)
    client = connect()
    try:
        if record is not None and state in CONFIRMABLE and fetch_workflow.confirm_record(record, cache, client):
            return PinnedArtifact(record.artifact)
        artifact, etag = client.confirm(entry.id, "")
        cache.note_registry(client.identity)
        assert artifact is not None
        return PinnedArtifact(artifact, etag)
    except NotFoundError as gone:
        raise _gone_error(entry) from gone
    except (UnreachableError, TemporaryError) as problem:
        if record is not None and state is CacheState.UNCONFIRMED:
            return PinnedArtifact(record.artifact, warnings=fetch_workflow.stale_warnings(record, problem))
        raise


def _gone_error(entry: LockEntry) -> NoSuchArtifactError:
    return NoSuchArtifactError(
        f"{entry.model}: the locked artifact {entry.id} is gone from the registry.",
        hint="Publish it again (from a bundle: `mxr import --into registry`), or write a new lock with `mxr lock`.",
        context={"id": entry.id, "digest": entry.digest},
    )


def _download_pinned(
    answer: Answer, found: PinnedArtifact, entry: LockEntry, cache: Cache, connect: Connect | None, watch: Watch
) -> Fetched:
    """Bring the files of a pinned artifact into the cache.

    The answer is not cached for later fetches without a lock: the registry may resolve the request differently.
    """
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
        fetch_workflow.download_missing(answer, cache, client, watch)
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


def check_entries(
    lock: LockFile, base: Path, cache: Cache, client: Client, *, follow_links: bool = False
) -> Iterator[LockFinding]:
    """Compare each entry with the registry, and with the model file below `base` if it exists."""

    @functools.cache
    def identify(path: Path) -> str:
        return subjects.find_model(str(path), cache, None, follow_links=follow_links).model

    for entry in lock.entries:
        yield _check(entry, base, identify, client)


def _check(entry: LockEntry, base: Path, identify: Callable[[Path], str], client: Client) -> LockFinding:
    path = base / entry.model
    if not MODEL.fullmatch(entry.model) and path.exists() and identify(path) != entry.request.key.model:
        return LockFinding(entry, OTHER_MODEL, path=path)
    try:
        first = client.resolve(entry.request).artifact.id
    except (NoSuchArtifactError, UsageError):
        first = None
    if first == entry.id:
        return LockFinding(entry, SAME, first)
    try:
        client.artifact(entry.id)
    except NotFoundError:
        return LockFinding(entry, GONE, first)
    return LockFinding(entry, OTHER if first else UNSERVED, first)


def replaced_model(
    entry: LockEntry, base: Path, identify: Callable[[Path], str], folder: Path | None = None
) -> Path | None:
    """Return the ONNX file that has the name of an entry's model and is another model; None if there is none.

    It is looked for below `base`, the folder of the lock, and in `folder`. Raises `UsageError` and `DamagedError`.
    """
    if MODEL.fullmatch(entry.model):
        return None
    paths = [base / entry.model] if folder is None else [base / entry.model, folder / Path(entry.model).name]
    for path in paths:
        if path.is_file() and identify(path) != entry.request.key.model:
            return path
    return None


def refuse_replaced_models(lock: LockFile, base: Path, memo: StatMemo) -> None:
    """Raise `MismatchError` if the lock names an ONNX file that is another model now."""
    identify = subjects.identifier(memo)
    findings = [
        LockFinding(entry, OTHER_MODEL if path else SAME, path=path)
        for entry in lock.entries
        for path in (replaced_model(entry, base, identify),)
    ]
    if error := drift_error(findings):
        raise error


def verify_entries(lock: LockFile, base: Path, cache: Cache, folder: Path | None = None) -> Iterator[LockFinding]:
    """Read the file of each entry, in the cache or in a folder, and compare its sha256 with that in the lock.

    Models that lie below `base`, the folder of the lock, or in the folder are compared, too.

    In a folder, the file must have the name from `LockFile.file_names`. If no file has that name, or the consumer needs
    its own layout, a file with another name and the right content is accepted. Raises `UsageError` if there is no such
    folder.
    """
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", hint="Give the folder in which the programs were placed.")
    identify = subjects.identifier(cache.memo)
    for found in _files_of_entries(lock, cache, folder):
        model = replaced_model(found.entry, base, identify, folder) if found.state == SAME else None
        yield LockFinding(found.entry, OTHER_MODEL, path=model) if model else found


def _files_of_entries(lock: LockFile, cache: Cache, folder: Path | None) -> Iterator[LockFinding]:
    if folder is None:
        for entry in lock.entries:
            yield _verified(entry, {sha: cache.access_path(sha) for sha in _shas(entry, cache)})
        return
    others: dict[str, Path] | None = None
    for entry, name in zip(lock.entries, lock.file_names(), strict=True):
        path = folder / (name or entry.stem)
        found = _verified(entry, {entry.sha256: path}) if name else LockFinding(entry, MISSING, path=path)
        if found.state == MISSING:
            others = _digests(folder) if others is None else others
            shas = _shas(entry, cache)
            if all(sha in others for sha in shas):
                found = LockFinding(entry, SAME, path=others[shas[0]])
        yield found


def _shas(entry: LockEntry, cache: Cache) -> tuple[str, ...]:
    """The sha256 of each file of an entry, by the record in the cache; without one, that of the only file."""
    record = cache.artifact_record(entry.digest, entry.id)
    manifest = None if record is None else record.artifact.manifest
    if manifest is None or manifest.sha256 != entry.sha256:
        return (entry.sha256,)
    return tuple(file.sha256 for file in manifest.files)


def _verified(entry: LockEntry, paths: Mapping[str, Path]) -> LockFinding:
    """The worst state of the files of an entry, which are given by their sha256."""
    found = SAME
    for sha, path in paths.items():
        if not path.is_file():
            return LockFinding(entry, MISSING, path=path)
        with disk.faults(path, "read"):
            found = found if sha256_file(path) == sha else CHANGED
    return LockFinding(entry, found, path=next(iter(paths.values())))


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


def _digests(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.mxr")):
        if path.is_file():
            with disk.faults(path, "read"):
                found.setdefault(sha256_file(path), path)
    return found


WORDS = {
    OTHER: "the registry resolves it to another artifact now",
    GONE: "gone from the registry",
    UNSERVED: "in the registry, but it no longer answers its request",
    OTHER_MODEL: "the ONNX file is another model now",
    CHANGED: "changed",
    MISSING: "missing",
}


def drift_error(findings: list[LockFinding]) -> MxrError | None:
    """The error for what `check_entries` found, None if nothing changed. Gone artifacts determine the error first."""
    message, context = _summary(findings, "from the lock")
    if not context["entries"]:
        return None
    if any(each.state == GONE for each in findings):
        return NoSuchArtifactError(
            message, hint="Publish them again, or write a new lock with `mxr lock`.", context=context
        )
    return MismatchError(
        message, hint="If you want to deploy the current state, write a new lock with `mxr lock`.", context=context
    )


def damage_error(findings: list[LockFinding], lock: Path, folder: Path | None = None) -> MxrError | None:
    """The error for the findings of `verify_entries`, None if nothing changed. Changed files determine the error first.

    `lock` and `folder`: what was verified. The hint is the command that mends it.
    """
    message, context = _summary(findings, "on disk from the lock")
    if not context["entries"]:
        return None
    changed = any(each.state == CHANGED for each in findings)
    words = ["mxr fetch --locked"]
    if lock != Path(FILE_NAME):
        words.append(shell_quoted(lock))
    if folder is not None:
        # A file that changed in the cache is replaced by itself; in a folder, it may be somebody's work.
        words += ["-o", shell_quoted(folder), *(["--force"] if changed else [])]
    if not changed and any(each.state == OTHER_MODEL for each in findings):
        hint = "Write a new lock of the model that lies there (`mxr lock`), or bring back the one that was locked."
        return MismatchError(message, hint=hint, context=context)
    hint = f"Fetch them{' again' if changed else ''}: `{' '.join(words)}`."
    return (
        DamagedError(message, hint=hint, context=context)
        if changed
        else NotFoundError(message, hint=hint, context=context)
    )


def _summary(findings: list[LockFinding], what: str) -> tuple[str, dict[str, Any]]:
    bad = [each for each in findings if each.state != SAME]
    shown = "; ".join(f"{each.entry.model} ({each.entry.id[:12]}): {WORDS[each.state]}" for each in bad[:5])
    more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
    differ = "differs" if len(bad) == 1 else "differ"
    return f"{len(bad)} of {counted(len(findings), 'entry', 'entries')} {differ} {what}: {shown}{more}.", {
        "entries": [each.to_json() for each in bad]
    }
