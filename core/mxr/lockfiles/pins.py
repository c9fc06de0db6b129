"""From requests to a lock and back: pin what the registry answers, take exactly that, see what became of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.matching import Candidate, choose
from mxr.artifact.qualities import Request
from mxr.artifact.records import Artifact
from mxr.cache.store import Answer, Cache
from mxr.errors import Damaged, Mismatch, MxrError, NoSuchArtifact, NotFound, Unreachable, Usage
from mxr.request import model as subjects
from mxr.request.model import ModelReference
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import sha256_file
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Connect, Fetched, Watch, unwatched

from .lockfile import LockEntry, LockFile

if TYPE_CHECKING:
    from mxr.client.registry import Client

SAME, OTHER, GONE, UNSERVED, CHANGED, MISSING = "same", "other", "gone", "unserved", "changed", "missing"
"""What became of an entry: nothing; another artifact is first now; it is gone from the registry; it is there and serves
no more; its model (or file) is another; its file is not there."""


@dataclass(frozen=True, slots=True)
class LockFinding:
    """What became of an entry. `first`: the id of the artifact that the registry answers now. `path`: its file."""

    entry: LockEntry
    state: str
    first: str | None = None
    path: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry, its `state`, and what was found."""
        rest = {"first": self.first, "path": None if self.path is None else str(self.path)}
        return self.entry.to_json() | {"state": self.state} | {name: each for name, each in rest.items() if each}


def pin(request: Request, consumer: str, subject: ModelReference, client: Client, base: Path) -> LockEntry:
    """The entry for what the registry answers to a request now; `base` is the folder of the lock.

    Raises `NoSuchArtifact` with the nearest.
    """
    artifact = fetch_workflow.resolve(request, client).artifact
    model = subject.model
    if subject.path is not None:
        model = Path(os.path.relpath(subject.path.absolute(), base.absolute())).as_posix()
    return LockEntry(model, consumer, request, artifact.id, artifact.sha256)


def fetch(
    lock: LockFile, request: Request, cache: Cache, connect: Connect | None, *, watch: Watch = unwatched
) -> Fetched:
    """The program that the lock names for a request, by its id: nothing is resolved.

    The entry is that of the very request; else the one whose key is the request's, and whose artifact serves its
    demands by the usual rules (a host knows its CUs and patches, whoever wrote the lock need not have said them).
    Raises `Mismatch` for a request that is not in the lock, `NoSuchArtifact` where the artifact is gone.
    """
    entries = lock.serving(request)
    if not entries:
        raise Mismatch(
            "This request is not in the lock.",
            hint="Ask for what was locked (`mxr key` shows what is asked), or lock this too: `mxr lock --add`.",
            detail={"digest": request.key.digest, "nearest": lock.nearest(request)},
        )
    artifacts = [artifact_of(entry, cache, connect) for entry in entries]
    at = 0 if len(artifacts) == 1 else _first(request, artifacts)
    answer = fetch_workflow.judged(request, artifacts[at], "What the lock names")
    return _bring(answer, entries[at], cache, connect, watch)


def fetch_entry(entry: LockEntry, cache: Cache, connect: Connect | None, *, watch: Watch = unwatched) -> Fetched:
    """The program of one entry. For what it raises see `fetch`."""
    artifact = artifact_of(entry, cache, connect)
    answer = fetch_workflow.judged(entry.request, artifact, f"What the lock names for {entry.model}")
    return _bring(answer, entry, cache, connect, watch)


def _first(request: Request, artifacts: list[Artifact]) -> int:
    """Of several that the lock names for one key: the place of the one that a registry of only these would choose."""
    rows = [
        Candidate(
            each.id,
            each.qualities,
            order=round(each.published_at * 1000),
            generic=each.key.arch if each.digest != request.key.digest else None,
        )
        for each in artifacts
    ]
    found = choose(request.demands, rows)
    return rows.index(found[0]) if found else 0


def artifact_of(entry: LockEntry, cache: Cache, connect: Connect | None) -> Artifact:
    """What the entry names, from the cache or by its id from the registry; checked against the entry."""
    artifact = cache.known(entry.digest, entry.id)
    if artifact is None:
        if connect is None:
            raise _absent(entry)
        try:
            artifact = connect().artifact(entry.id)
        except NotFound as gone:
            raise _gone(entry) from gone
    if not artifact.sound or (artifact.id, artifact.digest, artifact.sha256) != (entry.id, entry.digest, entry.sha256):
        raise Damaged(
            f"{entry.model}: the lock and artifact {entry.id[:12]} do not agree: digest, id or sha256 is another.",
            hint="Write the lock again with `mxr lock`; if this comes again, run `mxr-registry fsck` there.",
            detail={"id": entry.id, "found": {"digest": artifact.digest, "sha256": artifact.sha256}},
        )
    return artifact


def _gone(entry: LockEntry) -> NoSuchArtifact:
    return NoSuchArtifact(
        f"{entry.model}: the lock names artifact {entry.id}, which is gone from the registry and not in the cache.",
        hint="Publish it again (a bundle of it: `mxr import --into registry`), or lock anew with `mxr lock`.",
        detail={"id": entry.id, "digest": entry.digest},
    )


