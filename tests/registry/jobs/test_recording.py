"""Jobs that record what ONNX Runtime writes: who may ask what, and who gets them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from harness.workers import registration_of
from registry.registry_client import Parts, Start

NAME = "net.onnx"
OPENED = sha256(NAME.encode()).hexdigest()[:12]
FORM = f"ort:B:1.27.1:all:{OPENED}"
ORT = {"generation": "B", "version": "1.27.1"}


@pytest.fixture(scope="module")
def engine() -> str:
    """What holds the rows makes no difference here."""
    return "sqlite"


def key(parts: Parts, form: str = FORM, **other: Any) -> dict[str, Any]:
    found: dict[str, Any] = parts.gpu_key(form=form, **{"offload_copy": False, "fast_math": False, **other})
    return found


def can(parts: Parts, **ort: Any) -> dict[str, Any]:
    found: dict[str, Any] = parts.gpu_capabilities() | {"ort": ORT | ort}
    return found


def test_only_a_worker_with_that_onnx_runtime_gets_the_job(registry: Any, parts: Parts) -> None:
    plain = registry.register_worker("plain", parts.gpu_capabilities())
    other = registry.register_worker("other", can(parts, version="1.26.0"))
    error = registry.submit_error(key(parts), file_name=NAME, require_worker=True)
    assert error["code"] == "no_worker"
    assert "onnxruntime-migraphx 1.27.1" in error["detail"] and "gfx908" in error["detail"]
    job = registry.submit(key(parts), file_name=NAME)
    assert "onnxruntime-migraphx 1.27.1" in job["waiting_for"]
    assert registry.claim(plain) is None and registry.claim(other) is None
    able = registry.register_worker("able", can(parts))
    assert registry.job(job["id"])["waiting_for"] is None
    lease = registry.claim(able)
    assert (lease["job"], lease["file_name"], lease["cross"]) == (job["id"], NAME, False)
    # The same worker goes on compiling whole models.
    whole = registry.submit(parts.gpu_key())
    found = registry.claim(able)
    assert (found["job"], found["file_name"]) == (whole["id"], None)


def test_each_file_of_a_set_is_held_against_the_key(registry: Any, parts: Parts) -> None:
    """The example program was compiled with offload copy, which ONNX Runtime's provider never does."""
    able = registry.register_worker("able", can(parts))
    job = registry.submit(key(parts), file_name=NAME)
    assert registry.submit(key(parts), file_name=NAME, require_worker=True)["id"] == job["id"], (
        "one job for all who ask"
    )
    lease = registry.claim(able)
    (file,) = registry.manifest(parts.gfx908, "20f00-1-2-3.mxr")["files"]
    files = [file, file | {"name": "20f00-4-2-3.mxr"}]
    artifact = {"key": lease["key"], "manifest": {"v": 1, "files": files}, "attributes": {"sramecc": "+", "xnack": "-"}}
    error = registry.error("POST", f"/v1/jobs/{job['id']}/finish", {"lease": lease["secret"], "artifact": artifact})
    assert (error["code"], error["context"]["files"]) == ("mismatch", ["20f00-1-2-3.mxr", "20f00-4-2-3.mxr"])
    assert {row["field"] for row in error["context"]["differences"]} == {"offload_copy"}
    assert registry.job(job["id"])["state"] == "queued"


@pytest.mark.parametrize(
    ("form", "more", "word"),
    [
        (FORM, {"file_name": "other.onnx"}, "file_name"),
        (FORM, {}, "file_name"),
        ("ort:B:1.27.1:all:bytes", {"file_name": NAME}, "file_name"),
        (f"ort:B:any:all:{OPENED}", {"file_name": NAME}, "ort"),
        (f"ort:B:1.27:all:{OPENED}", {"file_name": NAME}, "ort"),
        (f"ort:D:1.27.1:all:{OPENED}", {"file_name": NAME}, "ort"),
        (f"ort:B:1.27.1:most:{OPENED}", {"file_name": NAME}, "level"),
        ("ort:elsewhere", {"file_name": NAME}, "form"),
        ("whole", {"file_name": NAME}, "file_name"),
        (FORM, {"file_name": NAME, "precision": "int8"}, "import --ort-cache"),
        (FORM, {"file_name": NAME, "precision": "fp16+bf16"}, "import --ort-cache"),
        (FORM, {"file_name": NAME, "offload_copy": True}, "offload"),
        (FORM, {"file_name": NAME, "inputs": {"x": [[1, 4, []], 3]}}, "dynamic"),
    ],
)
def test_what_contradicts_itself_is_refused(
    registry: Any, parts: Parts, form: str, more: dict[str, Any], word: str
) -> None:
    asked = {name: more.pop(name) for name in ("file_name",) if name in more}
    error = registry.submit_error(key(parts, form, **more), **asked)
    assert error["code"] == "usage"
    assert word in error["detail"] + error["hint"], error


def test_a_name_with_a_folder_is_refused(registry: Any, parts: Parts) -> None:
    for name in ("a/net.onnx", "..", "/net.onnx"):
        form = f"ort:B:1.27.1:all:{sha256(name.encode()).hexdigest()[:12]}"
        assert registry.submit_error(key(parts, form), file_name=name)["code"] == "usage"


@pytest.mark.parametrize("ort", [{"generation": "D"}, {"version": "1.27"}, {"version": "new"}, {"colour": "red"}])
def test_a_worker_with_no_such_onnx_runtime_is_refused(registry: Any, parts: Parts, ort: dict[str, str]) -> None:
    stated = parts.gpu_capabilities() | {"ort": ORT | ort}
    assert registry.error("POST", "/v1/workers", registration_of("odd", stated))["code"] == "usage"


def test_a_declared_pool_is_somebody_and_the_figures_name_the_form(start: Start, parts: Parts) -> None:
    pool = """
[[pools]]
name = "recorders"
targets = [{arch = "gfx908", num_cu = 120, sramecc = "+", xnack = "-"}]
toolchain = {rocm = "7.2.1", migraphx = "2.15.0"}
ort = {generation = "B", version = "1.27.1"}
"""
    registry = start(config=pool)
    registry.register_model()
    registry.submit(key(parts), file_name=NAME, require_worker=True)
    (found,) = registry.ok("GET", "/v1/pools")["items"]
    assert (found["can"]["ort"], found["queued"]) == (ORT, 1)
    lane = {"arch": "gfx908", "vendor": "amd", "kind": "gpu", "rocm": "7.2", "migraphx": "2.15", "form": "ort:B:1.27.1"}
    assert registry.metric("mxr_fleet_queue_jobs", **lane, state="queued") == 1
