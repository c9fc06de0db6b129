"""Files that are not programs: each is identified by an error with a hint and exit code 65."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile

import pytest
from core.program import program_maker as make
from harness.rows import for_each

from mxr.errors import DamagedError
from mxr.program import BytesSource, describe, read_header


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", "b")
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.mxr"))
    return file.getvalue()


SAFETENSORS = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
FILES = {
    "an HTML page": b"<!DOCTYPE html><html><body>404</body></html>",
    "an XML document": b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>',
    "a gzip archive": gzip.compress(make.program([])),
    "a zip archive": zipped(),
    "a tar archive": tarred(),
    "a zstd archive": b"\x28\xb5\x2f\xfd\x04\x00",
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "an ELF file": make.hsaco("gfx1100.cov5.hsaco"),
    "a bundle of GPU code objects": make.hsaco("gfx90a_sramecc+_xnack-.bundle.co"),
    "an ONNX model": (make.DATA / "models" / "convnet.onnx").read_bytes(),
    "a safetensors file": len(SAFETENSORS).to_bytes(8, "little") + SAFETENSORS + bytes(4),
    "a NumPy array": b"\x93NUMPY\x01\x00v\x00{'descr'",
    "a Python pickle": pickle.dumps({"a": 1}),
    "a text file": b"The model is in the other folder.\n",
}


@for_each(FILES)
def test_foreign_file(what):
    for read in (describe, read_header):
        with pytest.raises(DamagedError, match=what) as caught:
            read(BytesSource(FILES[what]))
        assert caught.value.exit == 65
        assert caught.value.context["offset"] == 0
        assert caught.value.context["looks_like"].startswith(what)
        assert caught.value.hint


def test_an_empty_file():
    with pytest.raises(DamagedError, match="The file is empty"):
        describe(BytesSource(b""))


@pytest.mark.parametrize("model", ["block", "convrelu", "mlp_ext"])
def test_every_model_is_identified_as_an_onnx_model(model):
    with pytest.raises(DamagedError, match="an ONNX model"):
        describe(BytesSource((make.DATA / "models" / f"{model}.onnx").read_bytes()))


def test_other_messagepack_and_other_json():
    with pytest.raises(DamagedError, match="'modules' is missing"):
        describe(BytesSource(make.pack({"a": 1, "b": [1, 2]})))
    for text in (b'{"a": 1}', b"{", b'{"modules": {}}', b"[1, 2]"):
        with pytest.raises(DamagedError):
            describe(BytesSource(text))


def test_a_program_with_a_truncated_header_is_reported_as_truncated():
    with pytest.raises(DamagedError, match="The file ends"):
        describe(BytesSource(make.program(make.add_relu())[:30]))
