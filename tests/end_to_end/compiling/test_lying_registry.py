"""A real worker whose registry lies: what the worker refuses does not depend on the registry's word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.hostile_models import attacks, model
from servers.lying import LyingRegistry

from mxr.artifact.key import Key

from .conftest import PATIENCE, Worker, eventually

ON = ("embedded",)

SECRET = "a-token-that-no-program-may-hold"


def ref_key(**more: Any) -> dict[str, Any]:
    key = Key("sha256:" + "0" * 64, "ref", "2.15", (("x", (16,)),))
    return {**key.to_json(), **more}


@pytest.mark.parametrize("target", ["/proc/self/environ", "../../../../../../../../secret"])
def test_a_worker_reads_only_the_files_of_the_manifest(
    tmp_path: Path, worker: Callable[..., Worker], target: str
) -> None:
    """One attack of each kind with the process, all of them in tests/compiler_workers/test_job_input.py."""
    (tmp_path / "secret").write_text(SECRET)
    kinds = {what.partition(" ")[0]: onnx for what, onnx in attacks(targets=(target,))}
    for number, (kind, onnx) in enumerate(kinds.items()):
        with LyingRegistry(ref_key(), {"model.onnx": onnx, "w.bin": bytes(16)}) as registry:
            one = worker(f"one{number}", "--once", url=registry.url, env={"MXR_SECRET": SECRET})
            assert one.process.wait(PATIENCE) == 0, one.log.read_text()
            ((failure,),) = (registry.failures,)
            assert (failure["kind"], failure["name"]) == ("permanent", "refused-input"), kind
            assert SECRET not in str(failure) + one.log.read_text()
            assert not [each for each in registry.received if "finish" in each or each.startswith("PUT")]


@pytest.mark.parametrize(
    "more",
    [
        {"env": {"MIGRAPHX_PROBLEM_CACHE": "/tmp/elsewhere"}},
        {"env": {"MIGRAPHX_GPU_HIP_FLAGS": "-fplugin=/tmp/evil.so"}},
        {"env": {"MIGRAPHX_NSTREAMS": "1;touch /tmp/evil"}},
        {"env": {"LD_PRELOAD": "/tmp/evil.so"}},
        {"options": {"problem_cache_files": "/tmp/elsewhere"}},
        {"options": {"split_sizes": "1],problem_cache_files:[/tmp/elsewhere"}},
    ],
    ids=lambda more: next(iter(next(iter(more.values())))),
)
def test_a_worker_starts_no_child_for_settings_that_no_key_may_have(
    worker: Callable[..., Worker], more: dict[str, Any]
) -> None:
    honest = model(("location", "w.bin"))
    with LyingRegistry(ref_key(**more), {"model.onnx": honest, "w.bin": bytes(16)}) as registry:
        one = worker("one", "--once", url=registry.url)
        eventually(lambda: one.process.poll() is not None or len(registry.received) > 3)
        name = next(iter(next(iter(more.values()))))
        eventually(lambda: one.said(name))
        assert not [each for each in registry.received if "/blobs/" in each or "finish" in each], registry.received


def test_the_same_worker_compiles_an_honest_model(worker: Callable[..., Worker]) -> None:
    """The other tests here refuse what is hostile, not what this registry says at all."""
    honest = model(("location", "w.bin"))
    with LyingRegistry(ref_key(), {"model.onnx": honest, "w.bin": bytes(16)}) as registry:
        one = worker("one", "--once", url=registry.url)
        # It was compiled, and the upload begins.
        eventually(lambda: "POST /v1/blobs/missing" in registry.received or one.process.poll() is not None)
        assert "POST /v1/blobs/missing" in registry.received, (registry.failures, one.log.read_text())
