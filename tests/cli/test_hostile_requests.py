"""`mxr` refuses hostile models and settings before it contacts a registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.hostile_models import attacks, model

from .test_usage_errors import REF, Fails, fails

__all__ = ["fails"]


@pytest.mark.parametrize("target", ["/proc/self/environ", "../secret"])
def test_a_model_that_names_a_forbidden_file_is_refused(fails: Fails, tmp_path: Path, target: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    for what, onnx in attacks(targets=(target,)):
        (tmp_path / "evil.onnx").write_bytes(onnx)
        for command in (
            ("fetch", "evil.onnx", *REF),
            ("key", "evil.onnx", *REF),
            ("push", "p.mxr", "--model", "evil.onnx", "--rocm", "7.2"),
            ("freeze", "evil.onnx", "--batch", "1", "-o", "frozen"),
        ):
            assert "refused" in fails(*command, code=65).err, (what, command)
    assert not (tmp_path / "frozen").exists()


def test_a_link_is_followed_only_on_request(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model(("location", "w.bin")))
    (tmp_path / "secret").write_bytes(bytes(16))
    (tmp_path / "w.bin").symlink_to("secret")
    assert "--follow-links" in fails("fetch", "m.onnx", *REF, code=65).err
    # Then it fails only because no registry listens.
    fails("fetch", "m.onnx", *REF, "--follow-links", code=69)


@pytest.mark.parametrize(
    "setting",
    [
        ("--env", "MIGRAPHX_PROBLEM_CACHE=/tmp/x"),
        ("--env", "MIGRAPHX_GPU_HIP_FLAGS=-fplugin=/tmp/x.so"),
        ("--env", "MIGRAPHX_NSTREAMS=1;reboot"),
        ("--env", "MIGRAPHX_TRACE_EVAL=1"),
        ("--env", "LD_PRELOAD=/tmp/x.so"),
        ("--option", "problem_cache_files=/tmp/x"),
        ("--option", "split_sizes=1],problem_cache_files:[/tmp/x"),
        ("--option", "convolution_layout"),
    ],
    ids=lambda setting: setting[1],
)
def test_a_setting_that_no_key_may_have_is_refused(fails: Fails, setting: tuple[str, str]) -> None:
    for command in (("fetch", "m.onnx", *REF), ("key", "m.onnx", *REF)):
        assert setting[1].partition("=")[0] in fails(*command, "--batch", "4", *setting).err


def test_variables_of_the_environment_are_named_and_ignored(fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRAPHX_DISABLE_MLIR", "1")
    monkeypatch.setenv("MIGRAPHX_TRACE_EVAL", "2")
    found = fails("fetch", "m.onnx", *REF, "--batch", "4", code=69)
    assert "MIGRAPHX_DISABLE_MLIR is set in this environment and ignored" in found.err
    assert "TRACE_EVAL" not in found.err
