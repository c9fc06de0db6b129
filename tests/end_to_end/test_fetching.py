"""One person publishes, another on another host fetches: the same bytes, where and as they want them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Programs
from .stack import Host

Hosts = Callable[..., Host]


def test_another_host_gets_the_same_bytes(
    host: Hosts, model: Path, published: dict[str, Any], programs: Programs, gpu: tuple[str, ...]
) -> None:
    other = host("other")
    first = other("fetch", model, *gpu, "--json").json
    assert (first["source"], first["id"], first["sha256"]) == ("registry", published["id"], published["sha256"])
    assert Path(first["path"]).read_bytes() == programs.gfx908.read_bytes()
    again = other("fetch", model, *gpu, "--json").json
    assert (again["source"], again["path"]) == ("cache", first["path"])
    assert other.leftovers() == []


def test_output_is_a_file_of_its_own(
    host: Hosts, model: Path, published: dict[str, Any], programs: Programs, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    other = host("other")
    for final in (tmp_path / "model.mxr", tmp_path / "not" / "yet" / "there" / "model.mxr"):
        assert other("fetch", model, *gpu, "-o", final).out == f"{final}\n"
        assert final.read_bytes() == programs.gfx908.read_bytes()
        assert final.stat().st_nlink == 1
        assert final.stat().st_ino != other.held()[0].stat().st_ino
        assert final.stat().st_mode & 0o200
    final.write_bytes(b"someone writes to it")
    assert other("cache", "verify", "--json").json == {"verified": 1, "damaged": [], "recalled": []}


def test_link_shares_the_file_of_the_cache(
    host: Hosts, model: Path, published: dict[str, Any], gpu: tuple[str, ...], tmp_path: Path
) -> None:
    other, final = host("other"), tmp_path / "model.mxr"
    for _ in range(2):
        other("fetch", model, *gpu, "-o", final, "--link")
        assert final.samefile(other.held()[0])
    other("fetch", model, *gpu, "-o", final)
    assert not final.samefile(other.held()[0]), "without --link, a copy replaces the link"
    assert final.read_bytes() == other.held()[0].read_bytes()
    assert {path.name for path in tmp_path.iterdir()} >= {"model.mxr"}
    assert other.leftovers() == []


def test_an_output_that_exists_is_replaced_as_one(
    host: Hosts, model: Path, published: dict[str, Any], programs: Programs, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    other, final = host("other"), tmp_path / "out" / "model.mxr"
    final.parent.mkdir()
    final.write_bytes(b"the old program" * 9999)
    with final.open("rb") as reader:
        other("fetch", model, *gpu, "-o", final, expect=7)
        assert final.read_bytes() == b"the old program" * 9999
        other("fetch", model, *gpu, "-o", final, "--force")
        assert reader.read() == b"the old program" * 9999, "who has it open keeps the old one whole"
    assert final.read_bytes() == programs.gfx908.read_bytes()
    assert {path.name for path in final.parent.iterdir()} == {"model.mxr", ".mxr-layout.json"}


def test_a_folder_gets_the_name_that_the_consumer_looks_for(
    mxr: Host, host: Hosts, model: Path, published: dict[str, Any], gpu: tuple[str, ...], tmp_path: Path
) -> None:
    other, folder = host("other"), tmp_path / "models"
    words = gpu[:-2]
    assert other("fetch", model, *words, "--for", "amdinfer", "-o", f"{folder}/").out == f"{folder}/convrelu_b4.mxr\n"
    assert other("fetch", model, *words, "--for", "python", "-o", folder).out == f"{folder}/convrelu.mxr\n"
    by_hash = other("fetch", published["key"]["model"], *words, "--for", "python", "-o", folder).out
    assert by_hash == f"{folder}/{published['key']['model'][7:23]}.mxr\n"
    assert len(list(folder.glob("*.mxr"))) == 3


def test_a_model_is_known_by_its_hash_too(
    host: Hosts, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    other = host("no model file here")
    assert other("fetch", published["key"]["model"], *gpu, "--json").json["id"] == published["id"]
    assert "--batch" in " ".join(gpu)


def test_the_right_one_of_several(
    mxr: Host, host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    for program in (programs.gfx908, programs.gfx942, programs.gfx1100, programs.generic):
        mxr("push", program, "--model", model, "--rocm", "7.2", "--for", "python")
    other = host("other")

    def fetch(arch: str) -> Any:
        return other("fetch", model, *gpu[2:], "--arch", arch, "--json").json

    for arch, program in (("gfx908", programs.gfx908), ("gfx942", programs.gfx942), ("gfx1100", programs.gfx1100)):
        assert Path(fetch(arch)["path"]).read_bytes() == program.read_bytes()
    assert fetch("gfx908")["match"] == {"exact": False, "relaxed": [], "assumed": {"sramecc": "+", "xnack": "-"}}
    family = fetch("gfx1103")
    assert Path(family["path"]).read_bytes() == programs.generic.read_bytes()
    assert (family["match"]["exact"], family["match"]["relaxed"]) == (False, ["arch"])
    for arch in ("gfx908:xnack+", "gfx1030", "gfx90a"):
        other("fetch", model, *gpu[2:], "--arch", arch, expect=3)


def test_other_compute_units_only_when_they_are_allowed(
    mxr: Host, host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--num-cu", "100")
    other = host("other")
    words = ("fetch", model, *gpu, "--num-cu", "120")
    assert "num_cu requested 120, found 100" in other(*words, expect=3).err
    allowed = other(*words, "--allow", "cu", "--json")
    assert allowed.json["match"]["relaxed"] == ["num_cu"]
    assert "not an exact match" in allowed.err
    other("fetch", model, *gpu, "--num-cu", "60", "--allow", "cu", expect=3)


def test_an_init_container_goes_on_where_there_is_nothing(
    host: Hosts, model: Path, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    other, final = host("other"), tmp_path / "volume" / "model.mxr"
    words = ("fetch", model, *gpu, "-o", final, "--on-miss", "continue")
    said = other(*words)
    assert said.out == ""
    assert "warning" in said.err and "Nothing was placed" in said.err
    assert not final.parent.exists()
    document = other(*words, "--json").json
    assert document["path"] is None
    assert document["error"]["code"] == "no_such_artifact"


def test_real_programs_of_the_reference_target(mxr: Host, host: Hosts, convnet: Path, programs: Programs) -> None:
    words = ("--model", convnet, "--kind", "ref", "--for", "python")
    half = mxr("push", programs.ref, *words, "--precision", "fp16", "--json").json
    full = mxr("push", programs.ref32, *words, "--json").json
    asked = ("fetch", convnet, "--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python", "--json")
    other = host("other")
    assert other(*asked).json["id"] == full["id"]
    assert other(*asked, "--precision", "fp16").json["id"] == half["id"]
    assert other(*asked, "--arch", "gfx908", "--rocm", "7.2").json["id"] == full["id"]
    miss = other(*asked[:-3], "--for", "driver", "--json", expect=3).error["context"]["nearest"]
    assert {row["id"] for row in miss} == {half["id"], full["id"]}


def test_a_gpu_that_passes_for_another_gets_no_program_of_a_true_one(
    mxr: Host, host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    pushed = mxr("push", programs.gfx1100, "--model", model, "--rocm", "7.2", "--for", "python", "--json").json
    other = host("other")
    true = ("fetch", model, *gpu[2:], "--arch", "gfx1100")
    assert other(*true, "--json").json["id"] == pushed["id"]
    spoofed = (*true, "--real-arch", "gfx1103")
    missed = other(*spoofed, expect=3)
    assert "real_arch requested gfx1103, found no override" in missed.err and "--allow spoof" in missed.err
    allowed = other(*spoofed, "--allow", "spoof", "--json")
    assert (allowed.json["id"], allowed.json["match"]["relaxed"]) == (pushed["id"], ["real_arch"])
    assert "real_arch no override instead of gfx1103" in allowed.err
    assert other("key", model, *spoofed[2:], "--json").json["digest"] == pushed["digest"]


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}])
def test_a_name_that_is_not_utf_8_in_a_locale_without_letters(
    mxr: Host, model: Path, programs: Programs, tmp_path: Path, gpu: tuple[str, ...], locale: dict[str, str]
) -> None:
    """A model whose name is Latin-1 is published and fetched, and printed in ASCII. Records take UTF-8 only."""
    named = Path(os.fsdecode(os.fsencode(tmp_path) + b"/mod\xe9le.onnx"))
    named.write_bytes(model.read_bytes())
    mxr("push", programs.gfx908, "--model", named, "--rocm", "7.2", "--for", "python", env=locale)
    done = mxr("fetch", named, *gpu, env=locale)
    assert (done.out + done.err).isascii() and "le.onnx for gfx908" in done.err
    refused = mxr("fetch", named, *gpu, "-o", f"{tmp_path}/out/", env=locale, expect=2).err
    assert "is not UTF-8" in refused and "--name NAME" in refused
    mxr("fetch", named, *gpu, "-o", f"{tmp_path}/out/", "--name", "model", env=locale)
    assert (tmp_path / "out" / "model.mxr").read_bytes() == programs.gfx908.read_bytes()
    assert "is not UTF-8" in mxr("lock", named, *gpu, env=locale, expect=2).err
    missed = mxr("fetch", named, "--arch", "gfx90a", *gpu[2:], env=locale, expect=3)
    assert missed.err.isascii() and "No program of" in missed.err
