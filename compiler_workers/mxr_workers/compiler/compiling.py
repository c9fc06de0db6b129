"""The compile: parse with the key's shapes, quantise in the key's order, compile with the key's flags, save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .calibration import samples_for
from .library import QUANTISERS, features, library, target_of, version_of
from .report import ChildRefusal, ChildReport


def compile_model(order: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Do the order `{"model","inputs","precision","calibration","kind","cross","offload_copy","fast_math",
    "exhaustive","output"}`. Raises `Refused`, and whatever MIGraphX raises.
    """
    migraphx = library()
    version, build = version_of(migraphx)
    report.phase("parse")
    program = parse(migraphx, order)
    target = target_of(migraphx, order)
    if order["precision"]:
        report.phase("quantise")
        quantise(migraphx, program, target, order, report)
    report.phase("compile")
    program.compile(target, **flags(migraphx, order))
    report.phase("save")
    migraphx.save(program, order["output"])
    size = Path(order["output"]).stat().st_size
    report.phase("end")
    return {"migraphx": version, "build": build, "seconds": report.seconds, "size": size}


def parse(migraphx: Any, order: dict[str, Any]) -> Any:
    """The program of the model, with each input closed to the key's dims.

    A scalar is left to the model, having nothing to close. Static and dynamic dims cannot be given side by side, so
    that one dynamic dim makes ranges of all. Source: ROCm/AMDMIGraphX, src/onnx/onnx.cpp, parse_onnx_from.
    """
    shapes = {name: dims for name, dims in order["inputs"].items() if dims}
    if not any(isinstance(dim, list) for dims in shapes.values() for dim in dims):
        return migraphx.parse_onnx(order["model"], map_input_dims=shapes)
    if not features(migraphx)["dynamic_dims"]:
        raise ChildRefusal("permanent", "no-dynamic", "This MIGraphX has no dynamic dims: they came with 2.6.")
    kind = migraphx.shape.dynamic_dimension
    ranges = {
        name: [kind(dim, dim) if isinstance(dim, int) else kind(dim[0], dim[1], set(dim[2])) for dim in dims]
        for name, dims in shapes.items()
    }
    return migraphx.parse_onnx(order["model"], map_dyn_input_dims=ranges)


def quantise(migraphx: Any, program: Any, target: Any, order: dict[str, Any], report: ChildReport) -> None:
    """Apply each precision in the order asked."""
    samples: list[dict[str, Any]] = []
    if {"int8", "fp8"} & set(order["precision"]):
        samples = samples_for(program, order, report)
    for word in order["precision"]:
        call = getattr(migraphx, QUANTISERS[word], None)
        if call is None:
            more = " Only migraphx-driver offers it." if word == "int4w" else ""
            raise ChildRefusal("permanent", f"no-{word}", f"The Python module of this MIGraphX has no {word}.{more}")
        if word in ("int8", "fp8"):
            call(program, target, [{name: migraphx.argument(row[name]) for name in row} for row in samples])
        else:
            call(program)


def flags(migraphx: Any, order: dict[str, Any]) -> dict[str, bool]:
    """The arguments of `compile`. Exhaustive tuning is named only when asked: before 2.6 there was none."""
    found = {"offload_copy": order["offload_copy"], "fast_math": order["fast_math"]}
    if order["exhaustive"]:
        if not features(migraphx)["exhaustive_tune"]:
            raise ChildRefusal(
                "permanent", "no-exhaustive", "This MIGraphX has no exhaustive tuning: it came with 2.6."
            )
        found["exhaustive_tune"] = True
    return found
