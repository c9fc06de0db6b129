"""The trial: a fresh process loads a saved program and runs it. And the probe: does a target still work at all?"""

from __future__ import annotations

import time
from typing import Any

from .library import library, numpy
from .report import ChildRefusal, ChildReport
from .values import DTYPES, as_array, described, generated


def verify(order: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Do the order `{"program","kind","inputs","offload_copy","seed","save"}`: the second of two runs is timed.

    `inputs` without dims takes the program's own; `save` names an .npz for the values, or is None. A program that
    wants types which Python cannot hand over is loaded and not run: `ran` is False and `unrun` names them.
    """
    migraphx, np = library(), numpy()
    report.phase("load")
    program = migraphx.load(order["program"])
    if not program.is_compiled():
        raise ChildRefusal("transient", "not-compiled", "The saved program loads as one that is not compiled.")
    shapes = program.get_parameter_shapes()
    _compare(order["inputs"], shapes)
    found: dict[str, Any] = {"inputs": {name: described(shape) for name, shape in shapes.items()}}
    found["outputs"] = [described(shape) for shape in program.get_output_shapes()]
    found["unrun"] = sorted({shape.type_string() for shape in shapes.values()} - set(DTYPES))
    if found["unrun"]:
        return dict(found, ran=False, finite=None, latency_ms=None)
    random = np.random.default_rng(order["seed"])
    values = {name: generated(np, random, shapes[name]) for name in sorted(shapes)}
    report.phase("run")
    if order["kind"] == "gpu" and not order["offload_copy"]:
        outputs, latency = _on_device(migraphx, np, program, values)
    else:
        outputs, latency = _on_host(np, program, values)
    if order["save"]:
        named = {f"in:{name}": array for name, array in values.items()}
        np.savez(order["save"], **named, **{f"out:{at}": array for at, array in enumerate(outputs)})
    finite = all(bool(np.isfinite(array).all()) for array in outputs)
    return dict(found, ran=True, finite=finite, latency_ms=round(latency, 3), ran_dims=[list(a.shape) for a in outputs])


def _compare(inputs: dict[str, Any], shapes: Any) -> None:
    """MIGraphX drops an input that nothing uses, and a scalar has one element in its words."""
    for name, dims in inputs.items():
        if name in shapes and described(shapes[name])["dims"] != (dims or [1]):
            words = f"The saved program wants {described(shapes[name])['dims']} for input {name}, not {dims}."
            raise ChildRefusal("transient", "other-inputs", words)


def _on_host(np: Any, program: Any, values: Any) -> tuple[list[Any], float]:
    """The outputs, and the milliseconds of the second run."""
    program.run(values)
    start = time.perf_counter()
    outputs = program.run(values)
    latency = (time.perf_counter() - start) * 1000
    # By place: the list that comes back refers to the program's own memory.
    return [as_array(np, outputs[at]) for at in range(len(outputs))], latency


def _on_device(migraphx: Any, np: Any, program: Any, values: Any) -> tuple[list[Any], float]:
    """As `_on_host`, for a program that takes and leaves its values on the GPU."""
    handed = {name: migraphx.to_gpu(migraphx.argument(array)) for name, array in values.items()}
    program.run(handed)
    migraphx.gpu_sync()
    start = time.perf_counter()
    outputs = program.run(handed)
    migraphx.gpu_sync()
    latency = (time.perf_counter() - start) * 1000
    return [as_array(np, migraphx.from_gpu(outputs[at])) for at in range(len(outputs))], latency


def probe(order: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Compile x + x for the target `order["kind"]`, and run it."""
    migraphx, np = library(), numpy()
    program = migraphx.program()
    module = program.get_main_module()
    x = module.add_parameter("x", migraphx.shape(type="float", lens=[64]))
    module.add_return([module.add_instruction(migraphx.op("add"), [x, x])])
    report.phase("compile")
    program.compile(migraphx.get_target(order["kind"]), offload_copy=True)
    report.phase("run")
    values = np.arange(64, dtype="float32")
    outputs, latency = _on_host(np, program, {"x": values})
    if not np.array_equal(outputs[0], values * 2):
        raise ChildRefusal(
            "hang", "wrong-sum", f"The {order['kind']} target adds wrongly: its device cannot be trusted."
        )
    return {"kind": order["kind"], "latency_ms": round(latency, 3)}
