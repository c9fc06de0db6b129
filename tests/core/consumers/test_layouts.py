"""The layout of each consumer: names, order, contents and settings, checked against its public source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx.checker
import pytest
import tomllib
from google.protobuf import text_format
from harness.rows import for_each
from strategies import GPU

from mxr import consumers
from mxr.artifact.attributes import Attributes, Constraints
from mxr.artifact.key import Key
from mxr.artifact.target import DynamicDim
from mxr.consumers import kserve
from mxr.consumers.layout import Layout
from mxr.errors import NotAllowedError, UsageError
from mxr.onnxfile import OnnxInput
from mxr.settings import KSERVE_CHOICES

from . import configs
from .parts import BATCH_64, FLAGS_OFF, delivery

FOLDER = Path("/models")


def lay_out(name: str, key: Key, **said: Any) -> Layout:
    found = consumers.find_consumer(name)
    found.check(said.get("stem", "m"), key)
    assert found.lay_out is not None
    return found.lay_out(delivery(FOLDER, key, **said))


def text(layout: Layout) -> str:
    data = layout.pieces[-1].data
    assert data is not None
    return data.decode()


# (consumer, key, names in order, text in the settings, source)
TABLE: list[tuple[str, Key, list[str], str, str]] = [
    ("amdinfer", GPU, ["m_b8.mxr"], "/models/m.onnx", "Xilinx/inference-server, workers/migraphx.cpp"),
    (
        "amdinfer-repo",
        BATCH_64,
        ["m/1/m_b64.mxr", "m/config.toml"],
        "--model-repository=/models",
        "Xilinx/inference-server, core/model_repository.cpp: the watcher acts when a TOML file is added",
    ),
    ("kserve", BATCH_64, ["m/1/m_b64.mxr", "m/config.toml"], "--model-repository=/models", "kserve: /mnt/models"),
    (
        "triton",
        GPU,
        ["m/V/m.mxr", "m/V/model.py", "m/config.pbtxt"],
        "tritonserver --model-repository=/models",
        "triton-inference-server/server, model_repository.md",
    ),
    (
        "epcontext",
        FLAGS_OFF,
        ["m_P.mxr", "m_ctx.onnx"],
        "MIGraphXExecutionProvider",
        "onnxruntime-ep-amdgpu: path beside the model",
    ),
]


@pytest.mark.parametrize(("name", "key", "names", "said", "source"), TABLE, ids=[row[0] for row in TABLE])
def test_names_in_order(name: str, key: Key, names: list[str], said: str, source: str) -> None:
    made = delivery(FOLDER, key, attributes=Attributes(sramecc="+", xnack="-"))
    found = lay_out(name, key, attributes=Attributes(sramecc="+", xnack="-"))
    version = str(int(made.artifact.id[:8], 16) + 1)
    assert [each.name for each in found.pieces] == [
        each.replace("V", version).replace("P", made.program[:12]) for each in names
    ]
    assert found.pieces[0].sha256 == made.program
    assert any(said in line for line in found.settings)


def test_amdinfer_notes_old_versions_that_truncate_dotted_names() -> None:
    """Source: Xilinx/inference-server, commit 9cd59190 (v0.4.0)."""
    assert "0.4.0" in lay_out("amdinfer", GPU, stem="resnet50-v2.7").notes[0]
    assert lay_out("amdinfer", GPU).notes == ()


def test_amdinfers_configuration() -> None:
    """Source: Xilinx/inference-server, docs/model_repository.rst; without `id` it loads an arbitrary file of `1/`."""
    stem = 'a "b" \\ é'
    found = tomllib.loads(text(lay_out("amdinfer-repo", BATCH_64, stem=stem)))
    assert found == {
        "name": stem,
        "platform": "migraphx_mxr",
        "id": f"{stem}.onnx",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [3, 224, 224]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1000]}],
    }


def test_an_output_of_unknown_dims_is_open() -> None:
    found = tomllib.loads(
        text(lay_out("amdinfer-repo", BATCH_64, described_outputs=[], outputs=open_outputs("N", "M", None, 4)))
    )
    assert found["outputs"][0]["shape"] == [-1, -1, 4]


def open_outputs(*dims: int | str | None) -> tuple[OnnxInput, ...]:
    return (OnnxInput("y", "float32", dims),)


def test_tritons_configuration() -> None:
    made = delivery(FOLDER, GPU)
    found = configs.read(text(lay_out("triton", GPU)))
    version = str(int(made.artifact.id[:8], 16) + 1)
    assert found["version_policy"] == {"specific": {"versions": [version]}}
    assert (found["name"], found["backend"], found["max_batch_size"]) == ("m", "python", "8")
    assert found["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": ["3", "224", "224"]}]
    assert found["output"] == [{"name": "y", "data_type": "TYPE_FP32", "dims": ["1000"]}]
    assert "dynamic_batching" in found
    parameters = {"program": {"string_value": "m.mxr"}, "mxr_artifact": {"string_value": made.artifact.id}}
    assert found["parameters"] == parameters


CLOSED = (OnnxInput("x", "float32", (8, 3, 224, 224)),)
UNBATCHED: list[dict[str, Any]] = [
    {"inputs": CLOSED},
    {"outputs": open_outputs(1, 1000), "described_outputs": [{"dims": [1, 1000]}]},
    {"described_outputs": [{"dims": [16, 1000]}]},
    {"described_outputs": [], "outputs": open_outputs("M", 1000)},
]


@pytest.mark.parametrize(
    "said", UNBATCHED, ids=["closed in the model", "an output without a batch", "another batch", "open"]
)
def test_triton_batches_only_where_every_first_dim_is_the_batch(said: dict[str, Any]) -> None:
    layout = lay_out("triton", GPU, **said)
    found = configs.read(text(layout))
    assert (found["max_batch_size"], found["input"][0]["dims"]) == ("0", ["8", "3", "224", "224"])
    assert "dynamic_batching" not in found and "batch" in layout.notes[0]


def test_triton_gets_a_tensor_whose_only_dim_is_the_batch() -> None:
    key = replace(GPU, inputs=(("x", (8,)),))
    found = configs.read(text(lay_out("triton", key, inputs=(OnnxInput("x", "int64", ("N",)),))))
    assert found["input"] == [{"name": "x", "data_type": "TYPE_INT64", "dims": ["1"], "reshape": {"shape": []}}]


def test_the_text_format_is_checked_by_a_strict_parser() -> None:
    with pytest.raises(text_format.ParseError):
        configs.read("max_batch_size: eight")


DYNAMIC = (("x", (DynamicDim(1, 8), 3, 224, 224)),)
REFUSED: list[tuple[str, Key, str, str]] = [
    ("amdinfer-repo", GPU, "64", "--batch 64"),
    ("amdinfer-repo", replace(BATCH_64, offload_copy=False), "offload_copy on", "--no-offload-copy"),
    ("amdinfer-repo", replace(BATCH_64, inputs=(("x", (64, DynamicDim(1, 8))),)), "dynamic dim", "--input"),
    ("kserve", GPU, "64", "--batch 64"),
    ("triton", replace(GPU, offload_copy=False), "offload_copy on", "--no-offload-copy"),
    ("triton", replace(GPU, inputs=DYNAMIC), "dynamic dim", "--batch N"),
    ("triton", replace(GPU, inputs=(("x", ()),)), "scalar", "dim of size 1"),
    ("epcontext", replace(FLAGS_OFF, offload_copy=True), "offload_copy off", "--offload-copy"),
    ("epcontext", replace(FLAGS_OFF, inputs=DYNAMIC), "dynamic dim", "--batch N"),
    ("epcontext", replace(FLAGS_OFF, kind="ref"), "only GPU programs", "--kind ref"),
]


@for_each(REFUSED)
def test_keys_that_a_consumer_cannot_use_are_refused_early(name: str, key: Key, said: str, hint: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        consumers.find_consumer(name).check("m", key)
    assert hint in caught.value.hint


@pytest.mark.parametrize("name", ["amdinfer-repo", "triton", "epcontext"])
def test_a_layout_with_outputs_needs_their_names(name: str) -> None:
    key = {"amdinfer-repo": BATCH_64, "triton": GPU, "epcontext": FLAGS_OFF}[name]
    with pytest.raises(UsageError, match="names of the model's outputs") as caught:
        lay_out(name, key, outputs=())
    assert "ONNX file" in caught.value.hint


@pytest.mark.parametrize(("name", "key"), [("amdinfer-repo", BATCH_64), ("triton", GPU)])
def test_types_that_numpy_lacks(name: str, key: Key) -> None:
    with pytest.raises(UsageError, match="element type bfloat16 of x"):
        lay_out(name, key, inputs=(OnnxInput("x", "bfloat16", ("N", 3, 224, 224)),))


def context(layout: Layout) -> tuple[onnx.ModelProto, Mapping[str, Any]]:
    model = onnx.load_model_from_string(layout.pieces[-1].data or b"")
    node = model.graph.node[0]
    return model, {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}


def test_onnx_reads_an_epcontext_model() -> None:
    """Source: onnxruntime/onnxruntime-ep-amdgpu, the reader and writer of EPContext; onnxruntime.ai, EP Context Design:
    `embed_mode` 0 is a path, relative and without `..`.
    """
    attributes = Attributes(sramecc="+", xnack="-", migraphx_patch="2.15.1")
    layout = lay_out("epcontext", FLAGS_OFF, attributes=attributes)
    model, attributes = context(layout)
    onnx.checker.check_model(model)
    node = model.graph.node[0]
    assert (node.op_type, node.domain, list(node.input), list(node.output)) == (
        "EPContext",
        "com.microsoft",
        ["x"],
        ["y"],
    )
    assert {each.domain: each.version for each in model.opset_import} == {"": 17, "com.microsoft": 1}
    assert attributes == {
        "embed_mode": 0,
        "ep_cache_context": layout.pieces[0].name.encode(),
        "main_context": 1,
        "source": b"MIGraphXExecutionProvider",
        "hardware_architecture": b"gfx90a:sramecc+:xnack-",
        "ep_sdk_version": b"2.15.1",
        "onnx_model_filename": b"m.onnx",
        "partition_name": b"MIGraphXExecutionProvider_0",
    }
    tensor = model.graph.input[0].type.tensor_type
    assert tensor.elem_type == onnx.TensorProto.FLOAT
    assert [dim.dim_value for dim in tensor.shape.dim] == [8, 3, 224, 224]
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == [8, 1000]


def test_open_dims_and_scalars_and_long_names_in_an_epcontext_model() -> None:
    outputs = (OnnxInput("é" * 90, "float16", ("N", None, 2**40)), OnnxInput("s", "int64", ()))
    model, _ = context(
        lay_out(
            "epcontext", FLAGS_OFF, attributes=Attributes(sramecc="+", xnack="-"), outputs=outputs, described_outputs=[]
        )
    )
    onnx.checker.check_model(model)
    first, second = model.graph.output
    dims = first.type.tensor_type.shape.dim
    assert dims[0].dim_value == 8, "the batch of the input that has this symbol too"
    assert (first.name, [dims[0].dim_param, dims[1].WhichOneof("value"), dims[2].dim_value]) == (
        "é" * 90,
        ["", None, 2**40],
    )
    assert second.type.tensor_type.HasField("shape") and not second.type.tensor_type.shape.dim


@pytest.mark.parametrize(
    ("arch", "has", "asked", "device"),
    [
        ("gfx942", Attributes(sramecc="+", xnack="-"), Constraints(), "gfx942:sramecc+:xnack-"),
        ("gfx942", Attributes(), Constraints(sramecc="+", xnack="-"), "gfx942:sramecc+:xnack-"),
        ("gfx942", Attributes(xnack="-"), Constraints(sramecc="-"), "gfx942:sramecc-:xnack-"),
        ("gfx1100", Attributes(), Constraints(), "gfx1100"),
        ("gfx942", Attributes(xnack="-"), Constraints(), None),
    ],
)
def test_an_epcontext_model_has_the_full_name_of_the_device(
    arch: str, has: Attributes, asked: Constraints, device: str | None
) -> None:
    """The provider compares it with HIP's gcnArchName exactly."""
    key = replace(FLAGS_OFF, arch=arch)
    if device is None:
        with pytest.raises(UsageError, match="full name") as caught:
            lay_out("epcontext", key, attributes=has, constraints=asked)
        assert "--arch gfx942:sramecc+:xnack+" in caught.value.hint
        return
    _, attributes = context(lay_out("epcontext", key, attributes=has, constraints=asked))
    assert attributes["hardware_architecture"].decode() == device


