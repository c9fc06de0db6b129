"""`mxr.load`: the right program, checked and loaded by the migraphx of the process; its errors in plain words."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from paths import DOUBLES

from .conftest import Programs
from .stack import PATIENCE, Done, Host

ON = ("embedded",)

Hosts = Callable[..., Host]

LOAD = """
import json, sys
import numpy as np
import mxr
words = json.loads(sys.argv[2])
try:
    program = mxr.load(sys.argv[1], **words)
except mxr.MxrError as problem:
    print(json.dumps({"error": type(problem).__name__, "message": problem.message, "hint": problem.hint,
                      "context": problem.context}))
    raise SystemExit
import migraphx
name, shape = next(iter(program.get_parameter_shapes().items()))
array = np.zeros(shape.lens(), np.float32)
print(json.dumps({"shape": list(np.array(program.run({name: migraphx.argument(array)})[0]).shape)}))
"""

COMPILE = """
import sys, migraphx
program = migraphx.parse_onnx(sys.argv[1], map_input_dims={"x": [4, 3, 32, 32]})
program.compile(migraphx.get_target("ref"))
migraphx.save(program, sys.argv[2])
"""


def run(
    code: str, *words: object, host: Host | None, path: object, command: tuple[str, ...] = (sys.executable,)
) -> Done:
    """Runs Python with this PYTHONPATH, on this host."""
    done = subprocess.run(
        [*command, "-c", code, *(word if isinstance(word, str) else json.dumps(word) for word in words)],
        env={**(host.environ if host else os.environ), "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done
    return Done(done.returncode, done.stdout, done.stderr)


def compiled(model: Path, tmp_path: Path) -> Path:
    program = tmp_path / "double.mxr"
    run(COMPILE, str(model), str(program), host=None, path=DOUBLES)
    return program


def publish(mxr: Host, program: Path, model: Path, *words: str) -> None:
    mxr("push", program, "--model", model, "--kind", "ref", "--for", "python", *words)


WORDS = {"kind": "ref", "batch": 4, "consumer": "python"}


def test_it_is_fetched_checked_and_loaded(mxr: Host, host: Hosts, convnet: Path, tmp_path: Path) -> None:
    publish(mxr, compiled(convnet, tmp_path), convnet, "--migraphx", "2.15")
    app = host("app")
    assert run(LOAD, str(convnet), WORDS, host=app, path=DOUBLES).json == {"shape": [4, 10]}
    again = run(LOAD, str(convnet), WORDS | {"offline": True}, host=app, path=DOUBLES).json
    assert again == {"shape": [4, 10]}


HYGON = """
import os, sys, migraphx
os.environ["MIGRAPHX_DYNAMIC_SHAPE"] = "1"
program = migraphx.parse_onnx(sys.argv[1], map_input_dims={"x": [8, 3, 32, 32]})
program.compile(migraphx.get_target("gpu"), offload_copy=True)
migraphx.save(program, sys.argv[2])
"""


def test_hygons_program_is_reshaped_and_loaded_on_its_device(
    mxr: Host, host: Hosts, model: Path, tmp_path: Path
) -> None:
    """The double's module is that of qianqing13579/MIGraphX_Dynamic: `reshape`, and no device in Python's `load`."""
    settings = {"hygon": True, "migraphx": "4.1.0", "version_text": "4.1.0", "arch": "gfx906:sramecc+:xnack-"}
    (tmp_path / "migraphx_double.json").write_text(json.dumps(settings))
    path, program = f"{DOUBLES}{os.pathsep}{tmp_path}", tmp_path / "dynamic.mxr"
    run(HYGON, str(model), str(program), host=None, path=path)
    mxr("push", program, "--model", model, "--rocm", "25.04.4", "--for", "python")

    app = host("app")
    signs = {"sramecc": "+", "xnack": "-"}
    gpus = [{"arch": "gfx906", "vendor": "hygon", **signs}, {"arch": "gfx928", "vendor": "hygon"}]
    toolchain = {"rocm": "25.04.4", "migraphx": "4.1.0", "vendor": "hygon"}
    record = mxr("host", "--json").json | {"targets": gpus, "toolchain": toolchain}
    (tmp_path / "host.json").write_text(json.dumps(record))
    app.environ["MXR_HOST"] = str(tmp_path / "host.json")
    words = {"consumer": "python", "batch": 2}
    assert run(LOAD, str(model), words | {"device_id": 0}, host=app, path=path).json == {"shape": [2, 64, 32, 32]}
    other = run(LOAD, str(model), words | {"device_id": 1}, host=app, path=path).json
    assert other["error"] == "NoSuchArtifactError", "the program is for the other DCU"
    given = words | {"device_id": 1, "arch": "gfx906", "vendor": "hygon", "rocm": "25.04", "migraphx": "4.1"}
    refused = run(LOAD, str(model), given, host=app, path=path).json
    assert refused["message"] == "The load function of this migraphx module takes no device."
    assert "HIP_VISIBLE_DEVICES=1" in refused["hint"]
    absent = run(LOAD, str(model), words | {"device_id": 2}, host=app, path=path).json
    assert absent["message"] == "There is no device 2: this process sees 2 GPUs."


@pytest.mark.real_migraphx
def test_a_real_migraphx_loads_and_runs(mxr: Host, host: Hosts, convnet: Path, programs: Programs) -> None:
    command = tuple(shlex.split(os.environ.get("MXR_TEST_MIGRAPHX_PYTHON", "")))
    if not command:
        pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter that can import migraphx")
    publish(mxr, programs.ref32, convnet)
    path = os.environ.get("MXR_TEST_MIGRAPHX_PATH", "")
    assert run(LOAD, str(convnet), WORDS, host=host("app"), path=path, command=command).json == {"shape": [4, 10]}


def test_a_program_for_another_migraphx_is_not_loaded(
    mxr: Host, host: Hosts, convnet: Path, tmp_path: Path, programs: Programs
) -> None:
    publish(mxr, programs.ref32, convnet)
    app = host("app")
    miss = run(LOAD, str(convnet), WORDS, host=app, path=DOUBLES).json
    assert miss["error"] == "NoSuchArtifactError", "the version asked for is that of the module, 2.15"
    told = run(LOAD, str(convnet), WORDS | {"migraphx": "2.16"}, host=app, path=DOUBLES).json
    assert (told["error"], told["context"]["differences"][0]["field"]) == ("MismatchError", "migraphx")
    assert "2.15.0" in told["message"] and told["hint"]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (
            "/src/src/program.cpp:1: from_value: Program version mismatch. MXR file was created using program file "
            "version: 7, while installed MIGraphX is using program file version: 8",
            "MismatchError",
            "No tool converts between formats",
        ),
        ("a text that nobody knows", "MismatchError", "a text that nobody knows"),
    ],
)
def test_what_migraphx_says_in_plain_words(
    mxr: Host, host: Hosts, convnet: Path, tmp_path: Path, text: str, error: str, said: str
) -> None:
    model = onnx.load(convnet)
    model.metadata_props.add(key="double.load", value=f"refuse:{text}")
    onnx.save(model, convnet)
    publish(mxr, compiled(convnet, tmp_path), convnet, "--migraphx", "2.15")
    told = run(LOAD, str(convnet), WORDS, host=host("app"), path=DOUBLES).json
    assert told["error"] == error and said in told["message"]
    assert text in told["context"]["text"] and told["hint"]


def test_the_empty_placeholder_and_none_at_all(host: Hosts, convnet: Path, tmp_path: Path) -> None:
    """The public index has a package of that name with nothing in it."""
    (tmp_path / "migraphx").mkdir()
    (tmp_path / "migraphx" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    told = run(LOAD, str(convnet), WORDS, host=host("app"), path=tmp_path).json
    assert (told["error"], "placeholder" in told["message"]) == ("UsageError", True)
    none = run(LOAD, str(convnet), WORDS, host=host("app"), path=tmp_path / "empty").json
    assert none["error"] == "UsageError" and "PYTHONPATH" in none["hint"]
