"""Usage errors of every command: exit code 2, what is wrong in one line and what to do in another. No registry runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from paths import DATA

from mxr_cli.main import main

TARGET = ("--arch", "gfx908", "--rocm", "7.2", "--migraphx", "2.15")
FULL_TARGET = ("--arch", "gfx908:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "4")
REF = ("--kind", "ref", "--migraphx", "2.15")
ORT = ("--arch", "gfx90a:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--for", "ort", "--ort", "B")
UPGRADE = ("--from", "migraphx=2.15", "--to", "migraphx=2.16")
EMPTY_LOCK = '{"version": 1, "entries": []}'
BROKEN_LOCK = '{"version": 1, "entries": [{"model": "a.onnx"}]}'


@dataclass(frozen=True)
class Failure:
    """What a command printed before it failed."""

    out: str
    err: str

    @property
    def error(self) -> dict[str, Any]:
        """The error of the JSON document."""
        found: dict[str, Any] = json.loads(self.out)["error"]
        return found


Fails = Callable[..., Failure]


@pytest.fixture
def fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fails:
    """Runs `mxr` in this process, in a folder with `m.onnx` and `p.mxr`, and checks that it fails with `code`.

    No server listens at the URL of the registry: a command that contacts it fails with 69 instead.
    """
    for name in os.environ:
        if name.startswith(("MXR_", "XDG_", "GITHUB_", "HSA_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MXR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MXR_REGISTRY", "http://127.0.0.1:9")
    monkeypatch.setenv("MXR_RETRY", "0")
    monkeypatch.chdir(tmp_path)
    with Path(os.devnull).open("rb") as nothing:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(nothing))
        shutil.copy(DATA / "models" / "convrelu.onnx", tmp_path / "m.onnx")
        shutil.copy(DATA / "mxr_spliced" / "v7_gfx908_sramecc+_xnack-.cov5.mxr", tmp_path / "p.mxr")

    def run(*arguments: object, code: int = 2) -> Failure:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
        printed = capsys.readouterr()
        assert ended.value.code == code, printed
        assert "Traceback" not in printed.err
        return Failure(printed.out, printed.err)

    return run


ARGUMENTS = [
    ("nonsense",),
    ("fecth", "m.onnx"),
    ("cache", "nonsense"),
    ("fetch",),
    ("fetch", "m.onnx", "--no-such-option"),
    ("fetch", "m.onnx", "--batch", "0"),
    ("fetch", "m.onnx", "--batch", "many"),
    ("fetch", "m.onnx", "--batch", "1,,2"),
    ("fetch", "m.onnx", "--arch", "mi100"),
    ("fetch", "m.onnx", "--arch", "gfx908:sramecc"),
    ("fetch", "m.onnx", "--arch", "gfx908", "--rocm", "seven", "--migraphx", "2.15", "--batch", "4"),
    ("fetch", "m.onnx", "--arch", "gfx908", "--rocm", "7.2", "--migraphx", "2", "--batch", "4"),
    ("fetch", "m.onnx", "--arch", "gfx908", "--batch", "4", "--exact"),
    ("fetch", "m.onnx", "--arch", "gfx908", "--batch", "4", "--on-miss", "wait"),
    ("key", "m.onnx", "--arch", "gfx908"),
    ("fetch", "m.onnx", *TARGET, "--batch", "4", "--precision", "fp17"),
    ("fetch", "m.onnx", *TARGET, "--input", "y=1,3,32,32"),
    ("fetch", "m.onnx", *TARGET, "--input", "x"),
    ("fetch", "m.onnx", *TARGET, "--input", "x=1", "--input", "x=2"),
    ("fetch", "m.onnx", *TARGET, "--batch", "4", "--for", "nobody"),
    ("fetch", "m.onnx", *TARGET, "--batch", "4", "--allow", "all"),
    ("fetch", "m.onnx", *TARGET, "--batch", "4", "--env", "PATH=1"),
    ("fetch", "m.onnx", *TARGET, "--batch", "4", "--env", "MIGRAPHX_A"),
    ("fetch", "m.onnx", *TARGET, "--batch", "4", "--link"),
    ("fetch", "m.onnx", *TARGET, "--batch", "4", "--on-miss", "cry"),
    ("fetch", "m.onnx", *TARGET, "--batch", "4", "--offline", "--on-miss", "ask"),
    ("fetch", "m.onnx", "--kind", "cpu", "--migraphx", "2.15", "--batch", "4"),
    ("fetch", "m.onnx", *REF, "--batch", "4", "--registry", "registry:8765"),
    ("fetch", "m.onnx", *REF, "--batch", "4", "--host", "absent.json"),
    ("fetch", "m.onnx", *REF, "--batch", "4", "--calibration", "absent.bin"),
    ("fetch", "absent.onnx", *REF, "--batch", "4"),
    ("fetch", "sha256:abc", *REF, "--batch", "4"),
    ("fetch", "xxh3:" + "0" * 32, *REF, "--batch", "4"),
    ("fetch", "--locked", "absent.lock"),
    ("fetch", "--locked", "mxr.lock", "--batch", "4"),
    ("fetch", "--locked", "mxr.lock", "--name", "x", "-o", "out/"),
    ("fetch", "--locked", "--on-miss", "wait"),
    ("push", "absent.mxr", "--model", "m.onnx"),
    ("push", "p.mxr"),
    ("push", "p.mxr", "--model", "m.onnx"),
    ("push", "p.mxr", "--model", "m.onnx", "--batch", "1,2"),
    ("inspect", "absent.mxr"),
    ("check",),
    ("explain", "text", "--file", "log"),
    ("explain", "--file", "absent.log"),
    ("ls", "--limit", "0"),
    ("jobs", "--follow"),
    ("jobs", "1a2b3c4d", "--follow", "--cancel"),
    ("freeze", "m.onnx", "--batch", "one", "-o", "frozen"),
    ("cache", "prune", "--older-than", "-1"),
    ("lock",),
    ("lock", "--add"),
    ("lock", "--check", "m.onnx"),
    ("lock", "--check", "--registered"),
    ("lock", "--check", "-o", "absent.lock"),
    ("lock", "absent.onnx"),
    ("verify", "absent.lock"),
    ("verify", "mxr.lock", "--in", "absent"),
    ("export", "mxr.lock", "mxr.lock", "-o", "bundle.tar"),
    ("import",),
    ("precompile",),
    ("precompile", "absent.yaml"),
    ("precompile", "m.yaml", "--on-miss", "local"),
    ("plan",),
    ("plan", "absent.yaml"),
    ("plan", "--ask"),
    ("plan", "--from", "migraphx=2.15"),
    ("plan", "--from", "migraphx=2.15", "--to", "rocm=7.2"),
    ("plan", "--from", "migraphx=2.15", "--to", "migraphx=2.15"),
    ("plan", "--from", "migraphx=2.15", "--to", "rocm=7.2,migraphx=2.16"),
    ("plan", "--from", "migraphx=two", "--to", "migraphx=2.16"),
    ("plan", *UPGRADE, "--days", "0"),
    ("plan", *UPGRADE, "--grown", "0.5"),
    ("plan", "matrix.yaml", *UPGRADE),
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_exit_code_message_and_hint(fails: Fails, arguments: tuple[str, ...]) -> None:
    Path("mxr.lock").write_text(EMPTY_LOCK)
    failure = fails(*arguments, "--json")
    assert failure.error["code"] == "usage"
    assert failure.error["hint"]
    message, hint = failure.err.splitlines()
    assert message.startswith("mxr: ") and hint.startswith("     ")


@pytest.mark.parametrize("arguments", [("fetch", "--locked", "broken.lock"), ("lock", "--check", "-o", "broken.lock")])
def test_a_damaged_lock(fails: Fails, arguments: tuple[str, ...]) -> None:
    Path("broken.lock").write_text(BROKEN_LOCK)
    error = fails(*arguments, "--json", code=65).error
    assert error["detail"] and error["hint"]


def test_nothing_is_printed_to_standard_output(fails: Fails) -> None:
    failure = fails("fecth", "m.onnx")
    assert failure.out == ""
    assert failure.err == "mxr: Unknown command 'fecth'.\n     Did you mean mxr fetch?\n"


def test_push_lists_the_labels_that_the_file_does_not_contain(fails: Fails) -> None:
    error = fails("push", "p.mxr", "--model", "m.onnx", "--json").error
    assert error["context"]["missing"] == ["the ROCm version", "fast_math"]
    assert "--rocm" in error["hint"] and "--for" in error["hint"]


@pytest.mark.parametrize("option", [("--name", "x"), ("--force",), ("--link",)], ids=" ".join)
def test_options_that_need_an_output(fails: Fails, option: tuple[str, ...]) -> None:
    assert "needs -o" in fails("fetch", "m.onnx", *FULL_TARGET, *option).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--for", "python", "-o", ""), "is empty"),
        (("--for", "amdinfer-repo", "-o", "out"), "batch 64"),
        (("--for", "triton", "--no-offload-copy", "-o", "out"), "offload_copy on"),
        (("--for", "epcontext", "--offload-copy", "-o", "out"), "offload_copy off"),
        (("--for", "triton", "-o", "file"), "is a file"),
        (("--for", "triton", "-o", "out", "--name", "a/b"), "slash"),
    ],
)
def test_an_output_that_the_consumer_cannot_use(fails: Fails, arguments: tuple[str, ...], message: str) -> None:
    Path("file").touch()
    assert message in fails("fetch", "m.onnx", *FULL_TARGET, *arguments).err
    assert not Path("out").exists() and not list(Path("cache").glob("v1/files/*/*"))


@pytest.mark.parametrize("consumer", ["triton", "ort", "epcontext", "kserve", "amdinfer-repo"])
def test_a_set_for_a_consumer_with_its_own_layout(fails: Fails, consumer: str) -> None:
    failure = fails("fetch", "m.onnx", *REF, "--for", consumer, "--batch", "1,4", "-o", "set")
    assert "plain files" in failure.err and consumer in failure.err
    assert not Path("set").exists()


def test_a_set_needs_a_folder_and_a_valid_name(fails: Fails) -> None:
    Path("file").touch()
    several = ("fetch", "m.onnx", *REF, "--for", "python", "--batch", "1,4", "-o")
    assert "need a folder" in fails(*several, "file").err
    assert "slash" in fails(*several, "set", "--name", "a/b").err


def test_a_genai_configuration(fails: Fails) -> None:
    config = Path("genai_config.json")
    config.write_text("{}")
    assert "--genai-config FILE" in fails("fetch", *FULL_TARGET).err
    assert "MODEL and --genai-config" in fails("fetch", "m.onnx", "--genai-config", config, *FULL_TARGET).err
    provider = '{"session_options": {"provider_options": [{"AMDGPU": {}}]}, "filename": 3}'
    config.write_text(f'{{"model": {{"decoder": {provider}}}}}')
    assert "model.decoder.filename" in fails("fetch", "--genai-config", config, *FULL_TARGET).err


def test_verify_a_folder(fails: Fails) -> None:
    Path("folder").mkdir()
    assert "no record" in fails("verify", "folder").err
    assert "--in needs a lock" in fails("verify", "folder", "--in", "folder").err


def test_a_matrix_error_names_its_line(fails: Fails) -> None:
    Path("matrix.yaml").write_text(
        'version: 1\nmodels:\n  - path: m.onnx\n    bach: [1, 4]\ntargets:\n  - {kind: ref, migraphx: "2.15"}\n'
    )
    for command in ("lock", "plan", "precompile"):
        assert "matrix.yaml:4" in fails(command, "matrix.yaml").err


def test_a_matrix_is_locked_without_options(fails: Fails) -> None:
    assert "which contains the options" in fails("lock", "matrix.yaml", "--batch", "8").err


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://bucket/model", "mxr://"),
        ("mxr://sha256:0?batch=64", "model"),
        ("mxr://sha256:" + "0" * 64 + "?output=/etc", "output=/etc"),
        ("mxr://sha256:" + "0" * 64 + "?batch=many", "--batch"),
    ],
)
def test_a_kserve_uri(fails: Fails, uri: str, message: str) -> None:
    assert message in fails("kserve-init", uri, "out").err
    assert fails("kserve-init", uri, "out", "--json").error["code"] == "usage"


def test_a_kserve_uri_is_no_option(fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins with a dash is refused; if the operator allows paths, it is the name of a file."""
    Path("mxr.lock").write_text(EMPTY_LOCK)
    for uri in ("mxr://--locked", "mxr://--help", "mxr://-v", "mxr://--"):
        assert "not the identity of a model" in fails("kserve-init", "--", uri, "out", code=7).err
        with monkeypatch.context() as patch:
            patch.setenv("MXR_KSERVE_ALLOW", "path")
            assert f"{uri.removeprefix('mxr://')}" in fails("kserve-init", uri, "out", "--json").error["detail"]
    assert not Path("out").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", ".."])