@pytest.mark.parametrize(
    ("key", "flags"), [(GPU, " --enable-offload-copy"), (FLAGS_OFF, ""), (replace(FLAGS_OFF, kind="ref"), " --ref")]
)
def test_the_drivers_command_line(key: Key, flags: str) -> None:
    """Source: ROCm/AMDMIGraphX issue 2478: the wrong flag aborts."""
    tell = consumers.find_consumer("driver").tell
    assert tell is not None
    assert tell(Path("/m.mxr"), key) == (f"migraphx-driver run /m.mxr{flags}",)


def test_pythons_lines() -> None:
    tell = consumers.find_consumer("python").tell
    assert tell is not None
    assert tell(Path("/m.mxr"), GPU) == ('program = migraphx.load("/m.mxr")',)
    assert "to_gpu" in tell(Path("/m.mxr"), FLAGS_OFF)[1]


MODEL = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (f"mxr://{MODEL}", ["--for", "kserve"]),
        (f"mxr://{MODEL}?arch=auto&batch=64&for=amdinfer-repo", ["--batch=64", "--for=amdinfer-repo"]),
        (f"mxr://{MODEL}?rocm=7.2&fast-math=off&exact", None),
        (
            f"mxr://{MODEL}?for=triton&input=x%3D1,3&input=y%3D2&force=on&offload-copy=true",
            ["--for=triton", "--input=x=1,3", "--input=y=2", "--force", "--offload-copy"],
        ),
        (f"mxr://{MODEL}/?for=triton&fast-math=false", ["--for=triton", "--no-fast-math"]),
    ],
)
def test_a_uri(uri: str, words: list[str] | None) -> None:
    if words is None:
        with pytest.raises(UsageError, match="not a list of name=value"):
            kserve.read_uri(uri)
        return
    found = kserve.read_uri(uri)
    assert (found.model, list(found.words)) == (MODEL, words)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://bucket/m", "not an mxr:// URI"),
        ("mxr://", "names no model"),
        ("mxr://?batch=8", "names no model"),
        (f"mxr://{MODEL}?batch=8&batch=9", "parameter twice"),
        (f"mxr://{MODEL}?output=/etc", "not a valid parameter"),
        (f"mxr://{MODEL}?token=t", "not a valid parameter"),
        (f"mxr://{MODEL}?exact=off", "not a valid parameter"),
    ],
)
def test_uris_that_are_refused(uri: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        kserve.read_uri(uri)
    assert caught.value.hint


@for_each(
    [
        ("mxr://--locked", "path"),
        ("mxr://%2D%2Dlocked=/etc/passwd", "path"),
        ("mxr://-o/etc", "path"),
        ("mxr:///proc/self/environ", "path"),
        ("mxr://../m.onnx?for=triton", "path"),
        (f"mxr://{MODEL}%20--locked", "path"),
        (f"mxr://{MODEL}%0A", "path"),
        (f"mxr://{MODEL}?env=MIGRAPHX_TRACE_EVAL%3D1", "env"),
        (f"mxr://{MODEL}?batch=8&env=", "env"),
        (f"mxr://{MODEL}?host=/etc/shadow", "host"),
        (f"mxr://{MODEL}?on-miss=ask", "wait"),
        (f"mxr://{MODEL}?on-miss=wait%3D10h", "wait"),
        (f"mxr://{MODEL}?on-miss=local", "wait"),
        (f"mxr://{MODEL}?on-miss=path", "wait"),
        (f"mxr://{MODEL}?on-miss=", "wait"),
    ]
)
def test_a_uri_sets_no_more_than_the_operator_allows(uri: str, word: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        kserve.read_uri(uri)
    assert caught.value.exit == 7 and f"MXR_KSERVE_ALLOW={word}" in caught.value.hint


@for_each(["registry", "token", "cache-dir", "locked", "o", "output", "-o", "plaintext", "json"])
def test_a_uri_sets_no_setting(name: str) -> None:
    """Nor does it if the operator allows everything."""
    with pytest.raises(UsageError, match="not a valid parameter"):
        kserve.read_uri(f"mxr://{MODEL}?{name}=x", KSERVE_CHOICES)


def test_a_uri_sets_what_the_operator_allows() -> None:
    uri = f"mxr://{MODEL}?env=MIGRAPHX_A%3D1&on-miss=wait%3D10m&host=/h.json"
    assert kserve.read_uri(uri, ("env", "wait", "host")).words[:2] == ("--env=MIGRAPHX_A=1", "--on-miss=wait=10m")
    for allowed in (("env", "wait"), ("env", "host"), ("wait", "host", "ask", "path", "local")):
        with pytest.raises(NotAllowedError):
            kserve.read_uri(uri, allowed)
    assert kserve.read_uri(f"mxr://{MODEL}?on-miss=continue").words[0] == "--on-miss=continue"


def test_a_path_in_a_uri() -> None:
    assert kserve.read_uri("mxr:///models/a%20b.onnx", ("path",)).model == "/models/a b.onnx"
    assert json.dumps(kserve.read_uri("mxr:///m.onnx?name=m", ("path",)).words) == '["--name=m", "--for", "kserve"]'
