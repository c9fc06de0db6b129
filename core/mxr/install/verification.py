"""What became of a folder that mxr laid out: every file that is not as it was placed, and why that may be.

The record is the folder's own: `.mxr-layout.json` of the layouts, `mxr-set.json` of a set. Where ONNX Runtime's files
lie, what its provider added is found too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mxr.artifact.manifest import check_name
from mxr.consumers.ort import proof
from mxr.consumers.ort.laying import RECORDS
from mxr.consumers.ort.proof import FileChange
from mxr.errors import Damaged, Mismatch, MxrError, Usage
from mxr.util import disk
from mxr.util.codec import parse
from mxr.util.frozen import dataclass
from mxr.util.hashing import sha256_file

from . import ledger, variant_set
from .ledger import Ledger

LARGEST = 64 << 20
"""Bytes of the list of a set."""


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What was looked at, by name from the folder, and what is not as it was placed."""

    files: tuple[str, ...]
    findings: tuple[FileChange, ...]


def laid_out(folder: Path) -> bool:
    """Whether mxr has laid something out in this folder, or in the one above for what lies here."""
    return any((folder / name).exists() for name in (ledger.NAME, variant_set.LIST, RECORDS))


def prove(folder: Path) -> VerificationReport:
    """Reads every file that was placed in `folder` again. Raises `Usage` where nothing was, `Damaged`, a disk fault."""
    if not laid_out(folder):
        raise Usage(
            f"{folder} has no record of what mxr placed there.",
            hint="Name the folder of `mxr fetch -o`, or a lock: mxr verify mxr.lock --in FOLDER.",
        )
    slots = ledger.read(folder)
    homes = _homes(folder, slots)
    placed = {name: sha for name, sha in _placed(slots) if not _in(name, homes)} | _of_set(folder)
    findings = [finding for name, sha in sorted(placed.items()) for finding in _compared(folder / name, sha)]
    files = set(placed)
    for home in homes:
        findings += proof.verify(folder / home)
        files |= {f"{home}/{path.name}".removeprefix("./") for path in (folder / home).glob("*.mxr")}
    return VerificationReport(tuple(sorted(files)), tuple(findings))


def _placed(slots: Ledger) -> Iterator[tuple[str, str]]:
    for slot in slots.slots.values():
        for entry in slot.files:
            yield entry.name, entry.sha256


def _homes(folder: Path, slots: Ledger) -> list[str]:
    """The folders of ONNX Runtime's files: they have records of their own, which tell more."""
    if (folder / RECORDS).is_dir():
        return ["."]
    names = {name.split("/")[0] for name, _ in _placed(slots) if f"/{RECORDS}/" in name}
    return sorted(name for name in names if (folder / name / RECORDS).is_dir())


def _in(name: str, homes: list[str]) -> bool:
    return name.split("/")[0] in homes


def _of_set(folder: Path) -> dict[str, str]:
    path = folder / variant_set.LIST
    if not path.exists():
        return {}
    with disk.faults(path, "read"), path.open("rb") as file:
        data = file.read(LARGEST)
    try:
        found: Any = parse(data, str(path))
        return {check_name(row["file"]): str(row["sha256"]) for row in found["batches"].values()}
    except (Usage, KeyError, TypeError, AttributeError) as problem:
        raise Damaged(f"{path} is no list of a set.", hint="Fetch the set into this folder again.") from problem


def _compared(path: Path, sha256: str) -> Iterator[FileChange]:
    with disk.faults(path, "read"):
        if not path.is_file():
            yield FileChange("missing", path, "Somebody removed it: fetch again.")
        elif sha256_file(path) != sha256:
            yield FileChange(
                "rewritten", path, "Somebody wrote over it: fetch again with --force, or keep what is there."
            )


def problem(folder: Path, found: VerificationReport) -> MxrError | None:
    """The error for what is not as it was placed; None where all is."""
    bad = found.findings
    if not bad:
        return None
    words = "; ".join(f"{each.path.name} was {_WORDS[each.kind]}" for each in bad[:3])
    more = f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
    return Mismatch(
        f"{folder} is not as mxr placed it: {words}{more}.",
        hint="A program that a provider added or rewrote was compiled, not loaded: the reasons stand with the files.",
        detail={"files": len(found.files), "findings": [each.to_json() for each in bad]},
    )


_WORDS = {"added": "added", "rewritten": "rewritten", "missing": "removed"}
