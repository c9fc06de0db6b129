"""Collects the facts of a program's nodes one node at a time, so that the program need not fit into memory.

Source of the operator names: MIGraphX's src/targets/gpu and src/targets/ref at the tags rocm-5.0.0 to rocm-7.2.4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from mxr.program.code_objects import CodeObjects
from mxr.program.messagepack import Binary, damaged
from mxr.program.precision import PrecisionClues
from mxr.program.shapes import Shape, read_shape
from mxr.program.source import Source

MAIN = "main"

MODULE_FIELDS = ("dynamic", "input_names", "input_shapes")
"""Fields that Hygon's MIGraphX writes beside the nodes of a module: whether the program can be reshaped, and the
largest shape of each input. Source: qianqing13579/MIGraphX_Dynamic, src/program.cpp, program::to_value."""

_LIBRARY_OF = {
    **dict.fromkeys(
        ("convolution", "quant_convolution", "convolution_backwards", "deconvolution", "miopen_fusion", "pooling"),
        "miopen",
    ),
    **dict.fromkeys(("lrn", "rnn_var_sl_last_output", "batch_norm_inference", "softmax", "logsoftmax"), "miopen"),
    **dict.fromkeys(("gemm", "quant_gemm"), "rocblas"),
    **dict.fromkeys(("hipblaslt_op", "hip_gemm"), "hipblaslt"),
}
_MADE_AT_RUN_TIME = ("gpu::dynamic_code_object_op", "gpu::precompile_op")
_BUFFERS = frozenset({"hip::hip_allocate_memory", "hip::allocate", "load", "hip::hip_allocate"})
_OUTPUT_NAME = re.compile(r".*#output(_\d+)?|output(_\d+)?")


class Nodes:
    """Collects the facts of all nodes. `source` contains the binaries of the nodes."""

    def __init__(self, source: Source, file_size: int) -> None:
        self.code_objects = CodeObjects(source, file_size)
        self.precision = PrecisionClues()
        self.operators: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.modules = 0
        self.params: dict[str, Shape] = {}
        self.copied_in: set[str] = set()
        self.copies_param = False
        self.returned: list[str] = []
        self.return_shape: Shape | None = None
        self.shapes: dict[str, Shape] = {}
        self.libraries: set[str] = set()
        self.made_at_run_time = 0
        self.literal_bytes = 0
        self.short_literals = 0
        self.debug_symbols = False
        self.on_gpu = self.on_ref = False
        self._main_fields: dict[str, object] = {}
        self._module = MAIN
        self._module_params: set[str] = set()

    def begin_module(self, name: str) -> None:
        """Begin a module: the nodes that follow belong to it."""
        self.modules += 1
        self._module = name
        self._module_params = set()

    def see_module_field(self, key: str, value: object) -> None:
        """Take a field of `MODULE_FIELDS` of the module that has begun."""
        if self._module == MAIN:
            self._main_fields[key] = value

    def largest_inputs(self) -> dict[str, Shape]:
        """The largest shapes of the inputs of a program that can be reshaped; empty for any other."""
        names, shapes = (self._main_fields.get(key) for key in ("input_names", "input_shapes"))
        if self._main_fields.get("dynamic") is not True or not isinstance(names, list) or not isinstance(shapes, list):
            return {}
        rows = [(name, read_shape(shape)) for name, shape in zip(names, shapes, strict=False)]
        return {name: shape for name, shape in rows if isinstance(name, str) and shape is not None}

    def add(self, node: object, offset: int) -> None:
        """Add a node that begins at `offset`. Raises `DamagedError` if it is not a valid node."""
        if not isinstance(node, dict):
            raise damaged("Expected a node of the program", offset)
        name, output = node.get("name"), node.get("output")
        if not isinstance(name, str) or not isinstance(output, str):
            raise damaged("A node has no name or no output", offset)
        fields = node.get("operator")
        fields = fields if isinstance(fields, dict) else {}
        shape = read_shape(node.get("shape"))
        if shape is not None:
            self._see_shape(name, output, shape)
        elif name in ("@param", "@return"):
            raise damaged(f"A node {name} has no shape", offset)
        self._see_operator(name, fields, shape)
        self.debug_symbols = self.debug_symbols or bool(node.get("debug_symbols"))
        handler = _HANDLERS.get(name)
        if handler is not None:
            handler(self, node, fields, output)

    def _see_shape(self, name: str, output: str, shape: Shape) -> None:
        if name not in _BUFFERS and not name.startswith("check_context"):
            self.types[shape.type] += 1
            self.precision.see_type(shape.type)
        if self._module == MAIN:
            self.shapes[output] = shape

    def _see_operator(self, name: str, fields: Mapping[str, object], shape: Shape | None) -> None:
        inner = fields.get("name")
        plain = inner if name.endswith("::op") and isinstance(inner, str) else name
        self.operators[plain] += 1
        space, _, last = plain.rpartition("::")
        self.precision.see_operator(last, shape.type if shape else None)
        if name.startswith("ref::"):
            self.on_ref = True
        elif name.startswith(("gpu::", "hip::", "check_context::migraphx::")):
            self.on_gpu = True
        if space == "gpu" and last in _LIBRARY_OF:
            self.libraries.add(_LIBRARY_OF[last])
        if name in _MADE_AT_RUN_TIME:
            self.made_at_run_time += 1
        if isinstance(fields.get("code_object"), Binary):
            self._code_object(fields)

    def _code_object(self, fields: Mapping[str, object]) -> None:
        binary, symbol = fields["code_object"], fields.get("symbol_name")
        symbol = symbol if isinstance(symbol, str) else ""
        if isinstance(binary, Binary):
            self.code_objects.add(binary, symbol)
        self.precision.see_kernel(symbol)
        arguments = fields.get("expected_inputs")
        for argument in arguments if isinstance(arguments, list) else []:
            shape = read_shape(argument)
            if shape is not None:
                self.precision.see_argument(shape.type)

    def _param(self, _: Mapping[str, object], fields: Mapping[str, object], output: str) -> None:
        self._module_params.add(output)
        if self._module == MAIN:
            name = fields.get("parameter")
            self.params[name if isinstance(name, str) else output] = self.shapes[output]

    def _return(self, node: Mapping[str, object], _: Mapping[str, object], output: str) -> None:
        if self._module == MAIN:
            self.returned = _ids(node)
            self.return_shape = self.shapes[output]

    def _copy_to_gpu(self, node: Mapping[str, object], _: Mapping[str, object], __: str) -> None:
        fed_by = self._module_params.intersection(_ids(node))
        self.copies_param = self.copies_param or bool(fed_by)
        self.copied_in |= fed_by

    def _literal_node(self, node: Mapping[str, object], _: Mapping[str, object], __: str) -> None:
        self._literal(node.get("literal"))

    def _literal_field(self, _: Mapping[str, object], fields: Mapping[str, object], __: str) -> None:
        self._literal(fields.get("literal"))

    def _literal(self, literal: object, depth: int = 0) -> None:
        if not isinstance(literal, dict) or depth > 8:
            return
        parts = literal.get("sub")
        for part in parts if isinstance(parts, list) else []:
            self._literal(part, depth + 1)
        data, shape = literal.get("data"), read_shape(literal.get("shape"))
        size = data.size if isinstance(data, Binary) else 0
        self.literal_bytes += size
        if shape is None:
            return
        self.precision.see_weights(shape.type)
        needed = shape.bytes_needed()
        if isinstance(data, Binary) and needed is not None and size < needed:
            self.short_literals += 1

    def inputs(self) -> dict[str, Shape]:
        """The inputs that a caller supplies: parameters of main that are neither output buffers nor scratch space."""
        return {name: shape for name, shape in self.params.items() if not self._is_buffer(name)}

    def output_buffers(self) -> dict[str, Shape]:
        """The parameters of main that the program writes to. A program compiled without offload copy has them."""
        return {name: shape for name, shape in self.params.items() if self._is_buffer(name) and "scratch" not in name}

    def _is_buffer(self, name: str) -> bool:
        if not self.on_gpu or name in self.copied_in:
            return False
        return _OUTPUT_NAME.fullmatch(name) is not None or name.endswith("scratch")

    def outputs(self) -> tuple[Shape, ...]:
        """The shapes of the returned values, in order.

        If a returned value is not a node of main, the shape of the return node is used instead.
        """
        found = [self.shapes.get(name) for name in self.returned]
        if None in found or not found:
            return (self.return_shape,) if self.return_shape is not None else tuple(self.output_buffers().values())
        return tuple(shape for shape in found if shape is not None)


def _ids(node: Mapping[str, object]) -> list[str]:
    inputs = node.get("inputs")
    return [name for name in inputs if isinstance(name, str)] if isinstance(inputs, list) else []


_HANDLERS: dict[str, Callable[[Nodes, Mapping[str, object], Mapping[str, object], str], None]] = {
    "@param": Nodes._param,
    "@return": Nodes._return,
    "@literal": Nodes._literal_node,
    "hip::hip_copy_literal": Nodes._literal_field,
    "hip::copy_to_gpu": Nodes._copy_to_gpu,
}
