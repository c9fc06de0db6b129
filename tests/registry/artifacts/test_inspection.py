"""The child that reads programs: what it says, and that nothing it does reaches the registry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from paths import DATA
from registry.registry_client import Parts

from mxr.artifact.manifest import Blob, File
from mxr.errors import DamagedError, NoSuchBlobError
from mxr.onnxfile import read_model
from mxr.onnxfile.reader import structure_of
from mxr.program import describe
from mxr.program.source import BytesSource
from mxr_registry.artifacts import inspection
from mxr_registry.artifacts.inspection import RefusalMemory
from mxr_registry.artifacts.inspector import PagedSource
from mxr_registry.config.limits import RequestLimits
from mxr_registry.storage.local import LocalStore


@pytest.fixture(scope="module")
def engine() -> str:
    """What reads programs knows no database."""
    return "sqlite"


def keep(root: Path, data: bytes, cut: int) -> File:
    store, blobs = LocalStore(root), []
    for part in (data[at : at + cut] for at in range(0, len(data), cut)):
        upload = store.begin(sha256(part).hexdigest(), len(part))
        upload.write(part)
        upload.commit()
        blobs.append(Blob(upload.sha256, len(part)))
    return File("m.mxr", len(data), sha256(data).hexdigest(), tuple(blobs))


@pytest.mark.parametrize("cut", [1000, 4096, 10**6])
def test_the_child_says_what_the_reader_says(tmp_path: Path, parts: Parts, cut: int) -> None:
    file = keep(tmp_path, parts.gfx908, cut)
    (found,) = inspection.inspect(LocalStore(tmp_path), [file], RequestLimits(), RefusalMemory())
    assert found == json.loads(json.dumps(describe(BytesSource(parts.gfx908)).to_json()))


def test_a_foreign_file_is_the_readers_error_with_its_offset(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=r"m\.mxr") as caught:
        inspection.inspect(
            LocalStore(tmp_path), [keep(tmp_path, b"<!doctype html>" * 9, 40)], RequestLimits(), RefusalMemory()
        )
    assert "offset" in caught.value.context


def test_a_reader_that_takes_too_long_is_ended(tmp_path: Path, parts: Parts) -> None:
    file = keep(tmp_path, parts.gfx908, 10**6)
    with pytest.raises(DamagedError, match="seconds"):
        inspection.inspect(LocalStore(tmp_path), [file], RequestLimits(inspect_wall=0.001), RefusalMemory())


@pytest.mark.parametrize("limits", [RequestLimits(inspect_memory=2**20), RequestLimits(inspect_cpu=0)])
def test_a_reader_without_means_fails_alone(tmp_path: Path, parts: Parts, limits: RequestLimits) -> None:
    file = keep(tmp_path, parts.gfx908, 10**6)
    with pytest.raises(DamagedError):
        inspection.inspect(LocalStore(tmp_path), [file], limits, RefusalMemory())


@pytest.mark.parametrize("page", [1, 50, 77, 128, 5000])
def test_range_reads_over_blobs_are_those_of_the_file(tmp_path: Path, page: int) -> None:
    data = os.urandom(1000)
    blobs = inspection.BlobSource(LocalStore(tmp_path), keep(tmp_path, data, 77))
    reads: list[tuple[int, int]] = []

    def read_range(offset: int, length: int) -> bytes:
        reads.append((offset, length))
        return b"".join(blobs.read(offset, length))

    source = PagedSource(blobs.size, page, read_range, blobs.edges)
    assert source.size == len(data)
    source.read_at(100, 3)
    assert reads == [(100, 3)] if page < 4 else [(100 - 23 % page, min(page, 77 - 23 + 23 % page))]
    for offset in (0, 1, 76, 77, 78, 500, 999, 1000, 2000):
        for length in (0, 1, 76, 77, 78, 300, 5000):
            assert source.read_at(offset, length) == data[offset : offset + length]


@pytest.mark.parametrize(
    "said",
    [
        "[0, 0, 10**9]",
        "[0, -1, 1]",
        "[1, 0, 1]",
        "[0, 0, 0]",
        "[0, 0.5, 1]",
        "'no list'",
        "None",
        "[]",
    ],
)
def test_a_child_that_asks_for_what_is_not_its_own_gets_nothing(
    tmp_path: Path, parts: Parts, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one would that a file has taken over."""
    code = f"import sys,json; sys.stdin.readline(); print(json.dumps({said}), flush=True); sys.stdin.read()"
    monkeypatch.setattr(inspection, "COMMAND", (sys.executable, "-c", code))
    with pytest.raises(DamagedError, match="signal 9"):
        inspection.inspect(
            LocalStore(tmp_path), [keep(tmp_path, parts.gfx908, 10**6)], RequestLimits(), RefusalMemory()
        )