def _bring(answer: Answer, entry: LockEntry, cache: Cache, connect: Connect | None, watch: Watch) -> Fetched:
    """The files of a locked artifact, in the cache. No answer is remembered: the lock pins, the registry picks."""
    if fetch_workflow.held(answer, cache):
        fetch_workflow.use(answer, cache, None)
        return Fetched(fetch_workflow.path_of(answer, cache), "cache", answer)
    if connect is None:
        raise _absent(entry)
    client = connect()
    try:
        fetch_workflow.complete(answer, cache, client, watch)
    except NotFound as gone:
        raise _gone(entry) from gone
    cache.keep(answer.artifact)
    fetch_workflow.use(answer, cache, client)
    return Fetched(fetch_workflow.path_of(answer, cache), "registry", answer)


def _absent(entry: LockEntry) -> Unreachable:
    return Unreachable(
        f"The cache does not have artifact {entry.id[:12]} of {entry.model}, and --offline forbids asking.",
        hint="Run the same command once without --offline, or import a bundle: `mxr import`.",
    )


def check(lock: LockFile, base: Path, cache: Cache, client: Client) -> Iterator[LockFinding]:
    """What became of each entry: at the registry, and of the model's file where it is there, below `base`."""
    for entry in lock.entries:
        yield _check(entry, base, cache, client)


def _check(entry: LockEntry, base: Path, cache: Cache, client: Client) -> LockFinding:
    path = base / entry.model
    if not entry.model.startswith("xxh3:") and path.exists():
        found = subjects.find(str(path), cache, None).model
        if found != entry.request.key.model:
            return LockFinding(entry, CHANGED, path=path)
    try:
        first = client.resolve(entry.request).artifact.id
    except (NoSuchArtifact, Usage):
        first = None
    if first == entry.id:
        return LockFinding(entry, SAME, first)
    try:
        client.artifact(entry.id)
    except NotFound:
        return LockFinding(entry, GONE, first)
    return LockFinding(entry, OTHER if first else UNSERVED, first)


def verify(lock: LockFile, cache: Cache, folder: Path | None = None) -> Iterator[LockFinding]:
    """Reads the file of each entry again, in the cache or in a folder, and compares its sha256 with the lock's.

    In a folder a file has the name that `Lock.file_names` gives it; where nothing has that name, or the consumer takes
    a layout of its own, a file of another name with the right bytes will do. Raises `Usage` where there is no such
    folder.
    """
    if folder is None:
        for entry in lock.entries:
            path = cache.file(entry.sha256)
            yield LockFinding(entry, _state(path, entry), path=path)
        return
    if not folder.is_dir():
        raise Usage(f"{folder} is not a folder.", hint="Give the folder that the programs were put into.")
    others: dict[str, Path] | None = None
    for entry, name in zip(lock.entries, lock.file_names(), strict=True):
        path = folder / (name or entry.stem)
        state = _state(path, entry) if name else MISSING
        if state == MISSING:
            others = _digests(folder) if others is None else others
            if entry.sha256 in others:
                state, path = SAME, others[entry.sha256]
        yield LockFinding(entry, state, path=path)


def _state(path: Path, entry: LockEntry) -> str:
    if not path.is_file():
        return MISSING
    with disk.faults(path, "read"):
        return SAME if sha256_file(path) == entry.sha256 else CHANGED


def _digests(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.mxr")):
        if path.is_file():
            with disk.faults(path, "read"):
                found.setdefault(sha256_file(path), path)
    return found


WORDS = {
    OTHER: "another artifact is first now",
    GONE: "gone from the registry",
    UNSERVED: "still there, but no more the answer to its request",
    CHANGED: "changed",
    MISSING: "missing",
}


def drift(findings: list[LockFinding]) -> MxrError | None:
    """The error for what `check` found, None where all is as locked: what is gone counts before what is another."""
    message, detail = _told(findings, "are not as locked")
    if not detail["entries"]:
        return None
    if any(each.state == GONE for each in findings):
        return NoSuchArtifact(message, hint="Publish them again, or lock anew with `mxr lock`.", detail=detail)
    return Mismatch(message, hint="Lock anew with `mxr lock` if that is what you want to deploy.", detail=detail)


def damage(findings: list[LockFinding]) -> MxrError | None:
    """The error for what `verify` found, None where all is as locked: what changed counts before what is missing."""
    message, detail = _told(findings, "are not on the disk as locked")
    if not detail["entries"]:
        return None
    if any(each.state == CHANGED for each in findings):
        return Damaged(message, hint="Fetch them again: `mxr fetch --locked`.", detail=detail)
    return NotFound(message, hint="Fetch them: `mxr fetch --locked`.", detail=detail)


def _told(findings: list[LockFinding], what: str) -> tuple[str, dict[str, Any]]:
    bad = [each for each in findings if each.state != SAME]
    words = "; ".join(f"{each.entry.model} ({each.entry.id[:12]}): {WORDS[each.state]}" for each in bad[:5])
    more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
    return f"{len(bad)} of {len(findings)} entries {what}: {words}{more}.", {
        "entries": [each.to_json() for each in bad]
    }
