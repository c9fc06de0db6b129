"""From a matrix to a locked deployment: precompiled, locked, carried away, and served where there is nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from end_to_end.stack import Host

from .conftest import Worker

MATRIX = """
version: 1
models:
  - path: convnet.onnx
    batch: [1, 4]
targets:
  - {kind: ref, migraphx: "2.15"}
"""


def test_a_matrix_is_locked_and_carried(
    mxr: Host, host: Callable[..., Host], worker: Callable[..., Worker], convnet: Path
) -> None:
    convnet.rename(mxr.home / "convnet.onnx")
    (mxr.home / "matrix.yaml").write_text(MATRIX)
    error = mxr("lock", "matrix.yaml", "--json", expect=3).error
    assert [row["model"] for row in error["context"]["missing"]] == ["convnet.onnx"] * 2
    assert not (mxr.home / "mxr.lock").exists()

    worker("one").ready()
    mxr("precompile", "matrix.yaml")
    said = mxr("lock", "matrix.yaml", "--json").json
    assert [row["model"] for row in said["entries"]] == ["convnet.onnx"] * 2
    mxr("lock", "--check")

    mxr("export", "mxr.lock", "-o", "bundle.tar")
    lonely = host("lonely", "http://127.0.0.1:9")
    (lonely.home / "convnet.onnx").write_bytes((mxr.home / "convnet.onnx").read_bytes())
    lonely("import", mxr.home / "bundle.tar", "--lock", "mxr.lock")
    words = ("--kind", "ref", "--migraphx", "2.15", "--for", "python", "--batch", "1,4", "-o", "set/")
    found = lonely("fetch", "--locked", "--offline", "convnet.onnx", *words, "--json").json
    assert [row["id"] for row in found["entries"]] == [
        row["id"]
        for batch in (1, 4)
        for row in said["entries"]
        if row["digest"] == next(each["digest"] for each in found["entries"] if each["batch"] == batch)
    ]
    assert json.loads((lonely.home / "set" / "mxr-set.json").read_text())["batches"].keys() == {"1", "4"}
