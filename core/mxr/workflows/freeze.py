"""`mxr freeze`: write a model with static shapes for each batch size, for consumers that depend on the shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mxr import onnxfile
from mxr.artifact.target import Inputs
from mxr.errors import Usage, WouldOverwrite
from mxr.onnxfile.freezing import freeze
from mxr.util import disk


def freeze_batches(
    model: Path,
    folder: Path,
    batches: Sequence[int],
    inputs: Inputs = (),
    *,
    force: bool = False,
    follow_links: bool = False,
) -> tuple[Path, ...]:
    """Writes `<stem>.b<batch>.onnx` to `folder` for each batch size, and one copy of the external data.

    The batch size replaces open first dims, also those in `inputs`; `inputs` gives the other dims. Raises `Usage` for
    dims that remain open, `WouldOverwrite` for existing files without `force` and for files of the model, `Damaged` for
    an invalid model, and a disk error as `disk.faults` does.
    """
    read = onnxfile.read_model(model)
    given = {name: tuple(_plain(dim) for dim in shape) for name, shape in inputs}
    files = []
    for batch in dict.fromkeys(batches):
        bound = onnxfile.bind_inputs(read, batch=batch, inputs=_with_batch(read, given, batch))
        dims = {name: tuple(_plain(dim) for dim in shape) for name, shape in bound.items()}
        files.append((folder / f"{model.stem}.b{batch}.onnx", dims))
    with disk.faults(folder):
        folder.mkdir(parents=True, exist_ok=True)
        beside = [
            (place, folder / location) for location, place in onnxfile.external_files(read, follow_links=follow_links)
        ]
        _refuse_existing(model, beside, [path for path, _ in files], force=force)
    for place, copy in beside:
        if not (copy.exists() and copy.samefile(place)):
            disk.copy_whole(place, copy)
    for path, dims in files:
        with disk.landing(path) as descriptor, os.fdopen(os.dup(descriptor), "wb") as target:
            freeze(model, target, dims)
    return tuple(path for path, _ in files)


def _refuse_existing(model: Path, beside: list[tuple[Path, Path]], files: list[Path], *, force: bool) -> None:
    """Raises `WouldOverwrite` for a file of the model, and without `force` for other files with other content."""
    originals = (model, *(place for place, _ in beside))
    for path in (*files, *(copy for place, copy in beside if not _is_same(copy, place))):
        if any(_is_same(path, each) for each in originals):
            raise WouldOverwrite(f"{path} is a file of the model itself.", hint="Give another folder with -o.")
    for place, copy in beside:
        differs = os.path.lexists(copy) and not (copy.exists() and (_is_same(copy, place) or _same(place, copy)))
        if differs and not force:
            raise WouldOverwrite(f"{copy} exists with other content.", hint="Use another folder, or add --force.")
    for path in files:
        if os.path.lexists(path) and not force:
            raise WouldOverwrite(f"{path} already exists.", hint="Use another folder, or add --force.")


def _with_batch(
    model: onnxfile.OnnxModel, inputs: Mapping[str, tuple[int, ...]], batch: int
) -> dict[str, tuple[int, ...]]:
    """Returns the given dims, with the batch size in place of an open first dim."""
    first = {item.name: item.dims[0] for item in model.inputs if item.dims}
    return {
        name: (batch, *dims[1:]) if dims and not isinstance(first.get(name, 0), int) else dims
        for name, dims in inputs.items()
    }


def _plain(dim: object) -> int:
    if not isinstance(dim, int):
        raise Usage("A frozen model cannot have dynamic dims.", hint="Use numbers: --batch 1,4,8 --input x=1,3,8,8.")
    return dim


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and one.samefile(other)


def _same(one: Path, other: Path) -> bool:
    from mxr.util.hashing import sha256_file

    return one.stat().st_size == other.stat().st_size and sha256_file(one) == sha256_file(other)
