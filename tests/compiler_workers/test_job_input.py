"""What a worker refuses before any child gets a file, whatever the registry says."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from harness.hostile_models import attacks, model
from onnx import TensorProto, helper

from mxr.artifact.attributes import Constraints
from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, File, Manifest
from mxr.errors import DamagedError
from mxr.onnxfile.writing import field
from mxr.protocol.jobs import Lease
from mxr_workers import reading
from mxr_workers.reading import RefusedInput, check_model, check_samples

from .conftest import MODEL


def lease(folder: Path, onnx: bytes, **external: bytes) -> Lease:
    """A lease of a model whose files lie in `folder`."""
    files = {"model.onnx": onnx, **external}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    shas = {name: sha256(data).hexdigest() for name, data in files.items()}
    manifest = Manifest(
        tuple(File(name, len(data), shas[name], (Blob(shas[name], len(data)),)) for name, data in sorted(files.items()))
    )
    key = Key(MODEL, "ref", "2.15", (("x", (16,)),))
    return Lease("ab" * 16, 60.0, key, Constraints(), manifest, "model.onnx")


def test_a_model_that_reads_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "secret").write_bytes(b"token")
    for what, onnx in attacks():
        with pytest.raises(RefusedInput):
            check_model(tmp_path / "spool", lease(tmp_path / "spool", onnx, **{"w.bin": bytes(16)}))
            pytest.fail(what)


def test_a_model_that_takes_memory_or_time_ends_a_child_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = field(7, field(1, field(4, "Relu")) * 990_000)
    check_model(tmp_path, lease(tmp_path, onnx))
    for name, value in (("MEMORY", 1 << 20), ("CPU_SECONDS", 1), ("WALL_SECONDS", 0.01)):
        with monkeypatch.context() as patched, pytest.raises(RefusedInput, match=r"Reading|memory"):
            patched.setattr(reading, name, value)
            check_model(tmp_path, lease(tmp_path, onnx))


def test_the_child_that_reads_gets_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXR_TOKEN", "secret")
    monkeypatch.setattr(reading, "COMMAND", (sys.executable, "-c", "import os; print([*os.environ]); 1/0"))
    with pytest.raises(DamagedError) as caught:
        reading.describe_program(Path("x"))
    assert "ZeroDivisionError" in caught.value.message
    script = "import os, json; print(json.dumps({'result': dict(os.environ)}))"
    monkeypatch.setattr(reading, "COMMAND", (sys.executable, "-c", script))
    assert set(reading.describe_program(Path("x"))) <= {*reading.ENVIRONMENT, "LC_CTYPE"}


def test_only_the_files_of_the_lease_are_read(tmp_path: Path) -> None:
    onnx = model(("location", "w.bin"))
    check_model(tmp_path, lease(tmp_path, onnx, **{"w.bin": bytes(16)}))
    # The file is there, from another job, but it is not in this lease.
    with pytest.raises(RefusedInput, match="manifest"):
        check_model(tmp_path, lease(tmp_path, onnx))
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to("/etc/hostname")
    honest = lease(tmp_path, onnx)
    named = Manifest((*honest.model.files, File("w.bin", 0, sha256(b"").hexdigest(), ())))
    wanted = Lease("ab" * 16, 60.0, honest.key, Constraints(), named, "model.onnx")
    with pytest.raises(RefusedInput, match="symbolic link"):
        check_model(tmp_path, wanted)
    elsewhere = Lease("ab" * 16, 60.0, honest.key, Constraints(), named, "../model.onnx")
    with pytest.raises(RefusedInput, match="has no file"):
        check_model(tmp_path, elsewhere)
    with pytest.raises(RefusedInput):
        check_model(tmp_path, lease(tmp_path, b"<!doctype html>" * 9))


def with_input(name: str) -> bytes:
    """A model with one float input of 16 elements."""
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [16])
    return helper.make_model(helper.make_graph([], "g", [value], [])).SerializeToString()


def test_calibration_data_that_do_not_fit_are_refused_with_the_input(tmp_path: Path) -> None:
    taken, path = lease(tmp_path, with_input("x")), tmp_path / "samples.npz"
    np.savez(path, x=np.ones((3, 16), "f4"))
    check_samples(path, tmp_path, taken)
    for arrays, said in (({"y": np.ones(16, "f4")}, "no input y"), ({"x": np.ones(15, "f4")}, "input x have the dims")):
        np.savez(path, **arrays)
        with pytest.raises(RefusedInput, match=said):
            check_samples(path, tmp_path, taken)
    path.write_bytes(b"random")
    with pytest.raises(RefusedInput, match=r"not an \.npz file"):
        check_samples(path, tmp_path, taken)


def test_calibration_data_that_take_memory_or_time_end_a_child_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, path = lease(tmp_path, with_input("x")), tmp_path / "samples.npz"
    np.savez(path, x=np.ones((1 << 20, 16), "f4"))
    check_samples(path, tmp_path, taken)
    for name, value in (("MEMORY", 1 << 20), ("WALL_SECONDS", 0.01)):
        with monkeypatch.context() as patched, pytest.raises(RefusedInput, match=r"Reading|memory"):
            patched.setattr(reading, name, value)
            check_samples(path, tmp_path, taken)
