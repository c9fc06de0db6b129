"""Reading genai_config.json in its two spellings: models, options, lengths; errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mxr.errors import DamagedError, UsageError
from mxr.onnxfile import OnnxInput, OnnxModel
from mxr.request import genai_config
from mxr.request.genai_config import GenaiProgram

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(document: object) -> Path:
        path = tmp_path / "genai_config.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return make


def model(provider: str = "AMDGPU", filename: Any = "model.onnx", **options: Any) -> dict[str, Any]:
    return {"filename": filename, "session_options": {"provider_options": [{"cpu": {}}, {provider: options}]}}


def config(search: Any = None, **parts: Any) -> dict[str, Any]:
    return {"model": {"type": "phi3", "context_length": 4096, **parts}, **({"search": search} if search else {})}


def documented(options: Any = None, name: Any = "MIGraphX", **more: Any) -> dict[str, Any]:
    """Source: Looong01/onnxruntime-genai-migraphx, examples/python/genai_config_migraphx_example.json."""
    row = {"name": name, **({} if options is None else {"options": options}), **more}
    return {"filename": "model.onnx", "session_options": {"log_id": "d", "provider_options": [row]}}


@pytest.mark.parametrize("provider", ["AMDGPU", "amdgpu", "AMDGPUExecutionProvider"])
def test_the_padding_provider_needs_two_programs_of_a_decoder(write: Write, tmp_path: Path, provider: str) -> None:
    """Source: microsoft/onnxruntime-genai: static_pad_seq_len is search.max_length; then one token at a time."""
    search = {"max_length": 2048, "past_present_share_buffer": True}
    found = genai_config.read_genai_config(write(config(search, decoder=model(provider, fp16_enable="1"))))
    prefill, decode = found.parts
    assert (prefill.label, decode.label) == ("decoder-prefill", "decoder-decode")
    assert prefill.path == decode.path == tmp_path / "model.onnx"
    assert prefill.precision == decode.precision == "fp16"
    assert prefill.sizes and decode.sizes
    assert (prefill.sizes["sequence_length"], decode.sizes["sequence_length"]) == (2048, 1)
    assert prefill.sizes["past_sequence_length"] == decode.sizes["total_sequence_length"] == 2048
    assert found.notes == ()


@pytest.mark.parametrize(
    ("search", "rows", "past"),
    [
        ({"max_length": 64}, 1, (0, 63)),
        ({"max_length": 64, "past_present_share_buffer": True}, 1, (64, 64)),
        ({"max_length": 64, "past_present_share_buffer": True, "num_beams": 4, "batch_size": 2}, 8, (0, 63)),
        ({}, 1, (0, 4095)),
        ({"max_length": 0}, 1, (0, 4095)),
    ],
)
def test_the_lengths_are_those_of_the_configuration(
    write: Write, search: dict[str, Any], rows: int, past: tuple[int, int]
) -> None:
    """Source: onnxruntime-genai, src/config.cpp (max_length), src/generators.cpp (IsPastPresentShareBufferEnabled) and
    src/models/kv_cache.cpp: without a shared buffer, the past starts with no tokens and grows.
    """
    found = genai_config.read_genai_config(write(config(search, decoder=model("MIGraphX"))))
    sizes = [part.sizes or {} for part in found.parts]
    assert tuple(each["past_sequence_length"] for each in sizes) == past
    assert {each["batch_size"] for each in sizes} == {rows}
    assert sizes[0]["sequence_length"] == sizes[0]["total_sequence_length"] == sizes[1]["total_sequence_length"]
    assert any("pads nothing" in line for line in found.notes)


def test_the_padding_provider_is_not_run_without_a_shared_buffer(write: Write) -> None:
    found = genai_config.read_genai_config(write(config({"max_length": 64}, decoder=model())))
    assert any(line.startswith("search.past_present_share_buffer is off") for line in found.notes)


@pytest.mark.parametrize(
    ("options", "precision", "tuning"),
    [
        ({}, None, None),
        ({"fp16_enable": "1"}, "fp16", None),
        ({"migraphx_fp16_enable": "True"}, "fp16", None),
        ({"migraphx_bf16_enable": True, "migraphx_fp16_enable": "false"}, "bf16", None),
        ({"fp16_enable": 1, "int8_enable": "true", "exhaustive_tune": "1"}, "int8+fp16", "exhaustive"),
        ({"migraphx_fp8_enable": "1", "device_id": "0", "migraphx_model_cache_dir": "/c"}, "fp8", None),
        ({"device_id": "0", "fp16_enable": "1", "int8_enable": "0", "exhaustive_tune": "0"}, "fp16", None),
        ({"compute_mode": "eager"}, None, "eager"),
        ({"compute_mode": "100"}, None, "exhaustive"),
        ({"migraphx_fp16_enable": "1", "fp16_enable": 1}, "fp16", None),
    ],
)
@pytest.mark.parametrize("form", ["of GenAI", "documented"])
def test_options_in_both_forms_and_both_spellings(
    write: Write, form: str, options: dict[str, Any], precision: str | None, tuning: str | None
) -> None:
    decoder = model("MIGraphX", **options) if form == "of GenAI" else documented(options)
    prefill, decode = genai_config.read_genai_config(write(config({"max_length": 2048}, decoder=decoder))).parts
    for part in (prefill, decode):
        assert (part.precision, part.tuning) == (precision, tuning)


def test_the_two_spellings_are_told_apart(write: Write) -> None:
    """onnxruntime-migraphx 1.27.1 refuses options without the prefix and goes on on the CPU (run with the wheel); the
    plugin has aliases. Source: onnxruntime/onnxruntime-ep-amdgpu, src/migraphx/mgx_options.h.
    """
    (plain,) = [
        line
        for line in genai_config.read_genai_config(write(config(decoder=documented({"fp16_enable": "1"})))).notes
        if "runs on the CPU" in line
    ]
    assert "it needs migraphx_fp16_enable" in plain and "provider_options[0].options" in plain
    for other in (documented({"migraphx_fp16_enable": "1", "device_id": "0"}), model(fp16_enable="1"), documented()):
        assert not any(
            "runs on the CPU" in line for line in genai_config.read_genai_config(write(config(decoder=other))).notes
        )


def test_models_without_options_of_their_own_use_those_of_the_decoder(write: Write) -> None:
    found = genai_config.read_genai_config(
        write(
            config(
                decoder=model("MIGraphX", migraphx_fp16_enable="1"),
                vision={"filename": "vision.onnx"},
                speech={"filename": "speech.onnx", "session_options": {}},
                vad={"filename": "vad.onnx"},
            )
        )
    )
    assert [(part.name, part.precision) for part in found.parts if part.name != "decoder"] == [("vision", "fp16")]
    assert len([line for line in found.notes if "does not use MIGraphX" in line]) == 2


def test_several_models_and_a_folder(write: Write, tmp_path: Path) -> None:
    write(
        config(
            embedding=model(filename="embed.onnx"),
            vision=model("MIGraphX", filename="onnx/vision.onnx", compile_batches="8, 1,4"),
            speech={"filename": "speech.onnx", "session_options": {"provider_options": []}},
            decoder={
                "session_options": {"provider_options": [{"MIGraphX": {"fp16_enable": "1"}}]},
                "pipeline": [{"first": {"filename": "a.onnx"}, "second": {"filename": "b.onnx"}}],
            },
        )
    )
    found = genai_config.read_genai_config(tmp_path)
    assert [(part.name, str(part.path.relative_to(tmp_path)), part.batches) for part in found.parts] == [
        ("embedding", "embed.onnx", ()),
        ("vision", "onnx/vision.onnx", (1, 4, 8)),
        ("decoder-first", "a.onnx", ()),
        ("decoder-second", "b.onnx", ()),
    ]
    assert [part.precision for part in found.parts[2:]] == ["fp16", "fp16"]
    assert "model.speech does not use MIGraphX: no program is fetched for it." in found.notes


ONNX = OnnxModel(
    Path("m.onnx"),
    0,
    (
        OnnxInput("input_ids", "int64", ("batch_size", "sequence_length")),
        OnnxInput("past.0.key", "float16", ("batch_size", 8, "past_sequence_length", 64)),
        OnnxInput("closed", "int64", (1,)),
        OnnxInput("odd", "int64", ("batch_size", "some_length")),
        OnnxInput("unknown", "int64", None),
    ),
    (),
    (),
    None,
    8,
    "",
)


def test_the_configuration_closes_the_dims_that_it_knows() -> None:
    part = GenaiProgram("decoder", Path("m.onnx"), sizes={"sequence_length": 16, "past_sequence_length": 32})
    assert dict(part.inputs(ONNX, 2)) == {"input_ids": (2, 16), "past.0.key": (2, 8, 32, 64)}
    assert dict(part.inputs(ONNX, None)) == {}


def test_a_past_may_have_no_tokens() -> None:
    part = GenaiProgram("decoder", Path("m.onnx"), sizes={"past_sequence_length": 0})
    assert dict(part.inputs(ONNX, 1)) == {"past.0.key": (1, 8, 0, 64)}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "model: this field is missing"),
        ([], "the document: expected an object"),
        ({"model": []}, "model: expected an object"),
        (config(decoder=model(filename=3)), "model.decoder.filename: expected a string, found 3"),
        (config(decoder=model(filename="/etc/passwd")), "model.decoder.filename: expected a path below"),
        (config(decoder=model(filename="../model.onnx")), "model.decoder.filename: expected a path below"),
        (config(decoder=model(filename="a/../../model.onnx")), "model.decoder.filename: expected a path below"),
        (config(decoder=documented("fp16")), r"provider_options\[0\].options: expected an object"),
        (config(decoder=documented({}, name=["MIGraphX"])), r"provider_options\[0\].name: expected a string"),
        (config(decoder=documented({}, name="CUDA")), "No model in"),
        (
            config(
                decoder={
                    "filename": "m",
                    "session_options": {"provider_options": [{"AMDGPU": {}}, {"name": "MIGraphX", "options": {}}]},
                }
            ),
            r"names a MIGraphX provider twice: .*provider_options\[0\].AMDGPU and .*\[1\].options",
        ),
        (
            config(decoder=documented({"fp16_enable": "1", "migraphx_fp16_enable": "0"})),
            "fp16_enable and migraphx_fp16_enable have different values",
        ),
        (config(decoder=model(compute_mode="fast")), "compute_mode: expected one of eager"),
        (config({"num_beams": 0}, decoder=model()), "search.num_beams: expected a size"),
        (config({"past_present_share_buffer": "1"}, decoder=model()), "share_buffer: expected true or false"),
        (config(decoder={"filename": "m", "session_options": 1}), "model.decoder.session_options: expected an object"),
        (
            config(decoder={"filename": "m", "session_options": {"provider_options": {}}}),
            "model.decoder.session_options.provider_options: expected a list",
        ),
        (
            config(decoder={"filename": "m", "session_options": {"provider_options": ["MIGraphX"]}}),
            r"provider_options\[0\]: expected an object",
        ),
        (config(decoder=model(fp16_enable="yes")), r"provider_options\[1\].AMDGPU.fp16_enable: expected 1, 0"),
        (config(decoder=model(fp16_enable="1", bf16_enable="1")), r"\[1\].AMDGPU: fp16_enable and bf16_enable"),
        (config(decoder=model(compile_batches="1,x")), "compile_batches: expected numbers"),
        (config(decoder=model(compile_batches=[1])), "compile_batches: expected a string"),
        (config(decoder=model(compile_batches="0")), "compile_batches: expected a size"),
        (config({"max_length": "long"}, decoder=model()), "search.max_length: expected a size"),
        (config(decoder={"pipeline": 1}), "model.decoder.pipeline: expected a list"),
        (config(decoder={"pipeline": [{"a": {}}]}), r"model.decoder.pipeline\[0\].a.filename: expected"),
        (config(decoder=model("CUDA")), "No model in"),
    ],
)
def test_errors_name_the_field(write: Write, document: object, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        genai_config.read_genai_config(write(document))
    assert caught.value.hint


def test_what_is_no_configuration(write: Write, tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="not valid JSON"):
        genai_config.read_genai_config(write('{"model": {'))
    with pytest.raises(UsageError, match="Cannot read"):
        genai_config.read_genai_config(tmp_path / "nothing.json")
