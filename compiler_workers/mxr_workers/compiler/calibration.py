"""The samples by which int8 and fp8 find their scales, from an .npz with one array for each input."""

from __future__ import annotations

from typing import Any

from .library import numpy
from .report import ChildRefusal, ChildReport
from .values import DTYPES, handed_dims

_DEFAULTS = "No calibration data: MIGraphX quantises with its default scales, which costs accuracy."


def samples_for(program: Any, order: dict[str, Any], report: ChildReport) -> list[dict[str, Any]]:
    """The samples as {input: array}, of the types and dims that the program has now. Raises `Refused`.

    The caller keeps the arrays: migraphx.argument only refers to their memory.
    """
    if not order["calibration"]:
        report.tell(warning=_DEFAULTS)
        return []
    with numpy().load(order["calibration"], allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    columns = {}
    for name, shape in program.get_parameter_shapes().items():
        if name not in arrays:
            raise _unfit(f"The calibration data has no input {name}.")
        columns[name] = _column(name, arrays[name], shape)
    count = max(map(len, columns.values()), default=0)
    if any(len(column) not in (1, count) for column in columns.values()):
        raise _unfit("The calibration data has more samples of one input than of another.")
    return [{name: column[at % len(column)] for name, column in columns.items()} for at in range(count)]


def _column(name: str, array: Any, shape: Any) -> list[Any]:
    """The samples in one array: one of the input's dims, or several of them, stacked or joined along the first."""
    dims, found = handed_dims(shape), list(array.shape)
    dtype = DTYPES.get(shape.type_string())
    if dtype is None:
        raise _unfit(f"Input {name} is of {shape.type_string()}, which cannot be calibrated from Python.")
    if found == dims:
        parts = [array]
    elif found[1:] == dims:
        parts = list(array)
    elif dims and found[1:] == dims[1:] and found[0] and found[0] % dims[0] == 0:
        parts = [array[at : at + dims[0]] for at in range(0, found[0], dims[0])]
    else:
        raise _unfit(f"The calibration data of {name} has the dims {found}: not one sample of {dims}, nor several.")
    return [numpy().array(part, dtype=dtype, order="C") for part in parts]


def _unfit(message: str) -> ChildRefusal:
    return ChildRefusal("permanent", "calibration", message)