def test_a_name_leaves_no_folder(fails: Fails, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Neither a name in a URI nor --name, whether the consumer takes a file or a layout."""
    # The name of a file needs no registry to find the model.
    monkeypatch.setenv("MXR_KSERVE_ALLOW", "path")
    Path("mnt").mkdir()
    before = sorted(Path().rglob("*"))
    facts = "batch=4&rocm=7.2&migraphx=2.15&arch=gfx908"
    for consumer in ("python", "triton", "amdinfer"):
        uri = f"mxr://m.onnx?{facts}&for={consumer}&name={name}&force=1"
        assert "name" in fails("kserve-init", uri, "mnt").err
        options = ("--arch", "gfx908", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "4", "--for", consumer)
        assert "name" in fails("fetch", "m.onnx", *options, "-o", "mnt/", "--name", name, "--force").err
    assert sorted(path for path in Path().rglob("*") if path.parts[0] != "cache") == before


def test_a_kserve_uri_uses_the_settings_of_its_command(fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    """They reach the fetch without its arguments: the refusal of the token shows that it got there."""
    uri = "mxr://sha256:" + "0" * 64 + "?batch=4&rocm=7.2&migraphx=2.15&arch=gfx908"
    where = ("--registry", "http://registry.invalid")
    monkeypatch.delenv("MXR_REGISTRY")
    monkeypatch.setenv("MXR_TOKEN", "hunter2")
    failed = fails("kserve-init", uri, "out", *where, "--json", code=7)
    assert "registry.invalid over plain http" in failed.error["detail"] and "hunter2" not in failed.err + failed.out


def test_a_bundle_is_imported_without_options_of_a_request(fails: Fails) -> None:
    for option in (("--arch", "gfx90a"), ("--model", "m.onnx"), ("--ort", "B")):
        assert "need --ort-cache" in fails("import", "bundle.tar", *option).err
    assert "No bundle" in fails("import").err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other.mxr", "holds no file"),
        ("20f00-1-2-3.mxr", "is for gfx90a"),
        ("20f00-1-6f25dd2283a05f8c-0.mxr", "open dims"),
    ],
)
def test_files_that_are_not_the_cache_of_an_onnx_runtime(fails: Fails, name: str, message: str) -> None:
    Path("ort").mkdir()
    (Path("ort") / name).write_bytes(b"x")
    assert message in fails("import", "--ort-cache", "ort", "--model", "m.onnx", *ORT).err


def test_the_cache_of_an_onnx_runtime_needs_a_model_and_excludes_a_bundle(fails: Fails) -> None:
    arguments = ("import", "--ort-cache", "ort", "--model", "m.onnx", *ORT)
    for more in (("bundle.tar",), ("--into", "cache"), ("--lock", "x"), ("--batch", "1,2")):
        assert "one recorded set" in fails(*arguments, *more).err
    assert "needs the model" in fails("import", "--ort-cache", "ort").err


@pytest.mark.parametrize("generation", ["B'", "C", "D"])
def test_names_that_only_their_provider_knows(fails: Fails, generation: str) -> None:
    call = ("fetch", "m.onnx", *FULL_TARGET, "--for", "ort", "--ort", generation, "--offline", "-o", "out/", "--json")
    error = fails(*call).error
    assert error["code"] == "usage" and f"generation {generation}" in error["detail"]
    assert "--on-miss wait" in error["hint"] and "mxr import --ort-cache" in error["hint"]
    assert error["context"]["generation"] == generation
