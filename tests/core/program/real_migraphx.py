"""Compiles, saves, loads and describes programs on request. Runs in an interpreter that can import migraphx.

Each line on standard input is an order, each line on standard output an answer, both JSON. An order is
`{"make": ORDER}` (see `make`) or `{"load": PATH, "format": FORMAT}`; an answer is `{"answer": ...}` or
`{"error": TEXT}`.
"""

from __future__ import annotations

import json
import os
import sys

import migraphx

QUANTIZE = {
    "fp16": lambda program: migraphx.quantize_fp16(program),
    "bf16": lambda program: migraphx.quantize_bf16(program),
    "int8": lambda program: migraphx.quantize_int8(program, migraphx.get_target("ref"), []),
    "fp8": lambda program: migraphx.quantize_fp8(program, migraphx.get_target("ref"), []),
}


def dims(shape) -> list:
    """The dimensions in the form of `mxr inspect --json`."""
    if not shape.dynamic():
        return list(shape.lens())
    ranges = [(each.min, each.max, sorted(each.optimals)) for each in shape.dyn_dims()]
    return [least if least == most else [least, most, optimals] for least, most, optimals in ranges]


def rows(shape) -> dict:
    """The type and the dimensions of a shape."""
    return {"type": shape.type_string(), "dims": dims(shape)}


def facts(program) -> dict:
    """All facts that the library reports about a program; `text` is its printed form."""
    return {
        "version": migraphx.__version__,
        "compiled": program.is_compiled(),
        "inputs": {name: rows(shape) for name, shape in program.get_parameter_shapes().items()},
        "outputs": [rows(shape) for shape in program.get_output_shapes()],
        "text": str(program),
    }


def open_dim(least, most, optimals):
    """Return a dynamic dimension."""
    return migraphx.shape.dynamic_dimension(least, most, set(optimals))


def make(order: dict) -> dict:
    """Parse a model, reduce its precision, compile it for `ref` (unless `compile` is false) and save it; return facts.

    `parse` contains arguments of parse_onnx. In them, `{"open": [min, max, optimals]}` is a dynamic dimension.
    """
    program = migraphx.parse_onnx(order["model"], **opened(order.get("parse", {})))
    for precision in order.get("precision", []):
        QUANTIZE[precision](program)
    if order.get("compile", True):
        flags = {name: order[name] for name in ("offload_copy", "fast_math", "exhaustive_tune") if name in order}
        program.compile(migraphx.get_target("ref"), **flags)
    migraphx.save(program, order["path"], format=order.get("format", "msgpack"))
    return facts(program)


def opened(value):
    """Return `value` with dynamic dimensions of the library."""
    if isinstance(value, list):
        return [opened(each) for each in value]
    if isinstance(value, dict):
        return open_dim(*value["open"]) if "open" in value else {name: opened(each) for name, each in value.items()}
    return value


def main() -> None:
    """Answer orders until the input ends. The output of the library goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "make" in order:
                answer = {"answer": make(order["make"])}
            else:
                answer = {"answer": facts(migraphx.load(order["load"], format=order.get("format", "msgpack")))}
        except Exception as error:  # every error of the library is an answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
