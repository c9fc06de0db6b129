"""Run by an interpreter that can import migraphx: compiles, saves and loads what it is told, and tells what it knows.

One order a line on standard input, one answer a line on standard output, both JSON. An order is `{"make": ORDER}`
(see `make`) or `{"load": PATH, "format": FORMAT}`; an answer is `{"answer": ...}` or `{"error": TEXT}`.
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
    """As `mxr inspect --json` writes them."""
    if not shape.dynamic():
        return list(shape.lens())
    ranges = [(each.min, each.max, sorted(each.optimals)) for each in shape.dyn_dims()]
    return [least if least == most else [least, most, optimals] for least, most, optimals in ranges]


def rows(shape) -> dict:
    """A shape's type and dims."""
    return {"type": shape.type_string(), "dims": dims(shape)}


def told(program) -> dict:
    """All that the library tells of a program; `text` is what it prints."""
    return {
        "version": migraphx.__version__,
        "compiled": program.is_compiled(),
        "inputs": {name: rows(shape) for name, shape in program.get_parameter_shapes().items()},
        "outputs": [rows(shape) for shape in program.get_output_shapes()],
        "text": str(program),
    }


def open_dim(least, most, optimals):
    """A dynamic dimension."""
    return migraphx.shape.dynamic_dimension(least, most, set(optimals))


def make(order: dict) -> dict:
    """Parse a model, reduce its precision, compile it for `ref` unless told otherwise, save it: what the library says.

    `parse` holds arguments of parse_onnx; in them `{"open": [min, max, optimals]}` is a dynamic dimension.
    """
    program = migraphx.parse_onnx(order["model"], **opened(order.get("parse", {})))
    for precision in order.get("precision", []):
        QUANTIZE[precision](program)
    if order.get("compile", True):
        flags = {name: order[name] for name in ("offload_copy", "fast_math", "exhaustive_tune") if name in order}
        program.compile(migraphx.get_target("ref"), **flags)
    migraphx.save(program, order["path"], format=order.get("format", "msgpack"))
    return told(program)


def opened(value):
    """`value` with the library's own dynamic dimensions in it."""
    if isinstance(value, list):
        return [opened(each) for each in value]
    if isinstance(value, dict):
        return open_dim(*value["open"]) if "open" in value else {name: opened(each) for name, each in value.items()}
    return value


def main() -> None:
    """Answer orders until the input ends. What the library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "make" in order:
                answer = {"answer": make(order["make"])}
            else:
                answer = {"answer": told(migraphx.load(order["load"], format=order.get("format", "msgpack")))}
        except Exception as error:  # whatever the library raises is an answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
