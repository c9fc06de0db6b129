"""Verifies a folder that mxr wrote: finds every file that is no longer as it was placed, with the likely reason.

It reads the records in the folder itself: `.mxr-layout.json` of a layout, `mxr-set.json` of a variant set. Where an
installer keeps records of its own, that installer verifies the folder; it also finds files that the consumer added.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from mxr.artifact.manifest import check_name
from mxr.artifact.recall import Recall
from mxr.cache.store import Cache
from mxr.consumers.amdinfer import AMDINFER
from mxr.consumers.file_change import FileChange
from mxr.display.text import shell_quoted
from mxr.errors import DamagedError, MismatchError, MxrError, UsageError
from mxr.facts import all_stated, stated
from mxr.request.model import identifier
from mxr.util import disk
from mxr.util.codec import parse
from mxr.util.frozen import dataclass
from mxr.util.hashing import StatMemo, sha256_file

from . import ledger, variant_set
from .file_names import SUFFIX
from .folder_check import BATCH, programs
from .installer import Installer, installers_with_records
from .ledger import Ledger, LedgerSlot
from .model_beside import model_beside, why_another

MAX_BYTES = 64 << 20
"""Bytes of the list of a set."""


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The files that were checked, by name relative to the folder, and those that are not as they were placed.

    `foreign`: other programs in the folder, which mxr did not place.
    """

    files: tuple[str, ...]
    findings: tuple[FileChange, ...]
    foreign: tuple[str, ...] = ()


def has_record(folder: Path) -> bool:
    """Whether this folder has a record of files that mxr placed."""
    records = (each.record_folder for each in installers_with_records())
    return any((folder / name).exists() for name in (ledger.NAME, variant_set.LIST, *filter(None, records)))


def verify_folder(folder: Path, memo: StatMemo) -> VerificationReport:
    """Read every file again that was placed in `folder`, or in a folder of one GPU in it, and the models beside them.

    Raises `UsageError` if mxr placed nothing there, `DamagedError` for an unreadable record, or a disk fault.
    """
    slots = ledger.read_ledger(folder)
    homes = {home: installer for installer in installers_with_records() for home in _homes(folder, slots, installer)}
    inner = [each for each in _folders(folder) if each.name not in homes and has_record(each)]
    if not inner and not has_record(folder):
        raise UsageError(
            f"{folder} has no record of what mxr placed there.",
            hint="Give the folder of `mxr fetch -o`, or a lock file: mxr verify mxr.lock --in FOLDER. "
            "`mxr check FOLDER` reads programs of others.",
        )
    placed = {name: sha for name, sha in _placed(slots) if name.split("/")[0] not in homes} | _of_set(folder)
    findings = [finding for name, sha in sorted(placed.items()) for finding in _compared(folder / name, sha)]
    findings += _replaced_models(folder, slots, memo)
    files = set(placed)
    for home, installer in homes.items():
        findings += installer.verify(folder / home)
        files |= {f"{home}/{path.name}".removeprefix("./") for path in (folder / home).glob("*.mxr")}
    others = {*homes, *(each.name for each in inner)}
    foreign = [name for name in _foreign(folder, others) if name not in files and not slots.knows(name)]
    findings += [finding for name in foreign for finding in _compiled_by_server(folder, name, slots)]
    for each in inner:
        found = verify_folder(each, memo)
        files |= {f"{each.name}/{name}" for name in found.files}
        foreign += [f"{each.name}/{name}" for name in found.foreign]
        findings += found.findings
    return VerificationReport(tuple(sorted(files)), tuple(findings), tuple(foreign))


def recalled(folder: Path, cache: Cache) -> Iterator[tuple[str, Recall]]:
    """Yield the id of each program that was placed in `folder` and recalled since, and what was said of it."""
    for slot in placed_slots(folder):
        if (found := cache.recall_of(slot.digest, slot.id)) is not None:
            yield slot.id, found


def placed_slots(folder: Path) -> Iterator[LedgerSlot]:
    """Yield what mxr placed in `folder`, and in the folders in it. Raises `DamagedError` for an unreadable ledger."""
    for home in (folder, *(each for each in _folders(folder) if has_record(each))):
        yield from ledger.read_ledger(home).slots.values()


def _folders(folder: Path) -> list[Path]:
    with disk.faults(folder, "read"):
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())


