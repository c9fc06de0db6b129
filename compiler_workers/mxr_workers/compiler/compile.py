"""Compile a model: parse with the key's shapes, quantize in the key's order, compile with the key's flags, save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .migraphx_module import (
    QUANTIZERS,
    check_backend_options,
    features,
    get_target,
    import_migraphx,
    import_numpy,
    version_of,
)
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


def compile_model(request: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Handle the request: the JSON of a key, with paths as `model` and `calibration`, and `cross`, `tuning`, `output`.

    Raises `ChildRefusal` and any exception of MIGraphX.
    """
    migraphx = import_migraphx()
    version, build = version_of(migraphx)
    report.phase("parse")
    program = parse(migraphx, request)
    target = get_target(migraphx, request)
    check_backend_options(sorted(request["options"]))
    if request["precision"] != "fp32":
        report.phase("quantise")
        quantize(migraphx, program, target, request, report)
    report.phase("compile")
    program.compile(target, **compile_flags(migraphx, request))
    report.phase("save")
    migraphx.save(program, request["output"])
    size = Path(request["output"]).stat().st_size
    report.phase("end")
    return {"migraphx": version, "build": build, "seconds": report.seconds, "size": size}


def parse(migraphx: Any, request: dict[str, Any]) -> Any:
    """Parse the model, with each input fixed to the key's dims.

    A scalar has no dims to fix and is left to the model. MIGraphX does not accept static and dynamic dims together, so
    one dynamic dim makes all inputs ranges. Source: ROCm/AMDMIGraphX, src/onnx/onnx.cpp, parse_onnx_from; for Hygon's,
    qianqing13579/MIGraphX_Dynamic, src/py/migraphx_py.cpp.
    """
    shapes = {name: dims for name, dims in request["inputs"].items() if dims}
    if not any(isinstance(dim, list) for dims in shapes.values() for dim in dims):
        return migraphx.parse_onnx(request["model"], map_input_dims=shapes)
    if hasattr(migraphx.program, "reshape"):
        # Hygon's MIGraphX compiles for the largest shape; `program.reshape` chooses a smaller one before a run.
        largest = {name: [dim[1] if isinstance(dim, list) else dim for dim in dims] for name, dims in shapes.items()}
        return migraphx.parse_onnx(request["model"], map_input_dims=largest)
    if not features(migraphx)["dynamic_dims"]:
        raise ChildRefusal(
            "permanent", "no-dynamic", "This MIGraphX does not support dynamic dims: they need MIGraphX 2.6."
        )
    dynamic_dim = migraphx.shape.dynamic_dimension
    ranges = {
        name: [
            dynamic_dim(dim, dim) if isinstance(dim, int) else dynamic_dim(dim[0], dim[1], set(dim[2])) for dim in dims
        ]
        for name, dims in shapes.items()
    }
    return migraphx.parse_onnx(request["model"], map_dyn_input_dims=ranges)


def quantize(migraphx: Any, program: Any, target: Any, request: dict[str, Any], report: ChildReport) -> None:
    """Apply each precision, in the key's order."""
    samples: list[dict[str, Any]] = []
    precisions = request["precision"].split("+")
    if {"int8", "fp8"} & set(precisions):
        samples = calibration_samples(program, request, report)
    for precision in precisions:
        quantizer = getattr(migraphx, QUANTIZERS[precision], None)
        if quantizer is None:
            more = " Only migraphx-driver supports it." if precision == "int4w" else ""
            message = f"The Python module of this MIGraphX does not support {precision}.{more}"
            raise ChildRefusal("permanent", f"no-{precision}", message)
        if precision in ("int8", "fp8"):
            quantizer(program, target, [{name: migraphx.argument(row[name]) for name in row} for row in samples])
        else:
            quantizer(program)


def compile_flags(migraphx: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `compile`. Those that an older MIGraphX lacks are passed only when requested.

    Source: ROCm/AMDMIGraphX, src/py/migraphx_py.cpp; `compile_mode`: pull 4770, test/py/test_compile_modes.py.
    """
    flags = {"offload_copy": request["offload_copy"], "fast_math": request["fast_math"]}
    if request["tuning"] == "exhaustive":
        if not features(migraphx)["exhaustive_tune"]:
            raise ChildRefusal(
                "permanent",
                "no-exhaustive",
                "This MIGraphX does not support exhaustive tuning: it needs MIGraphX 2.6.",
            )
        flags["exhaustive_tune"] = True
    if request["tuning"] == "eager":
        if not features(migraphx)["compile_mode"]:
            raise ChildRefusal("permanent", "no-eager", "This MIGraphX does not support compile modes.")
        flags["compile_mode"] = migraphx.compile_modes.eager
    return flags
