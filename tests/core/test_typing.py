"""`import mxr` as the type checker of a user sees it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mxr
from mxr.request.builder import OptionArguments, RequestOptions

pytestmark = pytest.mark.process

CORE = Path(mxr.__file__).parent.parent

PROGRAM = """
import mxr
from mxr import RequestOptions

def serve(shapes: dict[str, list[int]]) -> str:
    found = mxr.fetch("model.onnx", batch=8, arch="gfx908", allow=["tuning"], inputs=shapes, offline=True)
    everything = mxr.fetch_set("model.onnx", [1, 2], calibration="data.npz", exact=True)
    session = mxr.ort_session("model.onnx", precision="fp16", env={"MIGRAPHX_ENABLE_NHWC": "1"})
    program = mxr.load("model.onnx", batch=8, settings=mxr.Settings(timeout=5.0))
    return f"{found.path} {everything[1].source} {session} {program} {mxr.inspect(found.path)}"

reveal_type(mxr.fetch)
reveal_type(mxr.fetch("model.onnx"))
reveal_type(RequestOptions(batch=8))
"""
WRONG = """
import mxr

mxr.fetch("model.onnx", bach=8)
mxr.fetch_set("model.onnx", [1], ofline=True)
mxr.load("model.onnx", precison="fp16")
mxr.ort_session("model.onnx", batch="8")
mxr.no_such_name
"""


def check(folder: Path, **programs: str) -> dict[str, list[str]]:
    """What `mypy --strict` prints about each of these programs, without the paths."""
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "--no-error-summary"]
    done = subprocess.run(
        [*command, "--config-file=", "--no-pretty", *(f"{name}.py" for name in programs)],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(CORE)},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    return {name: [each for each in lines if each.startswith(f"{name}.py:")] for name in programs}


def test_a_program_that_uses_mxr_is_checked(tmp_path: Path) -> None:
    found = check(tmp_path, program=PROGRAM, wrong=WRONG)
    function, fetched, options = found["program"]
    assert 'note: Revealed type is "def (model: ' in function and "mxr.workflows.fetch.Fetched" in function
    assert fetched.endswith('note: Revealed type is "mxr.workflows.fetch.Fetched"')
    assert options.endswith('note: Revealed type is "mxr.request.builder.RequestOptions"')
    errors = [line for line in found["wrong"] if ": error: " in line]
    assert [line.split(":")[1] for line in errors] == ["4", "5", "6", "7", "8"]
    for line, name in zip(errors, ("bach", "ofline", "precison", "batch", "no_such_name"), strict=True):
        assert f'"{name}"' in line


def test_the_keyword_arguments_are_the_fields_of_options() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(RequestOptions) if field.name != "inputs"}
    keywords = {name: each.__forward_arg__ for name, each in OptionArguments.__annotations__.items()}
    assert list(keywords) == list(fields)
    # These two accept more than the field holds: what a user has at hand is converted.
    wider = {"calibration": "str | PathLike[str] | None", "allow": "Sequence[str]"}
    assert keywords == fields | wider
    assert OptionArguments.__total__ is False


def test_every_public_name_can_be_imported() -> None:
    assert all(hasattr(mxr, name) for name in mxr.__all__)
    assert set(mxr.__all__) <= set(dir(mxr))
    assert not hasattr(mxr, "no_such_name")