def _foreign(folder: Path, others: Set[str]) -> Iterator[str]:
    """The programs in a folder, without those in folders that have records of their own."""
    if "." not in others:
        names = (str(path.relative_to(folder)) for path in programs(folder))
        yield from (name for name in names if name.split("/")[0] not in others)


def _compiled_by_server(folder: Path, name: str, slots: Ledger) -> Iterator[FileChange]:
    """A program of another batch size beside those of AMD Inference Server, which compiles on a miss."""
    found = BATCH.fullmatch(name)
    if found is None:
        return
    stems = {
        match["stem"]
        for slot in slots.slots.values()
        if slot.consumer == AMDINFER.name
        for entry in slot.files
        if (match := BATCH.fullmatch(entry.name))
    }
    if found["stem"] in stems:
        yield FileChange(
            "added",
            folder / name,
            f"No program of batch {int(found['batch'])} was placed: the server compiled it, or it is left from before. "
            f"Fetch it with {all_stated([('batch', int(found['batch'])), ('force', True)])}, or remove it.",
        )


def _placed(slots: Ledger) -> Iterator[tuple[str, str]]:
    for slot in slots.slots.values():
        for entry in slot.files:
            yield entry.name, entry.sha256


def _homes(folder: Path, slots: Ledger, installer: Installer) -> list[str]:
    """The folders in which this installer keeps records: these give more detail than the ledger."""
    records = installer.record_folder
    assert records is not None
    if (folder / records).is_dir():
        return ["."]
    names = {name.split("/")[0] for name, _ in _placed(slots) if f"/{records}/" in name}
    return sorted(name for name in names if (folder / name / records).is_dir())


def _of_set(folder: Path) -> dict[str, str]:
    path = folder / variant_set.LIST
    if not path.exists():
        return {}
    with disk.faults(path, "read"), path.open("rb") as file:
        data = file.read(MAX_BYTES)
    try:
        found: Any = parse(data, str(path))
        return {check_name(row["file"]): str(row["sha256"]) for row in found["batches"].values()}
    except (UsageError, KeyError, TypeError, AttributeError) as problem:
        raise DamagedError(
            f"{path} is not a valid list of a set.", hint="Fetch the set into this folder again."
        ) from problem


def _compared(path: Path, sha256: str) -> Iterator[FileChange]:
    with disk.faults(path, "read"):
        if not path.is_file():
            yield FileChange("missing", path, "The file was removed: fetch again.")
        elif sha256_file(path) != sha256:
            yield FileChange(
                "rewritten",
                path,
                f"The file was overwritten: fetch again with {stated('force')}, or keep the new content.",
            )


def _replaced_models(folder: Path, slots: Ledger, memo: StatMemo) -> Iterator[FileChange]:
    """The ONNX files beside placed programs that are not the models of the record. What mxr wrote itself is none."""
    models = {
        (model, slot.subject.model)
        for slot in slots.slots.values()
        for entry in slot.files
        if entry.name.endswith(SUFFIX) and (model := model_beside(folder / entry.name)) is not None
        if not slots.knows(str(model.relative_to(folder)))
    }
    identify = identifier(memo)
    for model, recorded in sorted(models):
        if why := why_another(model, recorded, identify):
            yield FileChange("replaced", model, f"{why}. Fetch the program of the model that lies there.")


def problem(folder: Path, found: VerificationReport) -> MxrError | None:
    """The error for a folder that is not as it was placed; None if nothing changed."""
    bad = found.findings
    if not bad:
        return None
    changes = "; ".join(f"{each.path.name} was {WORDS[each.kind]}" for each in bad[:3])
    more = f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
    hint = "A program that a provider added or rewrote was compiled, not loaded; the files are listed with reasons."
    if any(each.kind in ("missing", "rewritten") for each in bad):
        hint += f" To restore what is missing or rewritten, repeat `mxr fetch` with -o {shell_quoted(folder)} --force."
    return MismatchError(
        f"{folder} is not as mxr placed it: {changes}{more}.",
        hint=hint,
        context={"files": len(found.files), "findings": [each.to_json() for each in bad]},
    )


WORDS = {"added": "added", "rewritten": "rewritten", "missing": "removed", "replaced": "replaced by another model"}
