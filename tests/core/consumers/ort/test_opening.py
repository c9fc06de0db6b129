"""`mxr.ort_session` with the real provider: it loads what it fetched, and reports if ONNX Runtime did not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import onnx
import pytest
from doubles.ort_migraphx import Judge

import mxr

from .graphs import random_model

pytestmark = pytest.mark.timeout(900)

CORE = Path(mxr.__file__).parents[1]


class Opening:
    """A model, the program that the stand-ins compile from it, and a call that opens it through mxr."""

    def __init__(self, judge: Judge, tmp: Path) -> None:
        self.judge, self.tmp, self.model = judge, tmp, tmp / "m.onnx"
        onnx.save(random_model(3), self.model)
        (outcome,) = judge.sessions([{"model": str(self.model)}], tmp / "elsewhere")
        (program,) = outcome.cache.glob("*.mxr")
        self.program = program.read_text()

    def __call__(self, environ: dict[str, str] | None = None, **task: Any) -> tuple[dict[str, Any], list[str]]:
        """The reply, and the calls that MIGraphX received."""
        log, reply = self.tmp / "log", self.tmp / "reply"
        document = {
            "cache": str(self.tmp / "cache"),
            "folder": str(self.tmp / "folder"),
            "model": str(self.model),
            "program": self.program,
            "reply": str(reply),
            **task,
        }
        subprocess.run(
            [self.judge.python, Path(__file__).with_name("opening_child.py")],
            input=json.dumps(document),
            env=self.judge.environment(log) | {"PYTHONPATH": str(CORE)} | (environ or {}),
            check=True,
            text=True,
            capture_output=True,
        )
        lines = log.read_text().splitlines() if log.exists() else []
        return json.loads(reply.read_text()), [line.split("\t")[0] for line in lines]


@pytest.fixture
def opening(judge: Judge, tmp_path: Path) -> Opening:
    return Opening(judge, tmp_path)


def test_it_loads_what_was_fetched(opening: Opening) -> None:
    assert opening() == ({"providers": ["MIGraphXExecutionProvider", "CPUExecutionProvider"]}, ["load"])


def test_a_compile_is_no_success(opening: Opening) -> None:
    error, asked = opening(program="of another file format")
    assert asked == ["damaged", "parse", "compile", "save"]
    assert error["code"] == "mismatch" and "compiled instead of loading" in error["detail"]
    assert "mxr verify" in error["hint"] and error["context"]["findings"][0]["kind"] == "rewritten"


def test_the_cpu_is_no_success(opening: Opening) -> None:
    error, _ = opening(provider={"no_such_option": "1"})
    assert error["code"] == "mismatch" and "fell back to the CPU" in error["detail"]
    assert error["context"]["providers"] == ["CPUExecutionProvider"]


def test_a_variable_that_overrides_the_option(opening: Opening) -> None:
    error, asked = opening({"ORT_MIGRAPHX_MODEL_CACHE_PATH": "/elsewhere"})
    assert error["code"] == "usage" and "Unset" in error["hint"] and not asked


def test_without_the_provider(tmp_path: Path) -> None:
    from mxr.runtime.ort_session import open_session

    with pytest.raises(mxr.UsageError) as caught:
        open_session(tmp_path / "m.onnx", tmp_path, {})
    assert "onnxruntime-migraphx" in caught.value.hint
