"""The layout of an artifact for a consumer: which files, in which order, and the settings that make it read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import Any

from mxr.artifact.attributes import Attributes, Constraints
from mxr.artifact.key import Key
from mxr.artifact.records import Artifact
from mxr.artifact.target import FEATURES, DynamicDim, capable
from mxr.errors import UsageError
from mxr.facts import stated
from mxr.onnxfile import OnnxInput
from mxr.util.frozen import dataclass

TENSORS: Mapping[str, str] = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
"""The data types of inference servers, by ONNX element type; only types that numpy has.
Source: kserve/open-inference-protocol, Tensor Data Types."""


@dataclass(frozen=True, slots=True)
class LayoutFile:
    """A file to place: its name relative to the folder, its sha256, and its content unless the cache holds it."""

    name: str
    sha256: str
    data: bytes | None = None


def written(name: str, text: str | bytes) -> LayoutFile:
    """A piece that mxr generates."""
    data = text.encode() if isinstance(text, str) else text
    return LayoutFile(name, sha256(data).hexdigest(), data)


@dataclass(frozen=True, slots=True)
class Layout:
    """The files to place for one artifact.

    `pieces` are in the order in which they must appear. The consumer acts on the last one, and its name is the slot in
    the ledger: a later layout with the same last name replaces this one.

    `path` is the path to report, relative to the folder. `whole` are folders that must appear complete. `rivals` are
    patterns of other files that the consumer would read as well. `settings` are lines that make the consumer use the
    layout, `notes` are sentences for people.
    """

    pieces: tuple[LayoutFile, ...]
    path: str
    settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delivery:
    """An artifact with one file, and where to place it.

    `stem` is the name of the model in the folder, `folder` is absolute. `outputs` are empty if they are unknown.
    `model` is the ONNX file if it is on this host. `consumer_options` are the options that apply to one consumer only,
    by name.
    """

    stem: str
    key: Key
    constraints: Constraints
    artifact: Artifact
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[OnnxInput, ...]
    folder: Path
    model: Path | None = None
    consumer_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """The sha256 of the program."""
        return self.artifact.sha256

    def input_dims(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Name, ONNX element type and static dims of each input, in the order of the model. Raises `UsageError`."""
        shapes = dict(self.key.inputs)
        return tuple((item.name, item.elem_type, static(shapes[item.name])) for item in self.inputs)

    def output_dims(self) -> tuple[tuple[str, str, tuple[int | str | None, ...] | None], ...]:
        """Name, ONNX element type and dims of each output, from the program if it states them, else from the model.

        Symbols in the dims of the model that an input has as well are replaced by numbers.
        """
        stated: list[Mapping[str, Any]] = list((self.artifact.description or {}).get("outputs") or ())
        if len(stated) != len(self.outputs):
            stated = [{} for _ in self.outputs]
        sizes = {
            symbol: size
            for each, (_, _, dims) in zip(self.inputs, self.input_dims(), strict=True)
            for symbol, size in zip(each.dims or (), dims, strict=False)
            if isinstance(symbol, str)
        }
        return tuple(
            (each.name, each.elem_type, _dims(row.get("dims"), each.dims, sizes))
            for each, row in zip(self.outputs, stated, strict=True)
        )


def _dims(
    stated: object, declared: tuple[int | str | None, ...] | None, sizes: Mapping[str, int]
) -> tuple[int | str | None, ...] | None:
    # MIGraphX describes a scalar as one dim of size 1.
    if declared == ():
        return declared
    if isinstance(stated, list) and all(type(dim) is int for dim in stated):
        return tuple(stated)
    return declared and tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in declared)


def static(shape: tuple[int | DynamicDim, ...]) -> tuple[int, ...]:
    """The dims. Raises `UsageError` unless all are static."""
    dims = tuple(dim for dim in shape if isinstance(dim, int))
    if len(dims) != len(shape):
        raise UsageError(
            "A dynamic dim has no size.",
            hint=f"Use {stated('batch', 'N')}, and {stated('inputs', 'NAME=DIMS')} with plain numbers.",
        )
    return dims


def whole_arch(delivery: Delivery, who: str) -> str:
    """The full name of the GPU in HIP's notation, such as gfx90a:sramecc+:xnack-. Raises `UsageError` if it is unknown.

    A feature that the request leaves open is that of the program.
    """
    arch = delivery.key.arch or ""
    found = full_arch(delivery.key, delivery.constraints, delivery.artifact.attributes)
    if found is None:
        features = ":".join(f"{name}+" for name in FEATURES if capable(arch, name))
        raise UsageError(
            f"{who} needs the full name of the GPU, and neither the request nor the program states more than {arch}.",
            hint=f"Add {stated('arch', f'{arch}:{features}')} (each + or -), as `mxr host` shows it on the GPU host.",
        )
    return found


def full_arch(key: Key, constraints: Constraints, made: Attributes | None) -> str | None:
    """The full name of the GPU, from the constraints or else the attributes of the program; None if incomplete."""
    found = key.arch or ""
    for name in FEATURES:
        if capable(key.arch or "", name):
            has = getattr(made, name, None)
            sign = getattr(constraints, name) or (has if has != "any" else None)
            if sign is None:
                return None
            found += f":{name}{sign}"
    return found


def refuse_dynamic(key: Key, who: str) -> None:
    """Raise `UsageError` when an input has a dynamic dim."""
    for name, shape in key.inputs:
        if any(isinstance(dim, DynamicDim) for dim in shape):
            raise UsageError(
                f"{who} needs static shapes, and {name} has a dynamic dim.",
                hint=f"Request each size by itself: {stated('batch', 'N')}, or {stated('inputs', 'NAME=DIMS')}.",
            )


def one_batch(key: Key, who: str) -> int:
    """The static batch size that all inputs share. Raises `UsageError`."""
    batches = {shape[0] for _, shape in key.inputs if shape}
    if len(batches) != 1 or not isinstance(batch := next(iter(batches)), int):
        raise UsageError(f"{who} needs one static batch size for all inputs.", hint=f"Use {stated('batch', 'N')}.")
    return batch


def need_offload_copy(key: Key, who: str) -> None:
    """Raise `UsageError` for a program without offload_copy, which leaves its buffers to the caller."""
    if not key.offload_copy:
        raise UsageError(f"{who} needs a program with offload_copy on.", hint=f"Omit {stated('offload_copy', False)}.")


def tensor_type(name: str, elem_type: str, who: str) -> str:
    """The data type of inference servers for an ONNX element type. Raises `UsageError` if they have none."""
    if elem_type not in TENSORS:
        raise UsageError(
            f"{who} does not support the element type {elem_type} of {name}.",
            hint=f"Cast it inside the model to a type that numpy supports, or choose another {stated('consumer')}.",
        )
    return TENSORS[elem_type]


def need_outputs(delivery: Delivery, who: str) -> None:
    """Raise `UsageError` if the names of the outputs are unknown."""
    if not delivery.outputs:
        raise UsageError(
            f"{who} needs the names of the model's outputs, which are unknown without the ONNX file.",
            hint="Give the ONNX file itself instead of its hash.",
        )
