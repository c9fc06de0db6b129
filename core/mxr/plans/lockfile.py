"""The lock file `mxr.lock`: pins each request to the artifact that was tested, by id and sha256.

The file is made to be committed: one field per line, entries and fields in a fixed order, no timestamps. A diff of the
file therefore shows exactly what changes in the deployment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, field
from pathlib import Path, PurePosixPath
from typing import Any

from mxr import consumers
from mxr.artifact.attributes import Constraints, Request
from mxr.artifact.key import MODEL, MODEL_PREFIX, Key
from mxr.artifact.manifest import check_sha256
from mxr.artifact.partial import PartialRequest
from mxr.artifact.target import FAMILY_OF
from mxr.display.text import json_text
from mxr.errors import DamagedError, MxrError, UsageError
from mxr.install.file_names import distinct_names, longer_name, owners_of
from mxr.util import codec, disk
from mxr.util.frozen import dataclass

FILE_NAME = "mxr.lock"
VERSION = 1
MAX_BYTES = 64 << 20
MAX_ENTRIES = 20_000

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class LockEntry:
    """One request and the artifact that it is pinned to.

    `model` is the path of the ONNX file relative to the folder of the lock, with slashes, or the identity of the model.
    `consumer` determines the name of the file in a folder. Raises `UsageError` for invalid values.
    """

    model: str
    consumer: str
    request: Request
    id: str
    sha256: str

    def __post_init__(self) -> None:
        last = PurePosixPath(self.model).name
        if not last or last == ".." or len(self.model) > 4096 or UNPRINTABLE.search(self.model):
            raise codec.refuse("model", "the path of a model, or its hash", self.model)
        if MODEL.fullmatch(self.model) and self.model != self.request.key.model:
            raise codec.refuse("model", f"the model of the key, {self.request.key.model}", self.model)
        consumers.find_consumer(self.consumer)
        check_sha256(self.id, "id")
        check_sha256(self.sha256)

    @property
    def digest(self) -> str:
        """The digest of the key."""
        return self.request.key.digest

    @property
    def stem(self) -> str:
        """The name of this model in a folder."""
        hashed = MODEL.fullmatch(self.model)
        return self.model.removeprefix(MODEL_PREFIX)[:16] if hashed else PurePosixPath(self.model).stem

    @property
    def order(self) -> tuple[str, str, str, str]:
        """The sort key of the entry in its lock."""
        constraints = codec.canonical(_stated(self.request.constraints))
        return self.model, self.request.key.canonical, constraints, self.consumer

    def to_json(self) -> dict[str, Any]:
        """The entry as `--json` prints it."""
        return {"model": self.model, "digest": self.digest, "id": self.id, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class _Written:
    """An entry as it is written in the file."""

    model: str
    consumer: str
    key: Key
    digest: str
    id: str
    sha256: str
    constraints: Constraints = field(default_factory=Constraints)


@dataclass(frozen=True, slots=True)
class LockFile:
    """The sorted entries; each combination of model, request and consumer occurs once.

    Raises `UsageError` if one request is pinned to two artifacts.
    """

    entries: tuple[LockEntry, ...]

    def __post_init__(self) -> None:
        if len(self.entries) > MAX_ENTRIES:
            raise codec.refuse("entries", f"at most {MAX_ENTRIES} entries", len(self.entries))
        ordered = sorted(set(self.entries), key=lambda entry: entry.order)
        answers: dict[Request, LockEntry] = {}
        for entry in ordered:
            first = answers.setdefault(entry.request, entry)
            if (first.id, first.sha256) != (entry.id, entry.sha256):
                raise UsageError(
                    f"{entry.model}: the same request is pinned to two artifacts, {first.id[:12]} and {entry.id[:12]}.",
                    hint="Write the lock again with `mxr lock`.",
                )
        object.__setattr__(self, "entries", tuple(ordered))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the artifacts, without duplicates, in the order of the entries."""
        return tuple(dict.fromkeys(entry.id for entry in self.entries))

    def entries_serving(self, request: Request) -> tuple[LockEntry, ...]:
        """The entry of exactly this request; otherwise all entries with its key, to be judged by the constraints."""
        same = [entry for entry in self.entries if entry.request == request][:1]
        if same:
            return tuple(same)
        related = request.related
        return tuple({entry.id: entry for entry in self.entries if entry.digest in related}.values())

    def entries_admitted(self, partial: PartialRequest) -> tuple[LockEntry, ...]:
        """The entries that have every fact that a partial request states, without duplicates of a request."""
        found: dict[Request, LockEntry] = {}
        for entry in self.entries:
            if partial.admits(entry.request.key):
                found.setdefault(entry.request, entry)
        return tuple(found.values())

    def nearest(self, key: Key | PartialRequest, most: int = 3) -> list[dict[str, Any]]:
        """The entries whose keys differ least from a requested one, with the differing fields, for an error."""
        rows = [(key.differences(entry.request.key), entry) for entry in self.entries]
        rows.sort(key=lambda row: (row[1].request.key.model != key.model, len(row[0])))
        return [{"id": entry.id, "differences": [each.to_json() for each in found]} for found, entry in rows[:most]]

    def for_archs(self, archs: Collection[str]) -> LockFile:
        """A copy of the lock with the entries for these GPUs, and those that need no particular GPU."""
        fit = {None, *archs, *(FAMILY_OF[arch] for arch in archs if arch in FAMILY_OF)}
        return LockFile(tuple(entry for entry in self.entries if entry.request.key.arch in fit))

    def merged(self, more: Iterable[LockEntry]) -> LockFile:
        """A copy of the lock with these entries; each replaces the entry for the same model, request and consumer."""
        found = {entry.order: entry for entry in (*self.entries, *more)}
        return LockFile(tuple(found.values()))

    def file_names(self, *, placing: bool = False) -> tuple[str | None, ...]:
        """The file name of each entry in one folder: the name that its consumer reads, or None if it needs a layout.

        If two different programs would have the same name, that in which they differ is appended to each. Raises
        `UsageError` for a request that a consumer cannot use; with `placing` also where a consumer would not find the
        longer name.
        """
        plain = [_file_name(entry) for entry in self.entries]
        owners = owners_of((name or "", entry.id) for name, entry in zip(plain, self.entries, strict=True))
        for name, entry in zip(plain, self.entries, strict=True):
            if placing and name and len(owners[name]) > 1 and consumers.find_consumer(entry.consumer).lay_out:
                raise UsageError(
                    f"Two entries of the lock need a different file {name} in one folder ({entry.consumer}).",
                    hint="Choose a GPU with --arch ARCH, give each GPU a folder with --per-arch, or fetch them one by "
                    "one: mxr fetch MODEL ... --locked -o FOLDER/.",
                )
        found = dict(zip(self.entries, plain, strict=True))
        for name in (name for name, owned in owners.items() if name and len(owned) > 1):
            same = [entry for entry, each in zip(self.entries, plain, strict=True) if each == name]
            names = distinct_names(name, [(entry.request.key, entry.id) for entry in same])
            found |= dict(zip(same, names, strict=True))
        # Another model can be named like a program of this one.
        owners = owners_of((name or "", entry.id) for entry, name in found.items())
        return tuple(
            longer_name(name, entry.id[:12]) if name and len(owners[name]) > 1 else name
            for entry, name in found.items()
        )


