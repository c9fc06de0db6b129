"""Calibration samples for int8 and fp8, read from an .npz file that has one array for each input."""

from __future__ import annotations

from typing import Any

from .migraphx_module import import_numpy
from .report import ChildRefusal, ChildReport
from .tensors import DTYPES, array_dims

_DEFAULT_SCALES = "No calibration data: MIGraphX quantizes with its default scales, which reduces accuracy."


def calibration_samples(program: Any, request: dict[str, Any], report: ChildReport) -> list[dict[str, Any]]:
    """The samples as {input: array}, with the program's current types and dims. Raises `ChildRefusal`.

    The caller must keep the arrays alive: migraphx.argument only refers to their memory.
    """
    if not request["calibration"]:
        report.write(warning=_DEFAULT_SCALES)
        return []
    with import_numpy().load(request["calibration"], allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    columns = {}
    for name, shape in program.get_parameter_shapes().items():
        if name not in arrays:
            raise _refusal(f"The calibration data has no array for input {name}.")
        columns[name] = _split_samples(name, arrays[name], shape)
    count = max(map(len, columns.values()), default=0)
    if any(len(column) not in (1, count) for column in columns.values()):
        raise _refusal("The calibration data has different numbers of samples for different inputs.")
    return [{name: column[at % len(column)] for name, column in columns.items()} for at in range(count)]


def _split_samples(name: str, array: Any, shape: Any) -> list[Any]:
    """Split an array into samples: one sample, samples stacked in a new first dim, or joined along the first dim."""
    dims, found = array_dims(shape), list(array.shape)
    dtype = DTYPES.get(shape.type_string())
    if dtype is None:
        raise _refusal(f"Input {name} is {shape.type_string()}: Python cannot pass calibration data of that type.")
    if found == dims:
        parts = [array]
    elif found[1:] == dims:
        parts = list(array)
    elif dims and found[1:] == dims[1:] and found[0] and found[0] % dims[0] == 0:
        parts = [array[at : at + dims[0]] for at in range(0, found[0], dims[0])]
    else:
        raise _refusal(f"The calibration data for {name} has dims {found}; expected one or more samples of {dims}.")
    return [import_numpy().array(part, dtype=dtype, order="C") for part in parts]


def _refusal(message: str) -> ChildRefusal:
    return ChildRefusal("permanent", "calibration", message)
