"""The reason that a command gives is the true one, and what it advises works."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from harness.programs import BIN
from onnx import helper

from .conftest import Programs
from .stack import Host

ON = ("embedded",)

Hosts = Callable[..., Host]
NOT_UTF8 = os.fsdecode(b"\xc4\xa3\xd0\xcd.onnx")
"""A name in GBK, as zip archives have it."""


@pytest.mark.parametrize(
    "words",
    [
        ("identity", "MODEL"),
        ("key", "MODEL", "GPU"),
        ("fetch", "MODEL", "GPU"),
        ("fetch", "MODEL", "GPU", "-o", "out/", "--name", "named"),
        ("fetch", "MODEL", "GPU", "-o", "out.mxr"),
        ("freeze", "MODEL", "--batch", "4", "-o", "frozen/", "--force"),
    ],
    ids=lambda words: words[0],
)
def test_a_name_that_is_not_utf8(
    mxr: Host, model: Path, published: object, gpu: tuple[str, ...], tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Each command does its work."""
    odd = tmp_path / NOT_UTF8
    shutil.copy(model, odd)
    given = [part for word in words for part in ([str(odd)] if word == "MODEL" else gpu if word == "GPU" else [word])]
    for more in ((), ("--json",)):
        done = _run(mxr, *given, *more)
        assert done[0] == 0, done


def test_a_name_that_is_not_utf8_is_not_placed(
    mxr: Host, model: Path, published: object, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    odd = tmp_path / NOT_UTF8
    shutil.copy(model, odd)
    for words in (("-o", "out/"), ("-o", "out/", "--for", "triton")):
        code, out, err = _run(mxr, "fetch", str(odd), *gpu, *words, "--json")
        assert (code, "is not UTF-8" in out, "--name NAME" in out) == (2, True, True), (code, out, err)
    # A lock could not be read again. By its identity, the model can be locked.
    code, out, err = _run(mxr, "lock", str(odd), *gpu, "-o", "mxr.lock", "--json")
    assert (code, "is not UTF-8" in out) == (2, True), (code, out, err)
    assert not (mxr.home / "mxr.lock").exists()
    command = json.loads(out)["error"]["hint"].split("`")[1]
    mxr(*command.split()[1:], *gpu[:-4], *gpu[-2:], "--input", "x=4,3,32,32", "-o", "mxr.lock")
    assert len(mxr("fetch", "--locked", "mxr.lock", "--json").json["entries"]) == 1


def _run(mxr: Host, *words: str) -> tuple[int, str, str]:
    command = [os.fsencode(word) for word in (str(BIN / "mxr"), *words)]
    done = subprocess.run(command, env=mxr.environ, cwd=mxr.home, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def test_a_damaged_program_is_not_one_that_the_cache_never_had(
    mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...], tmp_path: Path
) -> None:
    lock = tmp_path / "mxr.lock"
    mxr("lock", model, *gpu, "-o", lock)
    for words in (
        ("fetch", model, *gpu),
        ("fetch", "--locked", lock, model, *gpu),
        ("fetch", model, "--arch", "gfx908"),
    ):
        path = Path(mxr("fetch", model, *gpu, "--json").json["path"])
        path.chmod(0o644)
        path.write_bytes(b"damaged")
        error = mxr(*words, "--offline", "--json", expect=69).error
        assert "damaged" in error["detail"] and "without --offline" in error["hint"]


def test_a_lock_with_a_byte_order_mark(
    mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...], tmp_path: Path
) -> None:
    """As editors of Windows write one."""
    lock = tmp_path / "deployed.json"
    mxr("lock", model, *gpu, "-o", lock)
    lock.write_bytes(b"\xef\xbb\xbf\r\n" + lock.read_bytes())
    found = mxr("fetch", "--locked", lock, "--json").json
    assert [each["id"] for each in found["entries"]] == [published["id"]]
    assert mxr("fetch", "--locked", lock, model, *gpu, "--json").json["id"] == published["id"]


def test_a_suggested_option_can_be_pasted(mxr: Host, tmp_path: Path) -> None:
    names = ["my input", "it's", "a;b"]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", "S"]) for name in names]
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", "S"])
    model = helper.make_model(helper.make_graph([helper.make_node("Sum", names, ["y"])], "g", values, [out]))
    onnx.save(model, tmp_path / "m.onnx")
    facts = ("--arch", "gfx908", "--rocm", "7.2", "--migraphx", "2.15")
    hint = mxr("key", tmp_path / "m.onnx", *facts, "--json", expect=2).error["hint"]
    words = shlex.split(hint.partition("for example: ")[2])
    assert words[::2] == ["--input"] * 3 and [word.partition("=")[0] for word in words[1::2]] == names
    mxr("key", tmp_path / "m.onnx", *facts, *words)


def test_the_names_of_frozen_models_have_their_shapes(mxr: Host, tmp_path: Path) -> None:
    """A second size of a model is written beside the first one, as OCR needs it."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3, 48, "W"])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    onnx.save(
        helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])),
        tmp_path / "ocr.onnx",
    )
    for width in (320, 640):
        mxr("freeze", tmp_path / "ocr.onnx", "--batch", "1,4", "--input", f"x=1,3,48,{width}", "-o", tmp_path / "out")
    names = [f"ocr.b{batch}.3x48x{width}.onnx" for batch in (1, 4) for width in (320, 640)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


def test_recorded_files_of_another_gpu_are_not_answered_with_a_third_one(
    mxr: Host, model: Path, programs: Programs, tmp_path: Path
) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    shutil.copy(programs.gfx908, folder / "abcdef12-1234567890abcdef-1234567890abcdef-1234567890abcdef.mxr")
    words = (
        "import",
        "--ort-cache",
        folder,
        "--model",
        model,
        "--rocm",
        "7.2",
        "--migraphx",
        "2.15",
        "--batch",
        "4",
        "--ort",
        "1.27.1",
    )
    for arch, full in (("gfx1100", None), ("gfx90a", "gfx90a:sramecc+:xnack+")):
        error = mxr(*words, "--arch", arch, "--json", expect=2).error
        assert f"is for {arch}" in error["detail"] and "gfx942" not in error["hint"]
        assert full is None or full in error["hint"]
