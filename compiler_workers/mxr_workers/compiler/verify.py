"""Verify a saved program by loading and running it in a fresh process; probe whether a target works."""

from __future__ import annotations

import time
from typing import Any

from .migraphx_module import import_migraphx, import_numpy
from .report import ChildRefusal, ChildReport
from .tensors import DTYPES, output_array, random_input, shape_to_json


def verify(request: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Handle the request `{"program","kind","inputs","offload_copy","seed","save"}`: run twice, time the second run.

    `inputs` without dims uses the program's own dims; `save` is the path of an .npz for inputs and outputs, or None. A
    program with input types that Python cannot pass is loaded but not run: `ran` is False and `unrun` lists the types.
    """
    migraphx, np = import_migraphx(), import_numpy()
    report.phase("load")
    program = migraphx.load(request["program"])
    if not program.is_compiled():
        raise ChildRefusal("transient", "not-compiled", "The saved program loads, but is not compiled.")
    shapes = program.get_parameter_shapes()
    _check_inputs(request["inputs"], shapes, largest=hasattr(program, "reshape"))
    found: dict[str, Any] = {"inputs": {name: shape_to_json(shape) for name, shape in shapes.items()}}
    found["outputs"] = [shape_to_json(shape) for shape in program.get_output_shapes()]
    found["unrun"] = sorted({shape.type_string() for shape in shapes.values()} - set(DTYPES))
    if found["unrun"]:
        return dict(found, ran=False, finite=None, latency_ms=None)
    random = np.random.default_rng(request["seed"])
    inputs = {name: random_input(np, random, shapes[name]) for name in sorted(shapes)}
    report.phase("run")
    if request["kind"] == "gpu" and not request["offload_copy"]:
        outputs, latency = _run_on_device(migraphx, np, program, inputs)
    else:
        outputs, latency = _run_on_host(np, program, inputs)
    if request["save"]:
        named = {f"in:{name}": array for name, array in inputs.items()}
        np.savez(request["save"], **named, **{f"out:{at}": array for at, array in enumerate(outputs)})
    finite = all(bool(np.isfinite(array).all()) for array in outputs)
    return dict(found, ran=True, finite=finite, latency_ms=round(latency, 3), ran_dims=[list(a.shape) for a in outputs])


def _check_inputs(inputs: dict[str, Any], shapes: Any, *, largest: bool) -> None:
    """Raise `ChildRefusal` where the program's inputs are not the key's.

    MIGraphX drops an unused input, and reports a scalar as one element. Hygon's reports the largest dims.
    """
    for name, stated in inputs.items():
        dims = [dim[1] if largest and isinstance(dim, list) else dim for dim in stated]
        if name in shapes and shape_to_json(shapes[name])["dims"] != (dims or [1]):
            message = (
                f"Input {name} of the saved program has dims {shape_to_json(shapes[name])['dims']}, expected {dims}."
            )
            raise ChildRefusal("transient", "other-inputs", message)


def _run_on_host(np: Any, program: Any, inputs: Any) -> tuple[list[Any], float]:
    """Run twice; return the outputs and the milliseconds of the second run."""
    program.run(inputs)
    start = time.perf_counter()
    outputs = program.run(inputs)
    latency = (time.perf_counter() - start) * 1000
    # Indexed, not iterated: the returned list refers to memory of the program.
    return [output_array(np, outputs[at]) for at in range(len(outputs))], latency


def _run_on_device(migraphx: Any, np: Any, program: Any, inputs: Any) -> tuple[list[Any], float]:
    """Like `_run_on_host`, for a program whose inputs and outputs are in GPU memory."""
    arguments = {name: migraphx.to_gpu(migraphx.argument(array)) for name, array in inputs.items()}
    program.run(arguments)
    migraphx.gpu_sync()
    start = time.perf_counter()
    outputs = program.run(arguments)
    migraphx.gpu_sync()
    latency = (time.perf_counter() - start) * 1000
    return [output_array(np, migraphx.from_gpu(outputs[at])) for at in range(len(outputs))], latency


def probe(request: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Compile x + x for the target `request["kind"]`, run it, and check the result."""
    migraphx, np = import_migraphx(), import_numpy()
    program = migraphx.program()
    module = program.get_main_module()
    x = module.add_parameter("x", migraphx.shape(type="float", lens=[64]))
    module.add_return([module.add_instruction(migraphx.op("add"), [x, x])])
    report.phase("compile")
    program.compile(migraphx.get_target(request["kind"]), offload_copy=True)
    report.phase("run")
    values = np.arange(64, dtype="float32")
    outputs, latency = _run_on_host(np, program, {"x": values})
    if not np.array_equal(outputs[0], values * 2):
        raise ChildRefusal(
            "hang",
            "wrong-sum",
            f"The {request['kind']} target computed a wrong sum: its device does not work correctly.",
        )
    return {"kind": request["kind"], "latency_ms": round(latency, 3)}
