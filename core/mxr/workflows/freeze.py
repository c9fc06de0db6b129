"""`mxr freeze`: write a model with static shapes for each batch size, for consumers that depend on the shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from mxr import onnxfile
from mxr.artifact.target import Inputs
from mxr.errors import UsageError, WouldOverwriteError
from mxr.facts import stated
from mxr.onnxfile.freezing import freeze
from mxr.onnxfile.neighbours import model_with_data
from mxr.util import disk

MAX_SHAPES = 80
"""Letters of the shapes in a file name; longer ones end in a digest."""


def freeze_batches(
    model: Path,
    folder: Path,
    batches: Sequence[int],
    inputs: Inputs = (),
    *,
    force: bool = False,
    follow_links: bool = False,
) -> tuple[Path, ...]:
    """Write `<stem>.b<batch>.onnx` to `folder` for each batch size, and one copy of the external data.

    Where the model leaves other dims open, they are in the name, too: `<stem>.b<batch>.3x480x640.onnx`.
    The copy is `<stem>.data`, or `<stem>.0.data` and so on for several files: the names in the model come from its
    author, and must not decide what is written. In the model's own folder, its data is used as it is. The batch size
    replaces open first dims, also those in `inputs`; `inputs` gives the other dims. Raises `UsageError` for dims that
    remain open, `WouldOverwriteError` for existing files without `force` and for files of a model, `DamagedError` for
    an invalid model, and a disk error as `disk.faults` does.
    """
    read = onnxfile.read_model(model)
    given = {name: tuple(_plain(dim) for dim in shape) for name, shape in inputs}
    files = []
    for batch in dict.fromkeys(batches):
        bound = onnxfile.bind_inputs(read, batch=batch, inputs=_with_batch(read, given, batch))
        dims = {name: tuple(_plain(dim) for dim in shape) for name, shape in bound.items()}
        files.append((folder / f"{model.stem}.b{batch}{_open_shapes(read, dims)}.onnx", dims))
    with disk.faults(folder):
        folder.mkdir(parents=True, exist_ok=True)
    external = onnxfile.external_files(read, follow_links=follow_links)
    locations, copies = _copies(model, folder, external)
    originals, written = (model, *(place for _, place in external)), [path for path, _ in files]
    before = {path: _replaceable(path, originals, written, force=force) for path in written}
    for place, copy in list(copies.items()):
        if copy.is_file() and not copy.is_symlink() and not _is_same(copy, place) and _has_same_content(place, copy):
            del copies[place]
        else:
            before[copy] = _replaceable(copy, originals, written, force=force)
    for place, copy in copies.items():
        disk.copy_whole(place, copy, before[copy])
    for path, dims in files:
        with disk.atomic_file(path, before=before[path]) as descriptor, os.fdopen(os.dup(descriptor), "wb") as target:
            freeze(model, target, dims, locations)
    return tuple(path for path, _ in files)


def _copies(model: Path, folder: Path, external: Sequence[tuple[str, Path]]) -> tuple[dict[str, str], dict[Path, Path]]:
    """Return the new location of each external data, and the copy of each file; nothing in the model's own folder."""
    if _is_same(folder, model.parent):
        return {}, {}
    places = list(dict.fromkeys(Path(os.path.realpath(place)) for _, place in external))
    names = [f"{model.stem}.data"] if len(places) == 1 else [f"{model.stem}.{n}.data" for n in range(len(places))]
    named = dict(zip(places, names, strict=True))
    locations = {location: named[Path(os.path.realpath(place))] for location, place in external}
    return locations, {place: folder / name for place, name in named.items()}


def _replaceable(path: Path, originals: Sequence[Path], written: Sequence[Path], *, force: bool) -> disk.FileState:
    """Return what is at a path. Raises `WouldOverwriteError` for what may not be replaced.

    That is every file without `force`, and with it a file of the model, a device, and the external data of a model that
    is not among the files `written` anew.
    """
    before = disk.FileState.of(path)
    if any(_is_same(path, each) for each in originals):
        raise WouldOverwriteError(f"{path} is a file of the model itself.", hint="Give another folder with -o.")
    if before.identity is not None and not force:
        raise WouldOverwriteError(f"{path} already exists.", hint=f"Use another folder, or add {stated('force')}.")
    if before.identity is not None and not (path.is_symlink() or path.is_file()):
        raise WouldOverwriteError(f"{path} is not a file.", hint="Use another folder.")
    if before.identity is not None and (other := model_with_data(path, written)):
        raise WouldOverwriteError(
            f"{path} is the external data of {other}, which is not written anew.", hint="Use another folder."
        )
    return before


def _open_shapes(model: onnxfile.OnnxModel, dims: Mapping[str, tuple[int, ...]]) -> str:
    """Return the dims after the first of each input that leaves one of them open, for a file name; each shape once."""
    opened = [
        item.name
        for item in model.inputs
        if item.dims is None or not all(isinstance(dim, int) for dim in item.dims[1:])
    ]
    shapes = "_".join(dict.fromkeys("x".join(map(str, dims[name][1:])) for name in opened))
    if len(shapes) > MAX_SHAPES:
        shapes = f"{shapes[:MAX_SHAPES]}~{sha256(shapes.encode()).hexdigest()[:12]}"
    return f".{shapes}" if shapes else ""


def _with_batch(
    model: onnxfile.OnnxModel, inputs: Mapping[str, tuple[int, ...]], batch: int
) -> dict[str, tuple[int, ...]]:
    """Return the given dims, with the batch size in place of an open first dim."""
    first = {item.name: item.dims[0] for item in model.inputs if item.dims}
    return {
        name: (batch, *dims[1:]) if dims and not isinstance(first.get(name, 0), int) else dims
        for name, dims in inputs.items()
    }


def _plain(dim: object) -> int:
    if not isinstance(dim, int):
        raise UsageError(
            "A frozen model cannot have dynamic dims.", hint="Use numbers: --batch 1,4,8 --input x=1,3,8,8."
        )
    return dim


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _has_same_content(one: Path, other: Path) -> bool:
    from mxr.util.hashing import sha256_file

    with disk.faults(other, "read"):
        return one.stat().st_size == other.stat().st_size and sha256_file(one) == sha256_file(other)
