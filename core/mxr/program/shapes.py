"""Reads the shapes in a program: number type, fixed or dynamic dimensions, and size in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from mxr.artifact.target import DynamicDim, dim_to_json
from mxr.program.container import Folding
from mxr.program.number_types import BYTES, static_shape

_MAX_DIMS = 64

Dim = int | DynamicDim | None
"""A fixed dimension, a dynamic one, or None for one that the file gives only as a symbol."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of one value. `type` is MIGraphX's name of the number type, such as `half_type`.

    `strides` are in elements. `parts` are the shapes of the elements of a tuple.
    """

    type: str
    dims: tuple[Dim, ...]
    strides: tuple[int, ...] = ()
    parts: tuple[Shape, ...] = ()

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension of the shape or of one of its parts is dynamic."""
        return any(not isinstance(dim, int) for dim in self.dims) or any(part.is_dynamic for part in self.parts)

    def bytes_needed(self) -> int | None:
        """Return the size of a buffer of this shape in bytes; None if it is unknown."""
        width = BYTES.get(self.type)
        if width is None or self.is_dynamic:
            return None
        lens = [dim for dim in self.dims if isinstance(dim, int)]
        if 0 in lens:
            return 0
        if len(self.strides) != len(lens):
            return None
        return width * (1 + sum((length - 1) * stride for length, stride in zip(lens, self.strides, strict=True)))

    def to_json(self) -> dict[str, object]:
        """Return `{"type","dims"}`, with `"parts"` for a tuple."""
        dims = [None if dim is None else dim_to_json(dim) for dim in self.dims]
        document: dict[str, object] = {"type": self.type, "dims": dims}
        if self.parts:
            document["parts"] = [part.to_json() for part in self.parts]
        return document


def read_shape(value: object) -> Shape | None:
    """Return the shape that a map of a program describes; None if it describes none."""
    return _read_shape(value, depth=0)


def _read_shape(value: object, depth: int) -> Shape | None:
    if isinstance(value, Shape):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or depth > 8:
        return None
    open_dims = value.get("dynamic_dimensions")
    dims = _read_dims(open_dims) if open_dims else _read_lens(value.get("lens"))
    strides = _read_lens(value.get("strides"))
    parts = [_read_shape(part, depth + 1) for part in _items(value.get("sub_shapes"))]
    if dims is None or strides is None:
        return None
    return Shape(value["type"], dims, strides, tuple(part for part in parts if part is not None))


def _items(value: object) -> list[object]:
    return value[:_MAX_DIMS] if isinstance(value, list) else []


def _read_lens(value: object) -> tuple[int, ...] | None:
    if value is None or value == {}:
        return ()
    if not isinstance(value, list) or len(value) > _MAX_DIMS:
        return None
    lens = tuple(number for number in value if _is_size(number))
    return lens if len(lens) == len(value) else None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _read_dims(value: object) -> tuple[Dim, ...] | None:
    if not isinstance(value, list) or len(value) > _MAX_DIMS or not all(isinstance(dim, dict) for dim in value):
        return None
    return tuple(_read_dim(dim) for dim in value)


def _read_dim(dim: dict[str, object]) -> Dim:
    """A dimension as any release writes it: {min,max,opt}, {min,max,optimals} or, from file version 8, {range,...}."""
    bounds = dim.get("range") if "range" in dim else dim
    if not isinstance(bounds, dict):
        return None
    least, most = bounds.get("min"), bounds.get("max")
    if not isinstance(least, int) or not isinstance(most, int) or not (_is_size(least) and _is_size(most)):
        return None
    if least == most:
        return least
    wanted = dim.get("optimals", [dim.get("opt")])
    optimals = {number for number in _items(wanted) if isinstance(number, int) and _is_size(number) and number}
    return DynamicDim(least, most, tuple(sorted(optimals)))


def shape_folding() -> Folding:
    """Return the folding with which a walker builds each distinct static shape only once."""
    return Folding(static_shape(), lambda value: read_shape(value) or value)