def test_a_child_has_no_key_to_the_store(tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    # It reads its order first, as an inspector does: who ends before is written to in vain.
    code = "import json,os,sys; sys.stdin.readline(); print(json.dumps({'descriptions': [dict(os.environ)]}))"
    monkeypatch.setattr(inspection, "COMMAND", (sys.executable, "-c", code))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("MXR_DATABASE_URL", "postgresql://mxr:secret@/mxr")
    monkeypatch.setenv("WHATEVER_THE_OPERATOR_KEEPS_HERE", "secret")
    (found,) = inspection.inspect(
        LocalStore(tmp_path), [keep(tmp_path, parts.gfx908, 10**6)], RequestLimits(), RefusalMemory()
    )
    assert "PATH" in found and "secret" not in str(found)
    # The C library and Python add these by themselves.
    assert set(found) <= {*inspection.ENVIRONMENT, "LC_CTYPE", "__CF_USER_TEXT_ENCODING"}


def test_a_store_that_does_not_answer_is_not_the_files_fault(tmp_path: Path, parts: Parts) -> None:
    file = keep(tmp_path, parts.gfx908, 10_000)
    LocalStore(tmp_path).delete(file.blobs[-1].sha256)
    with pytest.raises(NoSuchBlobError):
        inspection.inspect(LocalStore(tmp_path), [file], RequestLimits(), RefusalMemory())


def test_the_child_starts_without_the_registrys_heavy_parts() -> None:
    code = (
        "import sys, mxr_registry.artifacts.inspector, mxr.program\n"
        "heavy = ('sqlalchemy', 'fastapi', 'alembic', 'click', 'boto3', 'mxr_registry.storage')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("cut", [8000, 10**7])
def test_a_look_at_a_model_says_what_the_walk_says(tmp_path: Path, cut: int) -> None:
    path = DATA / "models" / "convnet.onnx"
    found = inspection.describe_model(
        LocalStore(tmp_path), keep(tmp_path, path.read_bytes(), cut), RequestLimits(), RefusalMemory()
    )
    model = read_model(path, weight_dims=True)
    assert found["graph"] == structure_of(path.read_bytes())
    assert [each["name"] for each in found["inputs"]] == [each.name for each in model.inputs]
    assert [each["dims"] for each in found["outputs"]] == [list(each.dims or ()) for each in model.outputs]
    assert set(found["types"]) == model.types
    assert found["operators"] == []
    assert found["weight_dims"] == {name: [dim.axis, dim.size, dim.rank] for name, dim in model.weight_dims}


@pytest.mark.parametrize("data", [b"<!doctype html>" * 9, b"\x3a\xff\xff\xff\xff\x07", b"\x08\x08"])
def test_what_is_no_model_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DamagedError):
        inspection.describe_model(LocalStore(tmp_path), keep(tmp_path, data, 40), RequestLimits(), RefusalMemory())


def test_a_model_beyond_the_limits_is_refused(tmp_path: Path, parts: Parts) -> None:
    file = keep(tmp_path, (DATA / "models" / "convnet.onnx").read_bytes(), 10**6)
    for limits in (RequestLimits(inspect_memory=2**20), RequestLimits(inspect_wall=0.001)):
        with pytest.raises(DamagedError):
            inspection.describe_model(LocalStore(tmp_path), file, limits, RefusalMemory())
