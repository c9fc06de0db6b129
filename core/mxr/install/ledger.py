"""The ledger: the record of what mxr placed in a folder, stored in the folder itself as `.mxr-layout.json`.

    {"v": 3, "slots": {"resnet50/config.pbtxt": {
        "consumer": "triton", "id": "<artifact id>", "digest": "<of the key>",
        "subject": {"model": "...", "arch": "gfx908", "shapes": {"x": [4, 3, 224, 224]}, "precision": "fp16",
            "sramecc": "+", "xnack": "-", "num_cu": 120},
        "files": [{"name": "resnet50/123/resnet50.mxr", "sha256": "..."}, ...],
        "before": [...], "cross": false}}}

A file belongs to mxr only if the ledger lists it with the sha256 that the file has now. Another artifact replaces that
of a slot only if it is for the same consumer and subject; its toolchain may differ. `before` lists the files of the
previous layout: a running program may still read them, so the next layout removes them, not this one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from mxr.artifact.attributes import Request
from mxr.artifact.manifest import check_name, check_sha256
from mxr.artifact.records import Artifact
from mxr.artifact.target import show_precision
from mxr.errors import DamagedError, UsageError
from mxr.facts import stated
from mxr.util import disk
from mxr.util.codec import canonical, decode, encode, parse
from mxr.util.frozen import dataclass

NAME = ".mxr-layout.json"
VERSION = 3
MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A file that mxr placed."""

    name: str
    sha256: str

    def __post_init__(self) -> None:
        check_name(self.name)
        check_sha256(self.sha256)


@dataclass(frozen=True, slots=True)
class LedgerSubject:
    """What a slot is for. `arch`: the GPU architecture, or the kind of another target. `shapes`: dims by input name.

    `sramecc`, `xnack`, `num_cu`: of the GPU, None where neither the request nor the artifact states them.
    """

    model: str
    arch: str
    shapes: Mapping[str, Any]
    precision: str
    sramecc: str | None = None
    xnack: str | None = None
    num_cu: int | None = None

    @classmethod
    def of(cls, request: Request, artifact: Artifact) -> LedgerSubject:
        """Return the subject of a request; what it leaves open of the GPU is that of the artifact."""
        key, constraints, attributes = request.key, request.constraints, artifact.attributes
        return cls(
            key.model,
            key.arch or key.kind,
            key.to_json()["inputs"],
            show_precision(key.precision),
            sramecc=constraints.sramecc or _sign(attributes.sramecc),
            xnack=constraints.xnack or _sign(attributes.xnack),
            num_cu=constraints.num_cu or attributes.num_cu,
        )

    def differences(self, other: LedgerSubject) -> list[str]:
        """Return what differs in the subject of a request, in words. An unknown fact of a GPU differs from none."""
        rows = [(row.name, getattr(self, row.name), getattr(other, row.name)) for row in fields(self)]
        return [
            f"{name} {_shown(one)} there, {_shown(two)} requested"
            for name, one, two in rows
            if one != two and None not in (one, two)
        ]


@dataclass(frozen=True, slots=True)
class LedgerSlot:
    """What was placed for one consumer and one subject: the artifact, its files, and the files of the one before.

    `cross`: the artifact was compiled without its GPU and has never run.
    """

    consumer: str
    id: str
    digest: str
    subject: LedgerSubject
    files: tuple[LedgerEntry, ...]
    before: tuple[LedgerEntry, ...] = ()
    cross: bool = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """All slots of a folder, by name."""

    slots: Mapping[str, LedgerSlot] = field(default_factory=dict)
    v: int = VERSION

    def owns(self, name: str, sha256: str) -> bool:
        """Whether mxr placed a file of this name with this content."""
        entries = (entry for slot in self.slots.values() for entry in (*slot.files, *slot.before))
        return any((entry.name, entry.sha256) == (name, sha256) for entry in entries)

    def conflict(self, name: str, slot: LedgerSlot) -> str:
        """Why what is recorded about the file or slot `name` is not for `slot`; empty if it is, or nothing is known."""
        there = [self.slots[name]] if name in self.slots else []
        there += [each for each in self.slots.values() if name in {file.name for file in (*each.files, *each.before)}]
        for each in there:
            if each.consumer != slot.consumer:
                return f"consumer {each.consumer} there, {slot.consumer} requested"
            if found := each.subject.differences(slot.subject):
                return "; ".join(found)
        return ""

    def knows(self, name: str) -> bool:
        """Whether mxr placed a file of this name, regardless of its content now."""
        return any(name == entry.name for slot in self.slots.values() for entry in (*slot.files, *slot.before))

    def slot_of(self, name: str) -> LedgerSlot | None:
        """The slot for which mxr placed a file of this name, regardless of its content now; None if it did not."""
        for slot in self.slots.values():
            if any(name == entry.name for entry in slot.files):
                return slot
        return None

    def with_slot(self, name: str, slot: LedgerSlot) -> Ledger:
        """A copy of the ledger with this slot added or replaced."""
        return Ledger({**self.slots, name: slot})


def read_ledger(folder: Path) -> Ledger:
    """Read the ledger of a folder. It is empty if there is none that only this user or root can have written.

    What another user wrote must not decide which files mxr replaces and removes. Raises `DamagedError` or a disk fault.
    """
    path = folder / NAME
    try:
        # A link is not followed, and a pipe that somebody put there does not stop the open.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DamagedError(
                    f"{path}, the record of what mxr placed there, is no regular file.", hint="Remove it."
                )
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
                return Ledger()
            data = file.read(MAX_BYTES)
    except FileNotFoundError:
        return Ledger()
    except OSError as problem:
        raise disk.fault(problem, path, "read") from problem
    try:
        found = decode(Ledger, parse(data, str(path)), NAME)
        if found.v != VERSION:
            raise UsageError(f"version {found.v}")
    except UsageError as problem:
        raise DamagedError(
            f"{path}, the record of what mxr placed there, cannot be read: {problem.message}",
            hint=f"Remove it, and fetch again with {stated('force')} to replace the files that it listed.",
        ) from None
    return found


def write_ledger(folder: Path, ledger: Ledger) -> None:
    """Write the ledger of a folder. Raises a disk fault."""
    disk.write_whole(folder / NAME, canonical(encode(ledger)).encode())


def _sign(value: str) -> str | None:
    return None if value == "any" else value


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else canonical(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
