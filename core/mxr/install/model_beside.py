"""Finds the ONNX file that lies beside a program, and tells whether it is still the model of the program's record.

Servers load what has the name. Whoever replaces `net.onnx` in place leaves `net_b4.mxr` with the old weights beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from mxr.artifact.key import Difference
from mxr.errors import MismatchError, MxrError
from mxr.facts import stated
from mxr.request.model import ModelReference, identifier
from mxr.util import disk
from mxr.util.hashing import StatMemo, sha256_memoised

from . import ledger
from .file_names import SUFFIX, shorter_stem
from .ledger import Ledger, LedgerSlot

Identify = Callable[[Path], str]
"""Returns the identity of the model in an ONNX file. Raises `MxrError`."""


def model_beside(path: Path) -> Path | None:
    """Return the ONNX file in the same folder from which a program was compiled, by its name; None if there is none."""
    stem: str | None = path.name.removesuffix(SUFFIX)
    while stem:
        model = path.with_name(f"{stem}.onnx")
        if model.is_file():
            return model
        stem = shorter_stem(stem)
    return None


def why_another(model: Path, recorded: str, identify: Identify) -> str | None:
    """Return in words why an ONNX file is not the recorded model (`sha256:...`); None if it is."""
    try:
        found = identify(model)
    except MxrError as problem:
        return f"{model.name} cannot be compared with the model that the program was made from: {problem.message}"
    if found == recorded:
        return None
    return f"{model.name} is another model now: {found[:19]}, and the program is of {recorded[:19]}"


def refuse_another_model(
    folder: Path, slots: Mapping[str, LedgerSlot], model_files: Sequence[Path], memo: StatMemo
) -> None:
    """Raise `MismatchError` if a program would be placed beside an ONNX file of another model that has its name.

    `model_files`: the files of the model that is fetched, whose identity is known.
    """
    identify = identifier(memo)
    for name, slot in slots.items():
        model = model_beside(folder / name)
        if model is None or _is_one_of(model, model_files):
            continue
        if why := why_another(model, slot.subject.model, identify):
            raise MismatchError(
                f"{folder / name} would lie beside a model that it is not made from. {why}. Nothing was written.",
                hint=f"Give another folder or another --name, or place it all the same with {stated('force')}.",
                context={"model": str(model)},
            )


def refuse_recorded_for_another(folder: Path, program: Path, model: ModelReference, memo: StatMemo) -> None:
    """Raise `MismatchError` if mxr placed these bytes at `program`, in `folder` or below, for another model."""
    slot = placed_slot(folder, program, {})
    recorded = slot.subject.model if slot else model.identity
    if slot is None or recorded == model.identity:
        return
    with disk.faults(program, "read"):
        sha256 = sha256_memoised(program, memo)
    if any(entry.sha256 == sha256 for entry in slot.files):
        raise MismatchError(
            f"mxr placed {program.name} as the program of {recorded[:19]}, and {model.stem} is {model.identity[:19]}.",
            hint="Compile the model that lies there now. If these bytes are right for both, add --also-for.",
            context={"differences": [Difference("model", model.identity, recorded).to_json()]},
        )


def placed_slot(folder: Path, path: Path, records: dict[Path, Ledger]) -> LedgerSlot | None:
    """Return the slot for which mxr placed a file, by the ledgers of the folders between it and `folder`.

    None if it did not. `records`: the ledgers read so far, by folder.
    """
    for home in path.parents:
        if home not in records:
            records[home] = ledger.read_ledger(home)
        slot = records[home].slot_of(str(path.relative_to(home)))
        if slot is not None or home == folder:
            return slot
    return None


def why_replaced(path: Path, slot: LedgerSlot | None, identify: Identify) -> str | None:
    """Return why the model beside a program that mxr placed is not its model any more; None if it is, or is unknown."""
    model = model_beside(path) if slot else None
    return why_another(model, slot.subject.model, identify) if slot and model else None


def _is_one_of(path: Path, files: Iterable[Path]) -> bool:
    try:
        return any(path.samefile(file) for file in files if file.exists())
    except OSError:
        return False
