"""Folders that servers with different GPUs share: no program is lost in silence, and what does not fit is found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import DATA

from .conftest import Programs
from .stack import Host
from .test_cache import read_only as read_only

ON = ("embedded",)

TOOLS = ("--rocm", "7.2", "--migraphx", "2.15")
AMDINFER = ("--batch", "4", "--for", "amdinfer")
GFX90A_XNACK = DATA / "mxr_spliced" / "v7_gfx90a_sramecc+_xnack+.cov5.mxr"
GFX90A = DATA / "mxr_spliced" / "v7_gfx90a_sramecc+_xnack-.bundle.mxr"


@pytest.fixture
def fleet(mxr: Host, model: Path, programs: Programs) -> dict[str, str]:
    """One program for each GPU, published: ids by name."""
    files = {"gfx908": programs.gfx908, "gfx942": programs.gfx942, "xnack+": GFX90A_XNACK, "xnack-": GFX90A}
    words = ("--model", model, "--rocm", "7.2", "--for", "amdinfer")
    return {name: mxr("push", file, *words, "--json").json["id"] for name, file in files.items()}


def test_another_gpus_program_is_not_replaced(
    mxr: Host, host: Callable[..., Host], model: Path, fleet: dict[str, str], tmp_path: Path
) -> None:
    """AMD Inference Server opens <stem>_b<batch>.mxr and checks nothing else. Source: Xilinx/inference-server,
    src/amdinfer/workers/migraphx.cpp.
    """
    folder = tmp_path / "shared"
    mxr("fetch", model, "--arch", "gfx908", *TOOLS, *AMDINFER, "-o", f"{folder}/")
    first = (folder / "convrelu_b4.mxr").read_bytes()
    words = ("fetch", model, "--arch", "gfx942", *TOOLS, *AMDINFER, "-o", f"{folder}/")
    error = host("other")(*words, "--json", expect=7).error
    assert "arch gfx908 there, gfx942 requested" in error["detail"] and "--per-arch" in error["hint"]
    assert (folder / "convrelu_b4.mxr").read_bytes() == first

    found = host("other")(*words, "--per-arch", "--json").json
    assert found["path"] == f"{folder}/gfx942/convrelu_b4.mxr" and found["id"] == fleet["gfx942"]
    assert f'model = "{folder}/gfx942/convrelu.onnx"' in found["settings"][0]
    assert (folder / "convrelu_b4.mxr").read_bytes() == first


def test_one_gpu_in_another_mode_is_another_gpu(mxr: Host, model: Path, fleet: dict[str, str], tmp_path: Path) -> None:
    """A kernel built for xnack- does not load where xnack is on."""
    words = (*TOOLS, *AMDINFER, "-o", f"{tmp_path}/shared/")
    mxr("fetch", model, "--arch", "gfx90a:sramecc+:xnack-", *words)
    error = mxr("fetch", model, "--arch", "gfx90a:sramecc+:xnack+", *words, "--json", expect=7).error
    assert "xnack - there, + requested" in error["detail"] and "--per-arch" not in error["hint"]
    mxr("fetch", model, "--arch", "gfx90a:sramecc+:xnack+", *words, "--force")


def test_a_set_for_each_gpu(mxr: Host, model: Path, fleet: dict[str, str], tmp_path: Path) -> None:
    words = ("--batch", "4,4", "--for", "amdinfer", "-o", f"{tmp_path}/sets/", "--per-arch")
    for arch in ("gfx908", "gfx942"):
        mxr("fetch", model, "--arch", arch, *TOOLS, *words)
        assert (tmp_path / "sets" / arch / "convrelu_b4.mxr").exists()


def test_the_entries_of_a_lock_that_a_host_needs(
    mxr: Host, host: Callable[..., Host], model: Path, fleet: dict[str, str], tmp_path: Path
) -> None:
    lock = tmp_path / "mxr.lock"
    for number, arch in enumerate(("gfx908", "gfx942")):
        mxr("lock", model, "--arch", arch, *TOOLS, *AMDINFER, "-o", lock, *(["--add"] if number else []))
    plain = host("without-gpu")
    error = plain("fetch", "--locked", lock, "-o", tmp_path / "all", "--json", expect=2).error
    assert "different file convrelu_b4.mxr" in error["detail"]
    assert "--arch ARCH" in error["hint"] and "--per-arch" in error["hint"]
    assert not (tmp_path / "all").exists()

    gpu = host("gpu")
    gpu.environ["MXR_HOST"] = str(tmp_path / "host.json")
    record = {"targets": [{"arch": "gfx942"}], "toolchain": {"rocm": "7.2.1", "migraphx": "2.15.0"}}
    (tmp_path / "host.json").write_text(json.dumps(plain("host", "--json").json | record))
    for words, other, arch in (((), gpu, "gfx942"), (("--arch", "gfx908"), plain, "gfx908")):
        folder = tmp_path / arch
        said = other("fetch", "--locked", lock, *words, "-o", folder, "--json")
        assert [row["path"] for row in said.json["entries"]] == [f"{folder}/convrelu_b4.mxr"]
        assert [row["id"] for row in said.json["entries"]] == [fleet[arch]]
        assert "left out 1 entry of the lock for other GPUs" in said.err
    assert "1 entry, all files as locked" in gpu("verify", lock, "--in", tmp_path / "gfx942").out
    rows = gpu("fetch", "--locked", lock, "-o", tmp_path / "each", "--per-arch", "--json").json["entries"]
    assert {row["path"] for row in rows} == {f"{tmp_path}/each/{arch}/convrelu_b4.mxr" for arch in ("gfx908", "gfx942")}
    assert "2 entries, all files as locked" in plain("verify", lock, "--in", tmp_path / "each").out
    said = plain("fetch", "--locked", lock, "--arch", "gfx1100", "--json", expect=2).error["detail"]
    assert said == "The lock has no entry for gfx1100: it has gfx908, gfx942."


def test_a_folder_is_checked_for_a_gpu(
    mxr: Host, model: Path, fleet: dict[str, str], programs: Programs, tmp_path: Path
) -> None:
    """Stale, foreign, misnamed, damaged, and a link: each has a line; links are not followed."""
    folder = tmp_path / "models"
    mxr("fetch", model, "--arch", "gfx908", *TOOLS, *AMDINFER, "-o", f"{folder}/")
    target = ("--arch", "gfx908", *TOOLS, "--json")
    assert mxr("check", folder, *target).json["files"] == [
        {**mxr("check", folder, *target).json["files"][0], "file": "convrelu_b4.mxr", "placed_by_mxr": True, "ok": True}
    ]
    (folder / "deep").mkdir()
    shutil.copy(programs.gfx908, folder / "yolo-v2.7_b64.mxr")
    shutil.copy(programs.gfx942, folder / "deep" / "other_b4.mxr")
    shutil.copy(DATA / "mxr_spliced" / "v6_layout_gfx90a.mxr", folder / "old.mxr")
    (folder / "page.mxr").write_text("<html>not found</html>")
    (folder / "link.mxr").symlink_to(programs.gfx942)
    (folder / "loop").symlink_to(folder)
    (folder / "notes.txt").write_text("not looked at")
    rows = {row["file"]: row for row in mxr("check", folder, *target, expect=6).json["files"]}
    assert set(rows) == {
        *("convrelu_b4.mxr", "yolo-v2.7_b64.mxr", "deep/other_b4.mxr", "old.mxr", "page.mxr", "link.mxr")
    }
    problems = {name: " ".join(row["problems"]) for name, row in rows.items()}
    assert problems["convrelu_b4.mxr"] == ""
    assert "name says batch 64, and its inputs have batch 4" in problems["yolo-v2.7_b64.mxr"]
    assert "arch needs gfx942, found gfx908" in problems["deep/other_b4.mxr"]
    assert "file_version needs 6, found 7" in problems["old.mxr"] and "migraphx needs 2.7.0" in problems["old.mxr"]
    assert "page.mxr" in problems["page.mxr"] and "symbolic link" in problems["link.mxr"]
    said = mxr("check", folder, *target[:-1], expect=6)
    assert "5 of the 6 programs" in said.err and "(mxr did not place it)" in said.out
    # Without a GPU and an arch, names and contents are checked all the same.
    known = {row["file"]: row["ok"] for row in mxr("check", folder, "--json", expect=6).json["files"]}
    assert known == {
        **dict.fromkeys(("yolo-v2.7_b64.mxr", "page.mxr", "link.mxr"), False),
        **dict.fromkeys(("convrelu_b4.mxr", "deep/other_b4.mxr", "old.mxr"), True),
    }


def test_a_folder_with_a_thousand_files_of_others(mxr: Host, programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    first = shutil.copy(programs.gfx908, folder / "21000-0.mxr")
    for number in range(1, 1000):
        os.link(first, folder / f"21000-{number:x}.mxr")
    assert len(mxr("check", folder, "--arch", "gfx908", "--json").json["files"]) == 1000


def test_a_read_only_folder_is_checked(
    mxr: Host, programs: Programs, tmp_path: Path, read_only: Callable[[Path], tuple[str, ...]]
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(programs.gfx908, folder / "a_b4.mxr")
    said = mxr("check", folder, "--arch", "gfx908", through=read_only(folder))
    assert "1 program, all fit gfx908" in said.out


def test_a_repository_knows_its_only_batch_size(mxr: Host, model: Path, programs: Programs, tmp_path: Path) -> None:
    """No `--batch` is needed, and no other program is taken."""
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "amdinfer")
    words = ("fetch", model, "--arch", "gfx908", *TOOLS, "--for", "amdinfer-repo", "-o", tmp_path / "repo")
    said = mxr(*words, "--json", expect=3)
    assert "batch 64, the only one that amdinfer-repo loads" in said.err
    assert [row["asked"] for each in said.error["context"]["nearest"] for row in each["differences"]] == [
        [64, 3, 32, 32]
    ]


def test_what_lies_in_a_folder_is_adopted(
    mxr: Host, host: Callable[..., Host], model: Path, programs: Programs, tmp_path: Path
) -> None:
    """The server's own compiles, beside their models; what cannot be published does not keep the rest back."""
    folder = tmp_path / "models"
    (folder / "deep" / "1").mkdir(parents=True)
    for stem in ("convrelu", "yolo-v2.7"):
        shutil.copy(model, folder / f"{stem}.onnx")
    shutil.copy(programs.gfx908, folder / "convrelu_b4.mxr")
    shutil.copy(programs.gfx942, folder / "yolo-v2.7_b4.mxr")
    words = ("push", folder, "--rocm", "7.2", "--for", "amdinfer")
    rows = mxr(*words, "--json").json["files"]
    assert [(row["file"], row["key"]["arch"]) for row in rows] == [
        ("convrelu_b4.mxr", "gfx908"),
        ("yolo-v2.7_b4.mxr", "gfx942"),
    ]
    assert mxr(*words).out.split() == [word for row in rows for word in (row["id"], row["file"])]
    # The same bytes: mxr takes them over, and replaces them later like its own.
    assert (
        mxr("fetch", model, "--arch", "gfx908", *TOOLS, *AMDINFER, "-o", f"{folder}/").out.strip().endswith("_b4.mxr")
    )
    assert mxr("check", folder, "--arch", "gfx908", "--json", expect=6).json["files"][0]["placed_by_mxr"]

    shutil.copy(programs.gfx1100, folder / "convrelu_b8.mxr")
    shutil.copy(programs.generic, folder / "alone_b4.mxr")
    shutil.copy(programs.gfx1100, folder / "deep" / "1" / "convrelu_b4.mxr")
    shutil.copy(model, folder / "deep" / "1" / "convrelu.onnx")
    (folder / "page.mxr").write_text("<html>")
    (folder / "link_b4.mxr").symlink_to(programs.gfx942)
    error = mxr(*words, "--json", expect=2).error
    found = {row["file"]: row.get("error", {}).get("detail", "") for row in error["context"]["files"]}
    assert "4 of the 7 programs" in error["detail"]
    assert "no ONNX file beside alone_b4.mxr" in found["alone_b4.mxr"] and "symbolic link" in found["link_b4.mxr"]
    assert "name says batch 8" in found["convrelu_b8.mxr"] and "page.mxr" in found["page.mxr"]
    assert [name for name, message in found.items() if not message] == [
        *("convrelu_b4.mxr", "yolo-v2.7_b4.mxr", "deep/1/convrelu_b4.mxr")
    ]
    assert host("other")("fetch", model, "--arch", "gfx1100", *TOOLS, *AMDINFER, "--json").json["id"]


