"""`mxr freeze`: one model with static shapes for each batch, for consumers that name or check by shape."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mxr import onnxfile
from mxr.artifact.target import Inputs
from mxr.errors import NotAllowed, Usage
from mxr.onnxfile.freezing import freeze
from mxr.util import disk


def freeze_batches(
    model: Path, folder: Path, batches: Sequence[int], inputs: Inputs = (), *, force: bool = False
) -> tuple[Path, ...]:
    """Writes `<stem>.b<batch>.onnx` for each batch to `folder`, and the external data beside them once.

    Each batch closes the open first dims, those in `inputs` too, which close the others. Raises `Usage` for dims that
    stay open, `NotAllowed` for other files of those names without `force`, `Damaged`, a disk fault.
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
        beside = [(place, folder / location) for location, place in onnxfile.external_files(read)]
        for place, copy in beside:
            if copy.exists() and not copy.samefile(place) and not force and not _same(place, copy):
                raise NotAllowed(f"{copy} is there and is other data.", hint="Give another folder, or --force.")
    for path, _ in files:
        if path.exists() and not force:
            raise NotAllowed(f"{path} is there already.", hint="Give another folder, or --force.")
    for place, copy in beside:
        if not (copy.exists() and copy.samefile(place)):
            disk.copy_whole(place, copy)
    for path, dims in files:
        with disk.landing(path) as descriptor, os.fdopen(os.dup(descriptor), "wb") as target:
            freeze(model, target, dims)
    return tuple(path for path, _ in files)


def _with_batch(
    model: onnxfile.OnnxModel, inputs: Mapping[str, tuple[int, ...]], batch: int
) -> dict[str, tuple[int, ...]]:
    """Dims as said, with the batch in place of an open first dim."""
    first = {item.name: item.dims[0] for item in model.inputs if item.dims}
    return {
        name: (batch, *dims[1:]) if dims and not isinstance(first.get(name, 0), int) else dims
        for name, dims in inputs.items()
    }


def _plain(dim: object) -> int:
    if not isinstance(dim, int):
        raise Usage("A frozen model has no dynamic dims.", hint="Give plain numbers: --batch 1,4,8 --input x=1,3,8,8.")
    return dim


def _same(one: Path, other: Path) -> bool:
    from mxr.util.hashing import sha256_file

    return one.stat().st_size == other.stat().st_size and sha256_file(one) == sha256_file(other)
