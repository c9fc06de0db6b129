"""What changed since a lock was written: in the registry, in the models that it names, and in the files on disk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.key import MODEL
from mxr.artifact.recall import QUARANTINED, YANKED
from mxr.cache.store import Cache
from mxr.display.text import counted, shell_quoted
from mxr.errors import (
    DamagedError,
    MismatchError,
    MxrError,
    NoSuchArtifactError,
    NotFoundError,
    RecalledError,
    UsageError,
)
from mxr.request import model as models
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import StatMemo, sha256_file

from .lockfile import FILE_NAME, LockEntry, LockFile

if TYPE_CHECKING:
    from mxr.client.registry import Client

SAME, OTHER, GONE, UNSERVED, CHANGED, MISSING = "same", "other", "gone", "unserved", "changed", "missing"
OTHER_MODEL = "other_model"
"""The state of an entry. SAME: unchanged. OTHER: the registry resolves the request to another artifact now. GONE: the
registry no longer has the artifact. UNSERVED: it has the artifact, but no artifact answers the request any more.
CHANGED: the file has other content. OTHER_MODEL: the ONNX file that the lock names is another model. MISSING: the file
does not exist. Besides, the words of `mxr.artifact.recall`: what the registry says of the artifact."""


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


def check_entries(
    lock: LockFile, base: Path, cache: Cache, client: Client, *, follow_links: bool = False
) -> Iterator[LockFinding]:
    """Compare each entry with the registry, and with the model file below `base` if it exists."""

    @functools.cache
    def identify(path: Path) -> str:
        return models.find_model(str(path), cache, None, follow_links=follow_links).identity

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
        recall = client.artifact(entry.id).recall
    except NotFoundError:
        return LockFinding(entry, GONE, first)
    if recall is not None:
        return LockFinding(entry, recall.word, first)
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
    identify = models.identifier(memo)
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
    identify = models.identifier(cache.memo)
    for found in _files_of_entries(lock, cache, folder):
        model = replaced_model(found.entry, base, identify, folder) if found.state == SAME else None
        recall = cache.recall_of(found.entry.digest, found.entry.id) if found.state == SAME else None
        if model:
            yield LockFinding(found.entry, OTHER_MODEL, path=model)
        elif recall is not None:
            yield LockFinding(found.entry, recall.word, path=found.path)
        else:
            yield found


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
    YANKED: "yanked: no request gets it any more",
    QUARANTINED: "quarantined: it must no longer be used",
    CHANGED: "changed",
    MISSING: "missing",
}


def drift_error(findings: list[LockFinding]) -> MxrError | None:
    """The error for what `check_entries` found, None if nothing changed. Gone artifacts determine the error first."""
    message, context = _summary(findings, "from the lock")
    if not context["entries"]:
        return None
    if any(finding.state == GONE for finding in findings):
        return NoSuchArtifactError(
            message, hint="Publish them again, or write a new lock with `mxr lock`.", context=context
        )
    return MismatchError(
        message, hint="If you want to deploy the current state, write a new lock with `mxr lock`.", context=context
    )


def damage_error(findings: list[LockFinding], lock: Path, folder: Path | None = None) -> MxrError | None:
    """The error for the findings of `verify_entries`, None if nothing changed. Changed files determine the error first.

    `lock` and `folder`: what was verified. The hint is the command that mends it. A lock may go on to name what was
    yanked.
    """
    message, context = _summary([each for each in findings if each.state != YANKED], "on disk from the lock")
    if not context["entries"]:
        return None
    if any(finding.state == QUARANTINED for finding in findings):
        return RecalledError(message, hint="Write a new lock (`mxr lock`), and fetch what it names.", context=context)
    changed = any(finding.state == CHANGED for finding in findings)
    words = ["mxr fetch --locked"]
    if lock != Path(FILE_NAME):
        words.append(shell_quoted(lock))
    if folder is not None:
        # A file that changed in the cache is replaced by itself; in a folder, it may be somebody's work.
        words += ["-o", shell_quoted(folder), *(["--force"] if changed else [])]
    if not changed and any(finding.state == OTHER_MODEL for finding in findings):
        hint = "Write a new lock of the model that lies there (`mxr lock`), or bring back the one that was locked."
        return MismatchError(message, hint=hint, context=context)
    hint = f"Fetch them{' again' if changed else ''}: `{' '.join(words)}`."
    return (
        DamagedError(message, hint=hint, context=context)
        if changed
        else NotFoundError(message, hint=hint, context=context)
    )


def _summary(findings: list[LockFinding], what: str) -> tuple[str, dict[str, Any]]:
    bad = [finding for finding in findings if finding.state != SAME]
    shown = "; ".join(f"{each.entry.model} ({each.entry.id[:12]}): {WORDS[each.state]}" for each in bad[:5])
    more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
    differ = "differs" if len(bad) == 1 else "differ"
    return f"{len(bad)} of {counted(len(findings), 'entry', 'entries')} {differ} {what}: {shown}{more}.", {
        "entries": [each.to_json() for each in bad]
    }
