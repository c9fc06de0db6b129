"""A model is replaced in place, and the old program lies beside it: nothing takes that for one of the new model."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from .conftest import Programs
from .large_program import write_program
from .stack import Host

ARCH = ("--arch", "gfx908:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15")
TARGET = (*ARCH, "--batch", "4")
AMDINFER = ("--rocm", "7.2", "--for", "amdinfer")


@pytest.fixture
def folder(mxr: Host, model: Path, programs: Programs, tmp_path: Path) -> Path:
    """The folder of a server: the model, its program as mxr placed it, and a lock of it."""
    made = tmp_path / "server"
    made.mkdir()
    shutil.copy(model, made / "net.onnx")
    mxr("push", programs.gfx908, "--model", made / "net.onnx", *AMDINFER)
    mxr("fetch", "net.onnx", *TARGET, "--for", "amdinfer", "-o", ".", cwd=made)
    mxr("lock", "net.onnx", *TARGET, "--for", "amdinfer", "-o", "mxr.lock", cwd=made)
    assert (made / "net_b4.mxr").exists()
    for words in (("verify", "."), ("check", ".", *ARCH), ("verify", "mxr.lock", "--in", ".")):
        mxr(*words, cwd=made)
    mxr("fetch", "--locked", "--arch", "gfx908", "-o", ".", cwd=made)
    return made


def replace_model(folder: Path) -> str:
    """Other weights in the same file. Source of the field: onnx.proto, ModelProto.doc_string."""
    path = folder / "net.onnx"
    path.write_bytes(path.read_bytes() + b"\x32\x0anew model!")
    return "net.onnx"


def test_what_looks_at_the_folder_sees_the_other_model(mxr: Host, folder: Path) -> None:
    replace_model(folder)
    for words, code in (
        (("verify", "."), 6),
        (("check", ".", *ARCH), 6),
        (("check", "net_b4.mxr", *ARCH), 6),
        (("verify", "mxr.lock"), 6),
        (("verify", "mxr.lock", "--in", "."), 6),
        (("fetch", "--locked", "--arch", "gfx908", "-o", "."), 6),
        (("fetch", "--locked", "--arch", "gfx908"), 6),
        (("lock", "--check"), 6),
    ):
        done = mxr(*words, cwd=folder, expect=code)
        assert "net.onnx" in done.err + done.out and "another model" in done.err + done.out, words
    found = mxr("verify", ".", "--json", cwd=folder, expect=6).error["context"]["findings"]
    assert [(row["kind"], Path(row["path"]).name) for row in found] == [("replaced", "net.onnx")]
    found = mxr("verify", "mxr.lock", "--in", ".", "--json", cwd=folder, expect=6).error["context"]["entries"]
    assert [row["state"] for row in found] == ["other_model"]


def test_a_locked_program_is_not_placed_beside_another_model(mxr: Host, folder: Path, tmp_path: Path) -> None:
    """The lock lies elsewhere, so that only the folder knows."""
    replace_model(folder)
    (folder / "net_b4.mxr").unlink()
    (folder / ".mxr-layout.json").unlink()
    (tmp_path / "locks").mkdir()
    lock = shutil.copy(folder / "mxr.lock", tmp_path / "locks" / "mxr.lock")
    words = ("fetch", "--locked", lock, "--arch", "gfx908", "-o", folder)
    done = mxr(*words, expect=6)
    assert "net.onnx is another model now" in done.err and "--force" in done.err
    assert not (folder / "net_b4.mxr").exists()
    mxr(*words, "--force")
    assert (folder / "net_b4.mxr").exists()


def test_a_folder_does_not_publish_the_old_program_as_that_of_the_new_model(
    mxr: Host, folder: Path, programs: Programs
) -> None:
    replace_model(folder)
    done = mxr("push", ".", *AMDINFER, cwd=folder, expect=6, also_for=False)
    assert "mxr placed net_b4.mxr as the program of sha256:" in done.err and "--also-for" in done.err
    assert mxr("fetch", "net.onnx", *TARGET, "--for", "amdinfer", cwd=folder, expect=3)
    # By hand as well, and without mxr's record.
    for words in (("push", "net_b4.mxr", "--model", "net.onnx"), ("push", programs.gfx908, "--model", "net.onnx")):
        done = mxr(*words, *AMDINFER, cwd=folder, expect=6, also_for=False)
        assert "--also-for" in done.err
    (folder / ".mxr-layout.json").unlink()
    done = mxr("push", ".", *AMDINFER, cwd=folder, expect=6, also_for=False)
    assert "published for another model" in done.err
    # Two ONNX files of one graph and the same weights are the case where it is meant.
    done = mxr("push", ".", *AMDINFER, cwd=folder)
    assert "net.onnx is newer than net_b4.mxr" in done.err
    os.utime(folder / "net.onnx", (1, 1))
    assert "newer" not in mxr("push", ".", *AMDINFER, cwd=folder).err


def test_a_program_that_the_server_compiled_again_is_published(mxr: Host, folder: Path, programs: Programs) -> None:
    """The record is of other bytes: it contradicts nothing."""
    replace_model(folder)
    shutil.copy(programs.gfx942, folder / "net_b4.mxr")
    done = mxr("push", ".", *AMDINFER, "--json", cwd=folder)
    assert [row["file"] for row in done.json["files"]] == ["net_b4.mxr"] and "newer" not in done.err


def test_what_was_removed_is_neither_exported_nor_published_again(
    mxr: Host, host: Callable[..., Host], model: Path, programs: Programs, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    words = ("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    id = mxr(*words).out.strip()
    mxr("fetch", model, *gpu)
    mxr("lock", model, *gpu, "-o", tmp_path / "m.lock")
    old = tmp_path / "old.tar"
    mxr("export", id, "-o", old)
    mxr("rm", id, "--yes", "--force")
    assert "was removed by" in mxr("show", id, expect=3).err
    sources = (id, tmp_path / "m.lock")
    for source in sources:
        # Before and after this cache learned of it.
        done = mxr("export", source, "-o", tmp_path / "new.tar", expect=3)
        assert "was removed" in done.err and "--include-removed" in done.err
        mxr("fetch", model, *gpu, "--refresh", expect=3)
    assert not (tmp_path / "new.tar").exists()
    for source in sources:
        mxr("export", source, "-o", tmp_path / "new.tar", "--include-removed")
    other = host("other")
    done = other("import", old, "--into", "registry", expect=6)
    assert "was removed by" in done.err and "--restore" in done.err
    assert "--restore" in mxr(*words, expect=6).err
    other("fetch", model, *gpu, expect=3)
    other("import", old, "--into", "registry", "--restore")
    assert json.loads(other("show", id, "--json").out)["restored_by"]
    assert "restored" in other("show", id).out
    other("fetch", model, *gpu)


@pytest.mark.parametrize("outside", [False, True], ids=["inside", "external"])
def test_a_program_without_the_weights_of_its_model_is_doubted(
    mxr: Host, model: Path, tmp_path: Path, outside: bool
) -> None:
    """The model was trained again: the graph, the names and the sizes are those of the program, the weights are not."""
    size, numbers = 128 << 10, random.Random(31)
    program = write_program(tmp_path / "old.mxr", weights=3, size=size, seed=31)
    weights = [numbers.randbytes(size) for _ in range(3)]
    graph = model.read_bytes()

    def trained(values: list[bytes]) -> None:
        tensors = [
            onnx.TensorProto(name=f"w{at}", data_type=onnx.TensorProto.FLOAT, dims=[size // 4], raw_data=value)
            for at, value in enumerate(values)
        ]
        if outside:
            (tmp_path / "w.bin").write_bytes(bytes(4096) + b"".join(values))
            for at, each in enumerate(tensors):
                each.ClearField("raw_data")
                each.data_location = onnx.TensorProto.EXTERNAL
                words = {"location": "w.bin", "offset": str(4096 + at * size), "length": str(size)}
                each.external_data.extend(onnx.StringStringEntryProto(key=key, value=words[key]) for key in words)
        model.write_bytes(graph + onnx.ModelProto(graph=onnx.GraphProto(initializer=tensors)).SerializeToString())

    words = ("push", program, "--model", model, "--kind", "ref", "--for", "python", "--json")
    trained(weights)
    assert not [each for each in mxr(*words).json["warnings"] if "weights" in each]
    # One that stayed is no proof, but enough to say nothing.
    trained([bytes(size), bytes([1]) * size, weights[2]])
    assert not [each for each in mxr(*words).json["warnings"] if "weights" in each]
    trained([bytes([at]) * size for at in range(3)])
    (warning,) = [each for each in mxr(*words).json["warnings"] if "weights" in each]
    assert f"none of the 3 weights of {model.name}" in warning
    shown = mxr("show", mxr(*words).json["id"], "--json").json
    assert warning in shown["provenance"]["warnings"]
