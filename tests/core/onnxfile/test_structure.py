"""The digest of a graph without its weights: which changes keep it, which change it, and how much is read."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st
from onnx import external_data_helper, helper
from paths import DATA

from mxr.errors import DamagedError
from mxr.onnxfile.protobuf import SIZE, MalformedProtobuf, Window, fields
from mxr.onnxfile.reader import structure_of, walk_model

MODELS = DATA / "models"
FLOAT = onnx.TensorProto.FLOAT


def tensor(name: str, values: list[float]) -> onnx.TensorProto:
    return helper.make_tensor(name, FLOAT, [len(values)], values)


def model(values: list[float], inner: list[float]) -> onnx.ModelProto:
    """A model with weights in an initializer, in a Constant, in a branch of an If and in a function."""
    end = helper.make_tensor_value_info("b", FLOAT, [4])
    constant = helper.make_node("Constant", [], ["b"], value=tensor("k", inner))
    branch = helper.make_graph([constant], "branch", [], [end])
    nodes = [
        helper.make_node("Add", ["x", "w"], ["s"], name="sum"),
        helper.make_node("If", ["c"], ["t"], then_branch=branch, else_branch=branch),
        helper.make_node("Elu", ["s"], ["e"], alpha=0.5),
        helper.make_node("Mine", ["e", "t"], ["y"], domain="own"),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["N", 4]), helper.make_tensor_value_info("c", 9, [])]
    outputs = [helper.make_tensor_value_info("y", FLOAT, ["N", 4])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = [
        helper.make_node("Constant", [], ["f"], value=tensor("f", inner)),
        helper.make_node("Sum", ["p", "q", "f"], ["r"]),
    ]
    own = helper.make_function("own", "Mine", ["p", "q"], ["r"], body, opsets[:1])
    graph = helper.make_graph(nodes, "g", inputs, outputs, [tensor("w", values)])
    return helper.make_model(graph, opset_imports=opsets, functions=[own], ir_version=8)


def digest(made: onnx.ModelProto) -> str:
    return structure_of(made.SerializeToString())


FOUR = st.lists(st.floats(width=32, allow_nan=False), min_size=4, max_size=4)


@given(FOUR, FOUR)
def test_other_weights_keep_the_digest(values: list[float], inner: list[float]) -> None:
    assert digest(model(values, inner)) == digest(model([1.0, 2, 3, 4], [0.0] * 4))


def test_external_data_names_and_documentation_keep_the_digest() -> None:
    plain = model([1.0, 2, 3, 4], [0.0] * 4)
    made = copy.deepcopy(plain)
    weight = made.graph.initializer[0]
    weight.raw_data = bytes(16)
    weight.ClearField("float_data")
    external_data_helper.set_external_data(weight, "weights.bin", 4096, 16)
    made.doc_string, made.producer_name, made.graph.name = "fine-tuned", "someone", "main"
    made.graph.node[0].name, made.graph.node[0].doc_string = "other", "line 3"
    made.graph.doc_string, made.graph.input[0].doc_string = "a graph", "pixels"
    helper.set_model_props(made, {"epoch": "17"})
    assert digest(made) == digest(plain)


def _attribute(made: onnx.ModelProto) -> None:
    made.graph.node[2].attribute[0].f = 0.25


def _inner(made: onnx.ModelProto) -> None:
    made.graph.node[1].attribute[0].g.node[0].attribute[0].t.dims[0] = 5


CHANGES: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "an operator": lambda made: setattr(made.graph.node[2], "op_type", "Selu"),
    "an attribute": _attribute,
    "a domain": lambda made: setattr(made.graph.node[2], "domain", "com.other"),
    "an edge": lambda made: made.graph.node[0].input.reverse(),
    "a node more": lambda made: made.graph.node.add(op_type="Relu", input=["y"], output=["z"]),
    "a node less": lambda made: made.graph.node.pop(),
    "dims of a weight": lambda made: made.graph.initializer[0].dims.append(1),
    "the type of a weight": lambda made: setattr(made.graph.initializer[0], "data_type", onnx.TensorProto.FLOAT16),
    "the name of a weight": lambda made: setattr(made.graph.initializer[0], "name", "v"),
    "dims of an input": lambda made: setattr(made.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 8),
    "an output": lambda made: setattr(made.graph.output[0], "name", "z"),
    "a weight in a branch": _inner,
    "an opset": lambda made: setattr(made.opset_import[0], "version", 18),
    "a function": lambda made: setattr(made.functions[0].node[1], "op_type", "Max"),
}


@for_each(CHANGES.values())
def test_another_structure_changes_the_digest(change: Callable[[onnx.ModelProto], Any]) -> None:
    plain = model([1.0, 2, 3, 4], [0.0] * 4)
    made = copy.deepcopy(plain)
    change(made)
    assert digest(made) != digest(plain)


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.name)
def test_a_window_contains_the_bytes_of_the_file(path: Path) -> None:
    data = path.read_bytes()
    window = Window(len(data), lambda offset, length: data[offset : offset + length])
    assert structure_of(window) == structure_of(data)
    assert walk_model(path, window) == walk_model(path, data)


def test_weights_are_not_read() -> None:
    made = model([1.0, 2, 3, 4], [0.0] * 4)
    made.graph.initializer.append(onnx.TensorProto(name="large", data_type=1, dims=[8 << 20], raw_data=bytes(32 << 20)))
    data = made.SerializeToString()
    read = [0]

    def read_at(offset: int, length: int) -> bytes:
        read[0] += length
        return data[offset : offset + length]

    assert structure_of(Window(len(data), read_at)) == structure_of(data)
    assert read[0] <= 4 * SIZE


def test_a_window_keeps_a_limited_number_of_bytes() -> None:
    data = bytes(range(256)) * (SIZE // 256) * 70
    window = Window(len(data), lambda offset, length: data[offset : offset + length])
    places = [*range(0, len(data), SIZE // 2 + 1), 0, len(data) - 1, SIZE - 5]
    assert [window[at : at + 9] for at in places] == [data[at : at + 9] for at in places]
    assert window[3 : 3 * SIZE] == data[3 : 3 * SIZE]
    assert window[5:9] == data[5:9] and window[len(data) - 2 : len(data) + 5] == data[-2:]


@given(st.binary(max_size=200), st.integers(1, 40))
def test_fields_in_windows_are_those_in_bytes(data: bytes, size: int) -> None:
    window = Window(len(data), lambda offset, length: data[offset : offset + length], size)
    assert _fields_or_error(window) == _fields_or_error(data)


def _fields_or_error(data: bytes | Window) -> list[object]:
    found: list[object] = []
    try:
        found.extend(fields(data, 0, len(data)))
    except MalformedProtobuf as broken:
        found.append(str(broken))
    return found


@given(st.binary(max_size=200))
def test_foreign_bytes_are_damaged_or_have_a_digest(data: bytes) -> None:
    _digest_or_damaged(data)


def _digest_or_damaged(data: bytes) -> None:
    try:
        found = structure_of(data)
    except DamagedError:
        return
    assert len(found) == 64


@given(st.integers(0, 2**32), st.integers(0, 255))
def test_a_changed_byte_is_a_model_or_damaged(place: int, byte: int) -> None:
    data = bytearray(model([1.0, 2, 3, 4], [0.0] * 4).SerializeToString())
    data[place % len(data)] = byte
    _digest_or_damaged(bytes(data))


def test_deeply_nested_graphs_are_rejected() -> None:
    made = b""
    for _ in range(80):
        attribute = b"\x32" + _sized(made)
        node = b"\x2a" + _sized(attribute)
        made = b"\x0a" + _sized(node)
    with pytest.raises(DamagedError, match="deep"):
        structure_of(b"\x3a" + _sized(made))


def _sized(data: bytes) -> bytes:
    size, found = len(data), b""
    while size > 127:
        found += bytes([size & 127 | 128])
        size >>= 7
    return found + bytes([size]) + data
