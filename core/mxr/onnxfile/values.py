"""Data types for the facts of an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from mxr.util.frozen import dataclass

Dim: TypeAlias = int | tuple[int, int, tuple[int, ...]]
"""A fixed dim, or (min, max, optimals) for a dynamic one."""

MAX_DIM = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OnnxInput:
    """An input or output of the graph. `dims` is None if the model gives no shape, and () for a scalar.

    A dim is a number, the name of a symbol, or None (unknown, without a name). A number below 1 counts as unknown.
    Source: MIGraphX src/onnx/onnx_parser.cpp ("A non-positive dim_value is unspecified").
    """

    name: str
    elem_type: str
    dims: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        dims = "?" if self.dims is None else ", ".join("?" if dim is None else str(dim) for dim in self.dims)
        return f"{self.name} {self.elem_type}[{dims}]"


@dataclass(frozen=True, slots=True)
class OutputDim:
    """A dim of an output that follows from the weights: its axis, its size, and the rank of the output if it follows.

    Axis -1 is the last dim.
    """

    axis: int
    size: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """The facts of an ONNX file.

    `size` is in bytes. `external` are the external data locations, sorted by the bytes of their UTF-8 names. `types`
    are the element types of tensors, casts, inputs and outputs, and `operators` the types of all nodes, without their
    domains; None if the file was not read. `weight_dims` are dims of outputs that follow from the weights, by
    name, if they were read. `external_sizes` are the bytes that the files of `external` must have.
    """

    path: Path
    size: int
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[OnnxInput, ...]
    external: tuple[str, ...]
    opset: int | None
    ir_version: int
    producer: str
    types: frozenset[str] | None = None
    operators: frozenset[str] | None = None
    weight_dims: tuple[tuple[str, OutputDim], ...] = ()
    external_sizes: tuple[int, ...] = ()
