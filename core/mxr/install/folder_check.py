"""Checks every program in a folder against a target: which ones load there, and which have a name that is not theirs.

Nothing in the folder needs to come from mxr. Symbolic links are not followed. A file that disappears or changes while
it is read is reported like one that cannot be read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mxr.artifact import program_evidence
from mxr.display.text import counted
from mxr.errors import DamagedError, MxrError, UsageError
from mxr.host_facts import Hardware, Host, HostToolchain
from mxr.program import describe_file
from mxr.request import compatibility
from mxr.request.builder import RequestOptions, choose_hardware, choose_toolchain
from mxr.request.compatibility import Requirement
from mxr.request.model import identifier
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import StatMemo

from .file_names import SUFFIX
from .ledger import Ledger
from .model_beside import placed_slot, why_replaced

MAX_FILES = 20_000
PACKAGE_MANIFEST = "manifest.json"
"""The file at the top of a model package. Source: microsoft/onnxruntime pulls 27786 and 28271."""


BATCH = re.compile(r"(?P<stem>.+)_b(?P<batch>[0-9]{1,9})\.mxr")
"""The names that AMD Inference Server looks for. Source: Xilinx/inference-server, src/amdinfer/workers/migraphx.cpp."""

PLAIN_CONSUMERS = ("python", "driver")
"""Consumers whose file has the name of the model as it is, whatever that ends with."""


@dataclass(frozen=True, slots=True)
class CheckedProgram:
    """One program of a folder. `name`: relative to the folder. `placed`: whether mxr placed it there as it is named.

    `cross`: it was compiled without its GPU and has never run. `problems`: why it does not fit the target or its name,
    or cannot be read; empty for a program that can be used.
    `description`: the document of `mxr inspect --json`, None for a file that cannot be read.
    """

    name: str
    placed: bool
    problems: tuple[str, ...]
    description: Mapping[str, Any] | None = None
    requirements: tuple[Requirement, ...] = ()
    cross: bool = False

    @property
    def batch(self) -> int | None:
        """The batch size of all inputs; None if they differ or are dynamic."""
        return batch_of(self.description) if self.description else None

    @property
    def target(self) -> str:
        """The target that it was compiled for: gpu or ref; empty if that is not known."""
        return "+".join((self.description or {}).get("targets") or ())

    def to_json(self) -> dict[str, Any]:
        """Return the row of this program in the document of `mxr check FOLDER --json`."""
        return {
            "file": self.name,
            "ok": not self.problems,
            "placed_by_mxr": self.placed,
            "cross": self.cross,
            "problems": list(self.problems),
            "requirements": [asdict(row) for row in self.requirements],
        }


def check_file(file: Path, options: RequestOptions, host: Host, memo: StatMemo) -> tuple[Requirement, ...]:
    """Return the requirements of a program, checked against a host, and against what `options` state instead.

    A program that mxr placed beside an ONNX file requires that this is still its model. Raises `DamagedError`, and
    `UsageError` where neither names a GPU.
    """
    description = describe_file(file).to_json()
    if options.kind is None and description["targets"] == ["ref"]:
        options = replace(options, kind="ref")
    hardware, toolchain = choose_hardware(options, host, [])
    toolchain = choose_toolchain(options, toolchain)
    rows = compatibility.check_compatibility(description, hardware, toolchain)
    rows += compatibility.check_options(description, options, hardware, toolchain)
    slot = placed_slot(file.parent, file, {})
    if slot and (why := why_replaced(file, slot, identifier(memo))):
        rows += (Requirement("model", slot.subject.model[:19], "another", False, why),)
    if slot and slot.cross:
        why = "compiled on a host without this GPU, and not tuned"
        rows += (Requirement("run", "once", "cross, never run", None, why),)
    return rows


def check_folder(
    folder: Path, options: RequestOptions, hardware: Hardware, toolchain: HostToolchain, memo: StatMemo
) -> tuple[CheckedProgram, ...]:
    """Check all programs in a folder and the folders in it, in the order of their names.

    What mxr placed is also compared with the ONNX file beside it.

    Raises `UsageError` for more than `MAX_FILES` programs, `DamagedError` for a ledger that cannot be read, or a disk
    fault for the folder itself.
    """
    records: dict[Path, Ledger] = {}
    rows, identify = [], identifier(memo)
    for path in programs(folder):
        slot = placed_slot(folder, path, records)
        row = _check(folder, path, slot.consumer if slot else None, options, hardware, toolchain)
        why = why_replaced(path, slot, identify)
        problems = (*row.problems, why) if why else row.problems
        rows.append(replace(row, problems=problems, cross=slot is not None and slot.cross))
    return tuple(rows)


def nothing_to_check(folder: Path) -> DamagedError:
    """Return the error for a folder without programs, with what it holds instead: nothing that was judged fits."""
    names = [path.name for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    variants = sorted({str(path.parent.relative_to(folder)) for path in folder.glob("*/**/*.onnx")})
    found = f"It has {counted(len(names), 'entry', 'entries')}: {', '.join(names[:5])}" if names else "It is empty"
    hint = "Give the folder in which the programs (*.mxr) lie."
    if (folder / PACKAGE_MANIFEST).is_file():
        where = ", ".join(variants[:5]) or "no folder"
        found = f"It looks like a model package of ONNX Runtime ({PACKAGE_MANIFEST}), with models in {where}"
        hint = (
            "mxr does not read model packages: which variant ONNX Runtime takes on an AMD GPU, and whether it fits, is "
            "not known."
        )
    return DamagedError(
        f"{folder} holds no program (*.mxr), so nothing was judged. {found}.",
        hint=hint,
        context={"files": names[:100], "models": variants[:100]},
    )


def programs(folder: Path) -> Iterator[Path]:
    """The files below a folder whose names end in .mxr, links included, without hidden folders. Raises `UsageError`."""
    count = 0
    with disk.faults(folder, "read"):
        os.scandir(folder).close()
    for home, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.endswith(SUFFIX) or name.startswith("."):
                continue
            count += 1
            if count > MAX_FILES:
                raise UsageError(
                    f"{folder} has more than {counted(MAX_FILES, 'program')}.", hint="Give one of the folders in it."
                )
            yield Path(home, name)


def _check(
    folder: Path,
    path: Path,
    consumer: str | None,
    options: RequestOptions,
    hardware: Hardware,
    toolchain: HostToolchain,
) -> CheckedProgram:
    name = str(path.relative_to(folder))
    try:
        with disk.faults(path, "read"):
            mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
            return CheckedProgram(name, consumer is not None, (f"it is {what}, which is not read",))
        description = describe_file(path).to_json()
    except MxrError as problem:
        return CheckedProgram(name, consumer is not None, (problem.message,))
    if options.kind is None and description["targets"] == ["ref"]:
        hardware = Hardware(kind="ref")
    rows = compatibility.check_compatibility(description, hardware, toolchain)
    rows += compatibility.check_options(description, options, hardware, toolchain)
    problems = [f"{row.field} needs {_shown(row.needed)}, found {_shown(row.found)}" for row in rows if row.ok is False]
    if consumer not in PLAIN_CONSUMERS and (wrong := misnamed(path.name, description)):
        problems.append(wrong)
    return CheckedProgram(name, consumer is not None, tuple(problems), description, rows)


def misnamed(name: str, description: Mapping[str, Any]) -> str | None:
    """Return why a name states a batch size that the program does not have; None if it does not."""
    found, batch = BATCH.fullmatch(name), batch_of(description)
    if found is None or batch is None or int(found["batch"]) == batch:
        return None
    return (
        f"its name says batch {int(found['batch'])}, and its inputs have batch {batch}: AMD Inference Server runs "
        "whatever has the name"
    )


def batch_of(description: Mapping[str, Any]) -> int | None:
    """Return the first dim of all inputs; None if they differ, are dynamic, or the file does not show them."""
    sizes = {shape[0] for _, shape in program_evidence.inputs_of(description) if shape}
    only = next(iter(sizes)) if len(sizes) == 1 else None
    return only if isinstance(only, int) else None


def _shown(value: object) -> str:
    return "unknown" if value is None else str(value)
