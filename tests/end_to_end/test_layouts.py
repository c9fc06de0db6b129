"""`mxr fetch --for CONSUMER -o FOLDER/` as a person calls it, and KServe's storage initialiser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT

from .conftest import Programs
from .stack import Host, Registry, finish
from .test_cache import read_only as read_only

ON = ("embedded",)

ARCH = ("--arch", "gfx908:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "4")
Hosts = Callable[..., Host]


def test_a_repository_for_triton(
    host: Hosts, model: Path, published: dict[str, Any], programs: Programs, tmp_path: Path
) -> None:
    other, folder = host("other"), tmp_path / "models"
    said = other("fetch", model, *ARCH, "--for", "triton", "-o", folder)
    assert said.out == f"{folder}/convrelu\n"
    assert f"tritonserver --model-repository={folder}" in said.err
    again = other("fetch", model, *ARCH, "--for", "triton", "-o", f"{folder}/", "--json").json
    assert (again["source"], again["consumer"]) == ("cache", "triton")
    assert f"tritonserver --model-repository={folder}" in again["settings"]
    program, worker, config = map(Path, again["files"])
    assert program.read_bytes() == programs.gfx908.read_bytes()
    assert "class TritonPythonModel" in worker.read_text()
    assert "max_batch_size: 4" in config.read_text() and '"convrelu"' in config.read_text()
    assert other.leftovers() == []


def test_what_is_not_ours_stays(
    host: Hosts, model: Path, published: dict[str, Any], programs: Programs, tmp_path: Path
) -> None:
    other, folder = host("other"), tmp_path / "models"
    folder.mkdir()
    theirs = folder / "convrelu_b4.mxr"
    theirs.write_bytes(b"compiled here last year")
    words = ("fetch", model, *ARCH, "--for", "amdinfer", "-o", f"{folder}/")
    error = other(*words, "--json", expect=7).error
    assert str(theirs) in error["detail"] and "--force" in error["hint"]
    assert "Nothing was written" in other(*words, "--on-miss", "continue").err
    assert theirs.read_bytes() == b"compiled here last year"
    other(*words, "--force")
    assert theirs.read_bytes() == programs.gfx908.read_bytes()
    assert other(*words, "--name", "resnet50").out == f"{folder}/resnet50_b4.mxr\n"
    assert other(*words, "--name", "yolo-v2.7.onnx").out == f"{folder}/yolo-v2.7_b4.mxr\n"


def test_no_command_writes_over_the_model(
    host: Hosts, model: Path, published: dict[str, Any], programs: Programs, tmp_path: Path
) -> None:
    other, before = host("other"), model.read_bytes()
    (tmp_path / "hard.onnx").hardlink_to(model)
    (tmp_path / "soft.onnx").symlink_to(model)
    other("lock", model, *ARCH, "--for", "python", "-o", tmp_path / "mxr.lock")
    for name in (model, tmp_path / "hard.onnx", tmp_path / "soft.onnx"):
        for words in (
            ("fetch", model, *ARCH, "--for", "python", "-o", name),
            ("fetch", model, *ARCH, "--for", "python", "-o", name, "--force"),
            ("fetch", model, *ARCH, "--for", "python", "-o", name, "--link", "--force"),
            ("lock", model, *ARCH, "--for", "python", "-o", name),
            ("export", published["id"], "-o", name),
        ):
            assert str(name) in other(*words, "--json", expect=7).error["detail"]
    assert model.read_bytes() == before and (tmp_path / "hard.onnx").samefile(model)
    program = tmp_path / "out" / "m.mxr"
    for _ in range(2):
        other("fetch", model, *ARCH, "--for", "python", "-o", program)
    assert program.read_bytes() == programs.gfx908.read_bytes()
    assert other("verify", tmp_path / "out", "--json").json["files"] == ["m.mxr"]


def test_a_folder_is_verified_after_its_consumer_has_run(
    host: Hosts, model: Path, published: dict[str, Any], tmp_path: Path
) -> None:
    other, folder = host("other"), tmp_path / "models"
    placed = other("fetch", model, *ARCH, "--for", "triton", "-o", folder, "--json").json["files"]
    found = other("verify", folder, "--json").json
    assert found["ok"] and {str(folder / name) for name in found["files"]} == set(placed)
    assert "3 files, all as mxr wrote them" in other("verify", folder).out
    program, worker, _ = map(Path, placed)
    program.unlink()
    worker.write_text("changed")
    error = other("verify", folder, "--json", expect=6).error
    kinds = {row["path"]: row["kind"] for row in error["context"]["findings"]}
    assert kinds == {str(program): "missing", str(worker): "rewritten"}
    said = other("verify", folder, expect=6).err
    assert f"{program}: missing" in said and f"{worker}: rewritten" in said
    assert error["hint"].endswith(f"repeat `mxr fetch` with -o {folder} --force.")
    other("fetch", model, *ARCH, "--for", "triton", "-o", folder, "--force")
    other("verify", folder)


def test_an_epcontext_model(mxr: Host, host: Hosts, model: Path, programs: Programs, tmp_path: Path) -> None:
    flags = ("--no-offload-copy", "--no-fast-math")
    said = mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", *flags, "--json", expect=6).error
    assert "offload_copy" in said["detail"], "this program binds its buffers itself"
    other = host("other")
    asked = other("fetch", model, *ARCH, "--for", "epcontext", "-o", tmp_path / "m", expect=3)
    assert asked.out == ""


@pytest.fixture
def kept(mxr: Host, tmp_path: Path, programs: Programs, model: Path, registry: Registry) -> str:
    """A model that the registry keeps whole, since somebody asked for a compile, with a program: its hash."""
    pushed = mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json").json
    mxr("fetch", model, "--arch", "gfx90a", *ARCH[2:], "--for", "python", "--on-miss", "ask", expect=4)
    found: str = pushed["key"]["model"]
    return found


def test_kserve_lays_out_a_model_known_by_its_hash(kept: str, host: Hosts, programs: Programs, tmp_path: Path) -> None:
    """The names of its outputs come from the ONNX file that the registry keeps."""
    init, volume = host("init container"), tmp_path / "mnt" / "models"
    uri = f"mxr://{kept}?for=triton&name=relu&batch=4&rocm=7.2&migraphx=2.15&arch=gfx908:sramecc%2B:xnack-"
    said = init("kserve-init", uri, volume)
    assert said.out == f"{volume}/relu\n"
    config = (volume / "relu" / "config.pbtxt").read_text()
    assert 'output { name: "y"' in config
    (program,) = volume.glob("relu/[0-9]*/relu.mxr")
    assert program.read_bytes() == programs.gfx908.read_bytes()
    assert not (tmp_path / "m").exists()


def test_kserve_says_what_is_missing_of_a_model_that_nobody_keeps(
    host: Hosts, published: dict[str, Any], tmp_path: Path
) -> None:
    uri = f"mxr://{published['key']['model']}?for=triton&batch=4&rocm=7.2&migraphx=2.15&arch=gfx908"
    said = host("init")("kserve-init", uri, tmp_path / "m", expect=3).err
    assert "the registry does not store it" in said and "ONNX file" in said


def test_the_files_for_kserve_are_what_kserve_reads() -> None:
    """Source: kserve.github.io, Storage Containers: the container's name, and one prefix per scheme."""
    container = yaml.safe_load((ROOT / "deploy" / "kserve" / "storage-container.yaml").read_text())
    assert container["kind"] == "ClusterStorageContainer"
    assert container["spec"]["container"]["name"] == "storage-initializer"
    assert container["spec"]["supportedUriFormats"] == [{"prefix": "mxr://"}]
    service = yaml.safe_load((ROOT / "deploy" / "kserve" / "inference-service.yaml").read_text())
    from mxr.consumers import kserve

    assert kserve.read_uri(service["spec"]["predictor"]["model"]["storageUri"]).words[0] == "--for=amdinfer-repo"
    assert '["mxr", "kserve-init"]' in (ROOT / "deploy" / "kserve" / "Dockerfile").read_text()