def test_a_folder_without_programs_and_a_file_without_a_model(mxr: Host, programs: Programs, tmp_path: Path) -> None:
    words = ("--rocm", "7.2", "--for", "amdinfer", "--json")
    assert "holds no program" in mxr("push", tmp_path, *words, expect=2).error["detail"]
    assert "No model is given" in mxr("push", programs.gfx908, *words, expect=2).error["detail"]


def test_verify_finds_what_the_server_compiled(
    mxr: Host, model: Path, fleet: dict[str, str], programs: Programs, tmp_path: Path
) -> None:
    folder = tmp_path / "models"
    mxr("fetch", model, "--arch", "gfx908", *TOOLS, *AMDINFER, "-o", f"{folder}/")
    shutil.copy(programs.ref, folder / "somebody-elses.mxr")
    said = mxr("verify", folder)
    assert "1 file, all as mxr wrote them" in said.out and "not placed by mxr: somebody-elses.mxr" in said.err
    assert mxr("verify", folder, "--json").json["foreign"] == ["somebody-elses.mxr"]
    shutil.copy(programs.gfx908, folder / "convrelu_b8.mxr")
    (finding,) = mxr("verify", folder, "--json", expect=6).error["context"]["findings"]
    assert finding["kind"] == "added" and finding["path"].endswith("convrelu_b8.mxr")
    assert "No program of batch 8 was placed" in finding["why"]

    folder = tmp_path / "each"
    for arch in ("gfx908", "gfx942"):
        mxr("fetch", model, "--arch", arch, *TOOLS, *AMDINFER, "-o", folder, "--per-arch")
    assert "2 files, all as mxr wrote them" in mxr("verify", folder).out
    checked = mxr("check", folder, "--arch", "gfx908", "--json", expect=6).json["files"]
    assert [(row["file"], row["placed_by_mxr"], row["ok"]) for row in checked] == [
        ("gfx908/convrelu_b4.mxr", True, True),
        ("gfx942/convrelu_b4.mxr", True, False),
    ]
    (folder / "gfx942" / "convrelu_b4.mxr").unlink()
    (finding,) = mxr("verify", folder, "--json", expect=6).error["context"]["findings"]
    assert finding["kind"] == "missing" and "gfx942" in finding["path"]