def _file_name(entry: LockEntry) -> str | None:
    consumer = consumers.find_consumer(entry.consumer)
    return None if consumer.name_file is None else consumer.file_name(entry.stem, entry.request.key)


def _stated(constraints: Constraints) -> dict[str, Any]:
    """The constraints that are set."""
    found = {name: value for name, value in asdict(constraints).items() if value not in (None, False, ())}
    return found | ({"allow": list(constraints.allow)} if constraints.allow else {})


def lock_text(lock: LockFile) -> str:
    """The text of a lock: JSON with one field per line. Equal locks have equal texts."""
    body = ",\n".join(_entry_text(entry) for entry in lock.entries)
    return f'{{\n "version": {VERSION},\n "entries": [\n{body}\n ]\n}}\n' if body else EMPTY


def save_lock(lock: LockFile, path: Path) -> None:
    """Write a lock, in the place of an earlier one if there is one.

    Raises `WouldOverwriteError` for any other file.
    """
    before = disk.refuse_other(path, "a lock file", lambda head: head[:1] == b"{" and b'"entries"' in head)
    disk.write_whole(path, lock_text(lock).encode(), before=before)


EMPTY = f'{{\n "version": {VERSION},\n "entries": []\n}}\n'


def _entry_text(entry: LockEntry) -> str:
    rows: dict[str, str] = {
        "model": _value(entry.model),
        "consumer": _value(entry.consumer),
        "key": _object(entry.request.key.to_json(), 4),
        "constraints": _object(_stated(entry.request.constraints), 4),
        "digest": _value(entry.digest),
        "id": _value(entry.id),
        "sha256": _value(entry.sha256),
    }
    inside = ",\n".join(f'   "{name}": {value}' for name, value in rows.items())
    return f"  {{\n{inside}\n  }}"


