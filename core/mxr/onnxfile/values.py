"""What an ONNX file says of itself, as values."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from mxr.util.frozen import dataclass

Dim: TypeAlias = int | tuple[int, int, tuple[int, ...]]  # static, or (min, max, optimals)
LARGEST_DIM = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OnnxInput:
    """An input or output of the graph: `dims` is None when the model says nothing of its shape, () for a scalar.

    A dim is a number, the name of a symbol, or None (open, without a name). A number below 1 counts as open.
    Source: MIGraphX src/onnx/onnx_parser.cpp ("A non-positive dim_value is unspecified").
    """

    name: str
    elem_type: str
    dims: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        dims = "?" if self.dims is None else ", ".join("?" if dim is None else str(dim) for dim in self.dims)
        return f"{self.name} {self.elem_type}[{dims}]"


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """What an ONNX file says of itself. `size` is in bytes; `external` is in byte order of the UTF-8 names.

    `types`: the element types of its tensors, casts, inputs and outputs; None where the file was not walked.
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
