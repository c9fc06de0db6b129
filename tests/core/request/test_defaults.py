"""Defaults fill what options and the host leave open, replace no fact, and are named with where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from strategies import MODEL

from mxr.artifact.request_defaults import NO_DEFAULTS, RequestDefaults
from mxr.errors import UsageError
from mxr.host_facts import Host, HostTarget, HostToolchain
from mxr.onnxfile import OnnxInput, OnnxModel
from mxr.request.builder import RequestOptions, build_request, gather
from mxr.request.defaults import ProjectDefaults, apply_defaults, default_batches, of_project, of_settings
from mxr.request.model import ModelReference
from mxr.settings import Settings, load_settings

BARE = Host()
MI100 = Host((HostTarget("gfx908", "+", "-", 120, 1),), HostToolchain("7.1.1", "2.14.0"))
EVERYTHING = RequestDefaults.of(
    {"rocm": "7.2", "migraphx": "2.15", "consumer": "driver", "batch": 8, "inputs": {"x": ["N", 5]}}, "mxr.toml"
)


def subject(*inputs: tuple[str, Any]) -> ModelReference:
    declared = tuple(OnnxInput(name, "float32", dims) for name, dims in inputs or (("x", ("N", "M")),))
    return ModelReference(MODEL, OnnxModel(Path("m.onnx"), 0, declared, (), (), 17, 8, ""))


def applied(
    defaults: RequestDefaults, host: Host = BARE, model: ModelReference | None = None, **said: Any
) -> RequestOptions:
    return apply_defaults(RequestOptions(**said), defaults, model or subject(), host)[0]


def test_a_default_fills_what_nobody_tells() -> None:
    options, notes = apply_defaults(RequestOptions(arch="gfx908"), EVERYTHING, subject(), BARE)
    assert (options.rocm, options.migraphx, options.consumer, options.batch) == ("7.2", "2.15", "driver", 8)
    assert options.inputs == (("x", (8, 5)),)
    assert notes == ("rocm 7.2, migraphx 2.15, consumer driver, batch 8, inputs.x 8,5 (mxr.toml)",)
    key = build_request(options, subject(), BARE).request.key
    assert (key.rocm, key.migraphx, key.inputs, key.offload_copy) == ("7.2", "2.15", (("x", (8, 5)),), False)


def test_what_is_stated_stays() -> None:
    said: dict[str, Any] = {"rocm": "6.4", "migraphx": "2.12", "consumer": "triton", "batch": 2}
    options = RequestOptions(arch="gfx908", inputs=(("x", (2, 3)),), **said)
    assert apply_defaults(options, EVERYTHING, subject(), BARE) == (options, ())


def test_a_consumer_that_loads_one_batch_size_needs_no_other() -> None:
    """Source: Xilinx/inference-server, src/amdinfer/workers/migraphx.cpp: a repository cannot set the batch."""
    for consumer in ("amdinfer-repo", "kserve"):
        options, notes = apply_defaults(RequestOptions(consumer=consumer), NO_DEFAULTS, subject(), BARE)
        assert options.batch == 64 and notes == (f"batch 64, the only one that {consumer} loads",)
    assert applied(EVERYTHING, consumer="amdinfer-repo").batch == 64
    assert applied(EVERYTHING, consumer="amdinfer-repo", batch=8).batch == 8
    assert applied(NO_DEFAULTS, consumer="amdinfer").batch is None
    assert applied(NO_DEFAULTS, consumer="amdinfer-repo", model=subject(("x", (4, 3)))).batch is None
    several = RequestDefaults.of({"batch": [1, 8], "consumer": "amdinfer-repo"}, "mxr.toml")
    assert default_batches(RequestOptions(), several, subject()) == ()


def test_facts_of_the_host_come_before_defaults() -> None:
    options, notes = apply_defaults(RequestOptions(), EVERYTHING, subject(), MI100)
    assert (options.rocm, options.migraphx) == (None, None)
    assert build_request(options, subject(), MI100).request.key.rocm == "7.1"
    assert "this host has ROCm 7.1.1: rocm 7.2 (mxr.toml) is not used" in notes
    assert "this host has MIGraphX 2.14.0: migraphx 2.15 (mxr.toml) is not used" in notes
    # Another arch is not this host.
    assert applied(EVERYTHING, MI100, arch="gfx942").rocm == "7.2"
    # A host whose toolchain is not found is told by the default, part by part.
    half = Host(MI100.targets, HostToolchain("7.1.1", None))
    assert (applied(EVERYTHING, half).rocm, applied(EVERYTHING, half).migraphx) == (None, "2.15")
    same = Host(MI100.targets, HostToolchain("7.2.3", "2.15.1"))
    assert not [note for note in apply_defaults(RequestOptions(), EVERYTHING, subject(), same)[1] if "not used" in note]


def test_versions_are_those_of_amd() -> None:
    assert applied(EVERYTHING, vendor="hygon", arch="gfx906").rocm is None
    assert applied(EVERYTHING, vendor="hygon", arch="gfx906").migraphx is None
    ref = applied(EVERYTHING, kind="ref")
    assert (ref.rocm, ref.migraphx) == (None, "2.15")
    assert applied(EVERYTHING).rocm is None, "no arch is known"


def test_a_batch_size_is_for_models_that_leave_it_open() -> None:
    batch = RequestDefaults.of({"batch": 8}, "mxr.toml")
    assert applied(batch).batch == 8
    assert applied(batch, model=subject(("x", (4, 3)))).batch is None
    assert applied(batch, inputs=(("x", (4, 3)),)).batch is None
    assert applied(batch, model=subject(("x", ("N", 3)), ("y", ("K", 3)))).batch is None, "ambiguous"
    several = RequestDefaults.of({"batch": [8, 1]}, "mxr.toml")
    assert applied(several).batch is None
    assert default_batches(RequestOptions(), several, subject()) == (1, 8)
    assert default_batches(RequestOptions(batch=4), several, subject()) == ()
    assert default_batches(RequestOptions(), several, subject(("x", (4, 3)))) == ()
    assert default_batches(RequestOptions(), batch, subject()) == ()


def test_dims_are_for_inputs_of_their_name() -> None:
    dims = RequestDefaults.of({"inputs": {"x": ["N", 5], "other": [1]}}, "mxr.toml")
    assert applied(dims).inputs == (), "without a batch size, the input stays open"
    assert applied(dims, batch=2).inputs == (("x", (2, 5)),)
    assert applied(dims, batch=2, inputs=(("x", (2, 9)),)).inputs == (("x", (2, 9)),)
    assert applied(dims, model=subject(("z", (1, 2)))).inputs == ()
    assert gather(applied(dims, batch=2), subject(), BARE).known.inputs == (("x", (2, 5)),)


@pytest.mark.parametrize("dims", [["N"], ["N", 5, 1], [3, 5]])
def test_dims_that_contradict_the_model_are_named(dims: list[Any]) -> None:
    defaults = RequestDefaults.of({"inputs": {"x": dims}}, "mxr.toml")
    with pytest.raises(UsageError) as caught:
        applied(defaults, batch=2, model=subject(("x", (2, 5))))
    assert caught.value.message.startswith("mxr.toml: inputs.x: ")
    assert "--input x=DIMS" in caught.value.hint


def test_what_is_wrong_without_defaults_is_not_blamed_on_them() -> None:
    with pytest.raises(UsageError) as caught:
        applied(EVERYTHING, batch=2, inputs=(("nope", (1,)),))
    assert "no input nope" in caught.value.message and "mxr.toml" not in caught.value.message


def test_a_consumer_that_does_not_exist() -> None:
    with pytest.raises(UsageError) as caught:
        applied(RequestDefaults.of({"consumer": "tritn"}, "mxr.toml"))
    assert caught.value.message == "mxr.toml: There is no consumer 'tritn'. Did you mean triton?"


def test_the_user_comes_before_the_project(tmp_path: Path) -> None:
    (tmp_path / "mxr.toml").write_text('rocm = "7.1"\nmigraphx = "2.14"\nbatch = 4\n')
    (tmp_path / "m.onnx").touch()
    settings = load_settings({"HOME": str(tmp_path), "MXR_ROCM": "7.2", "MXR_CONSUMER": "ort"})
    found = of_settings(settings).over(of_project(str(tmp_path / "m.onnx"), settings).defaults)
    assert (found.rocm, found.migraphx, found.consumer, found.batch) == ("7.2", "2.14", "ort", (4,))
    assert found.sources["rocm"] == "MXR_ROCM" and found.sources["batch"] == str(tmp_path / "mxr.toml")
    assert of_settings(Settings(rocm="7.0")).sources == {"rocm": "the settings"}


def test_a_model_by_its_identity_belongs_to_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mxr.toml").write_text('rocm = "7.1"')
    monkeypatch.chdir(tmp_path)
    settings = Settings(home=tmp_path)
    assert of_project(MODEL, settings) == ProjectDefaults(NO_DEFAULTS)
    assert of_project(None, settings).defaults.rocm == "7.1"
    assert of_project("m.onnx", settings).defaults.rocm == "7.1"


def test_a_folder_that_cannot_be_resolved_has_no_project(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for model in (tmp_path / "loop" / "m.onnx", tmp_path / "absent" / "m.onnx", tmp_path / ("x" * 300) / "m.onnx"):
        assert of_project(str(model), Settings(home=tmp_path)).files == ()
    assert of_project("a\0b/m.onnx", Settings()).files == ()
