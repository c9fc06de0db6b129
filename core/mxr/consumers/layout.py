"""What a consumer makes of an artifact in a folder: which files, in which order, and the settings that make it look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import Any

from mxr.artifact.key import Key
from mxr.artifact.qualities import Demands, Qualities
from mxr.artifact.records import Artifact
from mxr.artifact.target import FEATURES, DynamicDim, capable
from mxr.errors import Usage
from mxr.onnxfile import OnnxInput
from mxr.util.frozen import dataclass

TENSORS: Mapping[str, str] = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
"""Element types by ONNX's names, as inference servers spell them. Source: kserve/open-inference-protocol, Tensor Data
Types; those that numpy has."""


@dataclass(frozen=True, slots=True)
class LayoutFile:
    """A file to place: `name` relative to the folder, the sha256 of its bytes, and these where no cache holds them."""

    name: str
    sha256: str
    data: bytes | None = None


def written(name: str, text: str | bytes) -> LayoutFile:
    """A piece that is written, not fetched."""
    data = text.encode() if isinstance(text, str) else text
    return LayoutFile(name, sha256(data).hexdigest(), data)


@dataclass(frozen=True, slots=True)
class Layout:
    """`pieces` in the order in which they appear; the last is what the consumer's watcher acts on, and names the slot:
    a later layout with the same last name takes the place of this one.

    `path` is what a person is told (relative to the folder). `whole` are folders that appear complete or not at all.
    `rivals` are patterns of files that the consumer would read beside ours. `settings` are lines that make the consumer
    use it, `notes` sentences for people.
    """

    pieces: tuple[LayoutFile, ...]
    path: str
    settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delivery:
    """An artifact of one file on its way into a folder. `stem` is what the model is called there; `outputs` are empty
    where nobody knows them, `folder` is absolute. `model` is the ONNX file if it is on this host. `consumer_options`
    are the options that apply to one consumer only, by their names.
    """

    stem: str
    key: Key
    demands: Demands
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
        """Name, ONNX element type and static dims of each input, in the order of the model. Raises `Usage`."""
        shapes = dict(self.key.inputs)
        return tuple((each.name, each.elem_type, static(shapes[each.name])) for each in self.inputs)

    def output_dims(self) -> tuple[tuple[str, str, tuple[int | str | None, ...] | None], ...]:
        """Name, ONNX element type and dims of each output: as the program's file tells them, else as the model does,
        with symbols that an input has too in numbers.
        """
        told: list[Mapping[str, Any]] = list((self.artifact.description or {}).get("outputs") or ())
        if len(told) != len(self.outputs):
            told = [{} for _ in self.outputs]
        sizes = {
            symbol: size
            for each, (_, _, dims) in zip(self.inputs, self.input_dims(), strict=True)
            for symbol, size in zip(each.dims or (), dims, strict=False)
            if isinstance(symbol, str)
        }
        return tuple(
            (each.name, each.elem_type, _dims(row.get("dims"), each.dims, sizes))
            for each, row in zip(self.outputs, told, strict=True)
        )


def _dims(
    told: object, declared: tuple[int | str | None, ...] | None, sizes: Mapping[str, int]
) -> tuple[int | str | None, ...] | None:
    # A scalar has one element of one dim in MIGraphX's words.
    if declared == ():
        return declared
    if isinstance(told, list) and all(type(dim) is int for dim in told):
        return tuple(told)
    return declared and tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in declared)


def static(shape: tuple[int | DynamicDim, ...]) -> tuple[int, ...]:
    """The dims, when all are static. Raises `Usage`."""
    dims = tuple(dim for dim in shape if isinstance(dim, int))
    if len(dims) != len(shape):
        raise Usage("A dynamic dim has no size.", hint="Ask with --batch N, and --input NAME=DIMS of plain numbers.")
    return dims


def whole_arch(delivery: Delivery, who: str) -> str:
    """The GPU's whole name as HIP has it, such as gfx90a:sramecc+:xnack-. Raises `Usage` where nobody said it in full.

    A feature that the request leaves open is the program's.
    """
    arch = delivery.key.arch or ""
    found = full_arch(delivery.key, delivery.demands, delivery.artifact.qualities)
    if found is None:
        words = ":".join(f"{name}+" for name in FEATURES if capable(arch, name))
        raise Usage(
            f"{who} needs the GPU's full name, and neither the request nor the program says more than {arch}.",
            hint=f"Say it: --arch {arch}:{words} (with + or -), as `mxr host` shows it on the GPU host.",
        )
    return found


def full_arch(key: Key, demands: Demands, made: Qualities | None) -> str | None:
    """A GPU's whole name by what is demanded, else by what was made; None where neither says it in full."""
    found = key.arch or ""
    for name in FEATURES:
        if capable(key.arch or "", name):
            has = getattr(made, name, None)
            sign = getattr(demands, name) or (has if has != "any" else None)
            if sign is None:
                return None
            found += f":{name}{sign}"
    return found


def refuse_dynamic(key: Key, who: str) -> None:
    """Raises `Usage` when an input has a dynamic dim."""
    for name, shape in key.inputs:
        if any(isinstance(dim, DynamicDim) for dim in shape):
            raise Usage(
                f"{who} needs static shapes, and {name} has a dynamic dim.",
                hint="Ask for each size by itself: --batch N, or --input NAME=DIMS of plain numbers.",
            )


def one_batch(key: Key, who: str) -> int:
    """The one static batch size over all inputs. Raises `Usage`."""
    batches = {shape[0] for _, shape in key.inputs if shape}
    if len(batches) != 1 or not isinstance(batch := next(iter(batches)), int):
        raise Usage(f"{who} needs one static batch size over all inputs.", hint="Ask with --batch N.")
    return batch


def need_offload_copy(key: Key, who: str) -> None:
    """Raises `Usage` for a program that leaves its buffers to the caller."""
    if not key.offload_copy:
        raise Usage(f"{who} needs a program with offload_copy on.", hint="Leave --no-offload-copy out.")


def tensor_type(name: str, elem_type: str, who: str) -> str:
    """The element type as servers spell it. Raises `Usage` for one that they cannot pass on."""
    if elem_type not in TENSORS:
        raise Usage(
            f"{who} cannot pass on {name}, which has the type {elem_type}.",
            hint="Cast it inside the model to a type that numpy has, or choose another --for.",
        )
    return TENSORS[elem_type]


def need_outputs(delivery: Delivery, who: str) -> None:
    """Raises `Usage` where the names of the outputs are unknown."""
    if not delivery.outputs:
        raise Usage(
            f"{who} needs the names of the model's outputs, which its hash alone does not tell.",
            hint="Give the ONNX file itself instead of its hash.",
        )
