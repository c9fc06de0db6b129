"""Programs of Hygon's MIGraphX: one dynamic program for all smaller shapes, on the evidence of its file.

The files are built after qianqing13579/MIGraphX_Dynamic, src/program.cpp: no file of a real DCU is at hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from core.program import program_maker as maker
from onnx import TensorProto, helper

from .stack import Host

ON = ("embedded",)

GFX906 = maker.elf(0x2F | 2 << 8 | 3 << 10)
"""A code object for gfx906:sramecc+:xnack-. Source: LLVM, AMDGPUUsage, "ELF Header"."""

DCU = ("--vendor", "hygon", "--arch", "gfx906", "--rocm", "25.04", "--migraphx", "4.1", "--for", "python")


@pytest.fixture
def photo(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A model for pictures of any size, with fixed channels, which is this test's alone."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3, "H", "W"])]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", inputs, outputs)
    onnx.save(helper.make_model(graph, doc_string=request.node.nodeid), tmp_path / "photo.onnx")
    return tmp_path / "photo.onnx"


def program(folder: Path, *dims: int, dynamic: bool = True) -> Path:
    """A program for shapes up to these."""
    form = maker.shape("float", *dims)
    nodes = [
        maker.param("x", form),
        maker.node("@1", "hip::copy_to_gpu", form, ["x"]),
        maker.code_object("@2", form, GFX906, ["@1"]),
        maker.node("@3", "@return", form, ["@2"]),
    ]
    top = maker.fields(nodes, migraphx="4.1.0")
    del top["targets"], top["contexts"]
    top["modules"]["main"] |= {"dynamic": dynamic, "input_names": ["x"], "input_shapes": [form]}
    path = folder / f"{'x'.join(map(str, dims))}-{dynamic}.mxr"
    path.write_bytes(maker.pack({"target": "gpu", "offload_copy": True, "context": {}} | top))
    return path


def test_a_smaller_shape_is_served_by_the_file_that_shows_it(
    mxr: Host, host: Callable[..., Host], photo: Path, tmp_path: Path
) -> None:
    push = ("push", "--model", photo, "--rocm", "25.04", "--for", "python", "--json")
    small = mxr(*push, program(tmp_path, 2, 3, 512, 512)).json
    assert small["key"]["inputs"] == {"x": [[1, 2, []], 3, [1, 512, []], [1, 512, []]]}
    assert (small["key"]["vendor"], small["sources"]["inputs"]) == ("hygon", "reader")
    large = mxr(*push, program(tmp_path, 8, 3, 1024, 1024)).json
    other = host("other")
    for dims, wanted in (("2,3,256,256", small), ("2,3,512,512", small), ("4,3,16,16", large)):
        found = other("fetch", photo, *DCU, "--input", f"x={dims}", "--json").json
        assert found["id"] == wanted["id"], dims
        (warning,) = found["warnings"]
        assert "its file shows that it is dynamic" in warning and "program.reshape" in warning
    missed = other("fetch", photo, *DCU, "--input", "x=9,3,16,16", "--json", expect=3)
    assert missed.error["code"] == "no_such_artifact"
    exact = mxr(*push, "--input", "x=1,3,64,64", program(tmp_path, 1, 3, 64, 64, dynamic=False)).json
    found = other("fetch", photo, *DCU, "--input", "x=1,3,64,64", "--json").json
    assert (found["id"], found["warnings"]) == (exact["id"], [])
    said = mxr("inspect", program(tmp_path, 2, 3, 512, 512)).out
    assert "x float_type [2,3,512,512] and smaller" in said


def test_what_only_the_publisher_states_needs_an_allowance(mxr: Host, photo: Path, tmp_path: Path) -> None:
    """A file that does not show its inputs: ranges in its label are a claim."""
    path = program(tmp_path, 2, 3, 64, 64)
    top: dict[str, Any] = maker.fields([maker.code_object("@2", maker.shape("float", 4), GFX906)])
    top = {name: value for name, value in top.items() if name not in ("targets", "contexts")}
    path.write_bytes(
        maker.pack({"target": "gpu", "offload_copy": True, "context": {}} | top | {"migraphx_version": "4.1.0"})
    )
    ranges = ("--input", "x=1..2,3,1..64,1..64")
    mxr("push", path, "--model", photo, *DCU, *ranges)
    words = ("fetch", photo, *DCU, "--input", "x=1,3,16,16", "--json")
    mxr(*words, expect=3)
    (warning,) = mxr(*words, "--allow", "shape").json["warnings"]
    assert "as its publisher states; --allow shape accepted it" in warning


def test_a_label_that_the_file_contradicts(mxr: Host, photo: Path, tmp_path: Path) -> None:
    push = ("push", "--model", photo, *DCU, "--json")
    fixed = program(tmp_path, 2, 3, 64, 64, dynamic=False)
    assert "inputs.x" in mxr(*push, fixed, "--input", "x=1..2,3,1..64,1..64", expect=6).error["detail"]
    dynamic = program(tmp_path, 2, 3, 64, 64)
    assert "inputs.x" in mxr(*push, dynamic, "--input", "x=1..4,3,1..64,1..64", expect=6).error["detail"]


def test_amds_programs_serve_no_smaller_shape(mxr: Host, model: Path, published: dict[str, Any]) -> None:
    words = ("--arch", "gfx908:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--for", "python")
    error = mxr("fetch", model, *words, "--input", "x=2,3,32,32", "--allow", "shape", "--json", expect=3).error
    assert json.dumps(error["context"]["nearest"])