def test_a_folder_that_may_not_be_written(
    host: Hosts,
    model: Path,
    published: dict[str, Any],
    tmp_path: Path,
    read_only: Callable[[Path], tuple[str, ...]],
) -> None:
    other, folder = host("other"), tmp_path / "models"
    folder.mkdir()
    error = other(
        "fetch", model, *ARCH, "--for", "triton", "-o", f"{folder}/", "--json", expect=7, through=read_only(folder)
    ).error
    assert str(folder) in error["detail"] and "another path" in error["hint"]
    assert list(folder.iterdir()) == []


def test_two_fetches_into_one_folder_at_once(
    mxr: Host, host: Hosts, model: Path, published: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "models"
    words = ("fetch", model, *ARCH, "--for", "triton", "-o", f"{folder}/", "--json")
    started = [host(f"host {n}").start(*words) for n in range(3)]
    for process in started:
        done = finish(process)
        assert done.code == 0, done
        assert json.loads(done.out)["path"] == f"{folder}/convrelu"
    record = json.loads((folder / ".mxr-layout.json").read_text())
    assert record["slots"]["convrelu/config.pbtxt"]["id"] == published["id"]
    assert len(list((folder / "convrelu").iterdir())) == 2


def test_the_library_lays_out_too(host: Hosts, model: Path, published: dict[str, Any], tmp_path: Path) -> None:
    program = """
import json, sys, mxr
words = dict(arch="gfx908:sramecc+:xnack-", rocm="7.2", migraphx="2.15", batch=4, consumer="triton")
found = mxr.fetch(sys.argv[1], output=sys.argv[2], **words)
print(json.dumps([str(found.path), sorted(each.name for each in found.path.iterdir())[-1]]))
"""
    assert host("app").python(program, model, tmp_path / "m").json == [f"{tmp_path}/m/convrelu", "config.pbtxt"]


def test_a_consumer_is_listed_with_what_it_gets_in_a_folder(mxr: Host) -> None:
    rows = {row["name"]: row for row in mxr("consumers", "--json").json["consumers"]}
    assert rows["triton"]["layout"].endswith("<stem>/config.pbtxt")
    assert rows["amdinfer-repo"]["page"] == "docs/consumers/amdinfer.md"
    assert rows["ort"]["layout"].endswith("<shape>.mxr")
    shown = mxr("consumers").out
    assert all(name in shown for name in rows) and "docs/consumers/triton.md" in shown