def _object(value: dict[str, Any], depth: int) -> str:
    inside = ",\n".join(
        f"{' ' * depth}{_value(name)}: "
        + (_object(each, depth + 1) if isinstance(each, dict) and each else _value(each))
        for name, each in value.items()
    )
    return f"{{\n{inside}\n{' ' * (depth - 1)}}}" if value else "{}"


def _value(value: object) -> str:
    # A lock is reviewed: names in it must not reorder what a reviewer sees.
    return json_text(value)


def parse_lock(data: bytes | str, name: str = FILE_NAME) -> LockFile:
    """Parse the text of a lock strictly. Raises `DamagedError` with the faulty entry."""
    try:
        document = codec.parse(data, "It")
        version, rows = _frame(document)
        if version != VERSION:
            raise codec.refuse("version", f"version {VERSION} of the lock", version)
        return LockFile(tuple(_entry(row, f"entries[{at}]") for at, row in enumerate(rows)))
    except MxrError as problem:
        raise DamagedError(
            f"{name} is not a valid lock file: {problem.message}",
            hint="Restore the committed file, or write it again with `mxr lock MODEL...`.",
        ) from None


def _frame(document: object) -> tuple[object, list[object]]:
    found = dict(codec.fields(document, ""))
    if set(found) != {"version", "entries"}:
        raise codec.refuse("", "an object with version and entries", sorted(found))
    rows = found["entries"]
    if not isinstance(rows, list) or len(rows) > MAX_ENTRIES:
        raise codec.refuse("entries", f"a list of at most {MAX_ENTRIES}", "another value")
    return found["version"], rows


def _entry(row: object, where: str) -> LockEntry:
    named = row.get("model") if isinstance(row, dict) else None
    try:
        written = codec.decode(_Written, row)
        if written.key.digest != written.digest:
            raise codec.refuse("digest", f"the digest of its key, {written.key.digest}", written.digest)
        request = Request(written.key, written.constraints)
        return LockEntry(written.model, written.consumer, request, written.id, written.sha256)
    except MxrError as problem:
        shown = f" ({UNPRINTABLE.sub('?', named[:100])})" if isinstance(named, str) else ""
        raise UsageError(f"{where}{shown}: {problem.message}", hint=problem.hint) from None


def load_lock(path: Path) -> LockFile:
    """Read a lock file. Raises `UsageError` if it does not exist, `DamagedError` if it is invalid."""
    with disk.faults(path, "read"):
        if not path.is_file():
            raise UsageError(
                f"There is no lock file {path}.", hint="Write one with `mxr lock MODEL...`, or give its path."
            )
        if path.stat().st_size > MAX_BYTES:
            raise DamagedError(f"{path} is too large.", hint=f"A lock file has at most {MAX_BYTES >> 20} MiB.")
        data = path.read_bytes()
    return parse_lock(data, str(path))
