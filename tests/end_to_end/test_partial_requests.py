"""`mxr fetch model.onnx --arch gfx908` as it stands: what nobody tells comes from the only program that fits."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.programs import command
from harness.programs import run as run_program

from .conftest import Programs
from .stack import Host, Registry

Hosts = Callable[..., Host]
ARCH = ("--arch", "gfx908")
COMMAND = "mxr: the complete command: "


def push(mxr: Host, model: Path, program: Path, *words: object) -> str:
    said = mxr("push", program, "--model", model, *words, "--json").json
    return str(said["id"])


def complete_command(stderr: str) -> list[str]:
    """The options of the complete command that a fetch printed."""
    (line,) = [line for line in stderr.splitlines() if line.startswith(COMMAND)]
    program, command, *words = shlex.split(line.removeprefix(COMMAND))
    assert (program, command) == ("mxr", "fetch")
    return words


@pytest.mark.on("embedded", "engines")
def test_the_command_of_the_title(
    mxr: Host, host: Hosts, model: Path, published: dict[str, Any], tmp_path: Path
) -> None:
    done = mxr("fetch", model, *ARCH, "-o", tmp_path / "out.mxr", "--json")
    assert (done.json["id"], done.json["match"]["exact"]) == (published["id"], False)
    assumed = done.json["match"]["assumed"]
    facts = {"migraphx": "2.15", "rocm": "7.2", "inputs.x": [4, 3, 32, 32], "offload_copy": True, "fast_math": True}
    assert assumed == {"sramecc": "+", "xnack": "-"} | facts
    # The complete command leaves nothing open, on any host.
    words = complete_command(done.err)
    assert words[-2:] == ["-o", str(tmp_path / "out.mxr")]
    again = host("other")("fetch", *words[:-2], "--json")
    assert again.json["id"] == published["id"] and COMMAND not in again.err
    assert again.json["match"] == {"exact": True, "relaxed": [], "assumed": {}} and "not an exact match" not in done.err
    calm = host("other")("fetch", *words[:-2]).err.splitlines()
    target = "gfx908:sramecc+:xnack-, ROCm 7.2, MIGraphX 2.15, x=4,3,32,32, fp32"
    assert len(calm) == 1 and calm[0].startswith(f"mxr: convrelu.onnx for {target}, ") and calm[0].endswith(" (cache)")
    # In Python it is one line.
    program = 'import json, sys, mxr; f = mxr.fetch(sys.argv[1], arch="gfx908"); print(json.dumps(f.to_json()))'
    assert host("app").python(program, model).json["match"]["assumed"] == assumed


def test_several_programs_are_a_choice(
    mxr: Host, host: Hosts, model: Path, published: dict[str, Any], programs: Programs
) -> None:
    older = push(mxr, model, programs.gfx908, "--rocm", "7.1", "--for", "python")
    strict = push(mxr, model, programs.gfx908, "--rocm", "7.1", "--for", "python", "--no-fast-math")
    done = mxr("fetch", model, *ARCH, "--json", expect=2)
    assert done.error["detail"] == "3 programs fit this request."
    rows = done.error["context"]["candidates"]
    assert rows[0]["id"] == published["id"], "the newest toolchain first"
    assert {row["options"] for row in rows} == {
        "--rocm 7.2 --fast-math",
        "--rocm 7.1 --fast-math",
        "--rocm 7.1 --no-fast-math",
    }
    for row in rows:
        assert host("chooser")("fetch", model, *ARCH, *row["options"].split(), "--json").json["id"] == row["id"]
    printed = mxr("fetch", model, *ARCH, expect=2).err.splitlines()
    assert [line.split()[0] for line in printed if line.startswith("  ")][:3] == [row["id"][:12] for row in rows]
    assert "Add the options of one of them." in printed[-1]
    assert mxr("fetch", model, *ARCH, "--rocm", "7.2", "--json").json["id"] == published["id"]
    assert mxr("fetch", model, *ARCH, "--rocm", "7.1", "--fast-math", "--json").json["id"] == older
    assert mxr("fetch", model, *ARCH, "--no-fast-math", "--json").json["id"] == strict
    program = """
import json, sys, mxr
try:
    mxr.fetch(sys.argv[1], arch="gfx908")
except mxr.UsageError as problem:
    print(json.dumps([problem.message, len(problem.context["candidates"])]))
"""
    assert mxr.python(program, model).json == ["3 programs fit this request.", 3]


def test_more_programs_than_a_table_shows(
    mxr: Host, registry: Registry, model: Path, published: dict[str, Any]
) -> None:
    assert published["key"]["rocm"] == "7.2"
    _, first = registry.call("GET", f"/v1/artifacts/{published['id']}")
    body = {name: first[name] for name in ("manifest", "attributes")}
    for minor in range(26):
        for fast_math in (True, False):
            key = first["key"] | {"rocm": f"6.{minor}", "fast_math": fast_math}
            assert registry.call("POST", "/v1/artifacts", body | {"key": key})[0] == 201
    error = mxr("fetch", model, *ARCH, "--json", expect=2).error
    assert error["detail"] == "53 programs fit this request."
    assert len(error["context"]["candidates"]) == 50 and error["context"]["total"] == 53
    assert error["hint"] == "Narrow them with --rocm (27 values), --for (2 values)."


def test_none_says_everything_at_once(mxr: Host, model: Path, published: dict[str, Any], programs: Programs) -> None:
    error = mxr("fetch", model, *ARCH, "--precision", "fp16", "--json", expect=3).error
    assert error["context"]["open"] == ["rocm", "migraphx", "offload_copy", "fast_math", "inputs.x"]
    (nearest,) = error["context"]["nearest"]
    assert nearest == {
        "id": published["id"],
        "differences": [{"field": "precision", "asked": "fp16", "found": "fp32"}],
    }
    push_it = f"`mxr push FILE.mxr --model {model} --rocm VERSION --for CONSUMER --precision fp16`"
    assert error["hint"].endswith(f"Compile it with MIGraphX, and publish it: {push_it}.")
    for words, field in (
        (("--arch", "gfx90a"), "arch"),
        ((*ARCH, "--vendor", "hygon"), "vendor"),
        ((*ARCH, "--for", "driver"), "offload_copy"),
        ((*ARCH, "--batch", 8), "inputs.x"),
        ((*ARCH, "--env", "MIGRAPHX_NSTREAMS=2"), "env.MIGRAPHX_NSTREAMS"),
        (("--arch", "gfx908:xnack+"), "xnack"),
    ):
        error = mxr("fetch", model, *words, "--json", expect=3).error
        assert field in {each["field"] for each in error["context"]["nearest"][0]["differences"]}, words
    mxr("rm", published["id"], "--yes", "--force")
    assert "mxr: No program of" in mxr("fetch", model, *ARCH, expect=3).err


def test_what_takes_nothing_open_says_all_that_is_missing(mxr: Host, model: Path, published: dict[str, Any]) -> None:
    actions = (("--on-miss", action) for action in ("ask", "wait", "local"))
    for words in (("--exact",), *actions, ("--for", "ort", "--ort", "1.27.1")):
        for output in ((), ("-o", "there/")):
            error = mxr("fetch", model, *ARCH, *words, *output, "--json", expect=2).error
            assert "ROCm and MIGraphX and all dims of the inputs" in error["detail"], words
            assert "--rocm 7.2 --migraphx 2.15" in error["hint"]
    uri = f"mxr://{published['key']['model']}?arch=gfx908"
    # KServe's layout for amdinfer has one batch size only: its dims are not missing.
    assert "version of ROCm and MIGraphX" in mxr("kserve-init", uri, "there", expect=2).err
    assert "all dims" in mxr("kserve-init", f"{uri}&for=triton", "there", expect=2).err
    assert "all dims" in mxr("lock", model, *ARCH, expect=2).err
    everything = mxr("fetch", model, expect=2).err
    assert "the arch (this host shows no GPU), the version of ROCm and MIGraphX and all dims" in everything


def test_the_cache_answers_where_the_registry_is_away(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs
) -> None:
    registry = own_registry()
    mxr = host("one", registry.url)
    first = push(mxr, model, programs.gfx908, "--rocm", "7.2", "--for", "python")
    mxr("fetch", model, *ARCH)
    second = push(mxr, model, programs.gfx908, "--rocm", "7.1", "--for", "python")
    registry.kill9()
    for words in ((), ("--offline",)):
        again = mxr("fetch", model, *ARCH, *words, "--json")
        assert (again.json["id"], again.json["source"]) == (first, "cache")
        assert again.json["match"]["assumed"]["rocm"] == "7.2" and COMMAND in again.err
    assert mxr("fetch", model, "--arch", "gfx90a", expect=69).err
    assert "The cache has no program" in mxr("fetch", model, *ARCH, "--rocm", "7.1", "--offline", expect=69).err
    registry.restart()
    mxr("fetch", model, *ARCH, "--rocm", "7.1")
    registry.kill9()
    error = mxr("fetch", model, *ARCH, "--json", expect=2).error
    assert [row["id"] for row in error["context"]["candidates"]] == [first, second]
    assert [row["options"] for row in error["context"]["candidates"]] == ["--rocm 7.2", "--rocm 7.1"]


def test_cutting_the_registry_off_chooses_nothing(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs
) -> None:
    """Two programs fit, and one is cached: who can drop packets must not turn the question into an answer."""
    registry = own_registry()
    mxr = host("one", registry.url)
    push(mxr, model, programs.gfx908, "--rocm", "7.2", "--for", "python")
    old = push(mxr, model, programs.gfx908, "--rocm", "6.4", "--for", "python")
    complete = ("fetch", model, *ARCH, "--rocm", "6.4", "--migraphx", "2.15", "--batch", "4", "--for", "python")
    mxr(*complete)
    mxr("fetch", model, *ARCH, expect=2)
    registry.kill9()
    error = mxr("fetch", model, *ARCH, "--json", expect=69).error
    assert "did not say that this request means it" in error["hint"] and "--offline" in error["hint"]
    assert mxr("fetch", model, *ARCH, "--offline", "--json").json["id"] == old
    assert mxr(*complete, "--json").json["id"] == old
    # A request that was completed once is asked about again: what the registry says last counts.
    registry.restart()
    narrowed = ("fetch", model, *ARCH, "--rocm", "6.4", "--json")
    assert mxr(*narrowed).json["id"] == old
    push(mxr, model, programs.gfx908, "--rocm", "6.4", "--for", "python", "--no-fast-math")
    mxr(*narrowed, expect=2)
    registry.kill9()
    mxr(*narrowed, expect=69)


def test_defaults_of_a_project_narrow_a_request(
    mxr: Host, host: Hosts, model: Path, published: dict[str, Any], programs: Programs, tmp_path: Path
) -> None:
    """What mxr.toml says is stated, not assumed: of several programs it chooses one, here and in Python."""
    older = push(mxr, model, programs.gfx908, "--rocm", "7.1", "--for", "python")
    mxr("fetch", model, *ARCH, expect=2)
    file = model.parent / "mxr.toml"
    file.write_text('rocm = "7.1"\n')
    done = host("other")("fetch", model, *ARCH, "--json")
    assert done.json["id"] == older and "rocm" not in done.json["match"]["assumed"]
    assert f"mxr: rocm 7.1 ({file})" in done.err.splitlines()
    assert " --rocm 7.1 " in " ".join(complete_command(done.err))
    program = 'import sys, mxr; print(mxr.fetch(sys.argv[1], arch="gfx908").artifact.id)'
    assert host("app").python(program, model).out.strip() == older
    # The environment comes before the project, and options before both.
    environ = {"MXR_ROCM": "7.2"}
    assert mxr("fetch", model, *ARCH, "--json", env=environ).json["id"] == published["id"]
    assert mxr("fetch", model, *ARCH, "--rocm", "7.1", "--json", env=environ).json["id"] == older
    # What takes nothing open is complete with defaults.
    file.write_text('rocm = "7.2"\nmigraphx = "2.15"\nconsumer = "python"\nbatch = 4\n')
    assert mxr("fetch", model, *ARCH, "--exact", "--json", expect=0).json["id"] == published["id"]
    lock = mxr("lock", model, *ARCH, "-o", tmp_path / "mxr.lock", "--json")
    assert [entry["id"] for entry in lock.json["entries"]] == [published["id"]]
    # A lock states everything itself.
    file.write_text('rocm = "6.0"\nmigraphx = "2.15"\nbatch = 8\n')
    assert mxr("fetch", model, "--locked", tmp_path / "mxr.lock", "--json").json["id"] == published["id"]
    # Several batch sizes are a set, which says what is missing.
    file.write_text('rocm = "7.2"\nmigraphx = "2.15"\nbatch = [4, 8]\n')
    done = mxr("fetch", model, *ARCH, "--json", expect=3)
    assert [row["batch"] for row in done.error["context"]["missing"]] == [8]
    assert f"mxr: batch 4,8 ({file})" in done.err.splitlines()
    assert mxr("fetch", model, *ARCH, "--batch", 4, "--json").json["id"] == published["id"]
    # Other users' files change nothing.
    file.write_text('rocm = "6.0"\n')
    file.chmod(0o666)
    done = mxr("fetch", model, *ARCH, "--rocm", "7.2", "--json")
    assert done.json["id"] == published["id"] and f"mxr: {file} is not used: " in done.err


def test_defaults_of_the_registry_come_last(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs
) -> None:
    registry = own_registry()
    mxr = host("one", registry.url)
    newer = push(mxr, model, programs.gfx908, "--rocm", "7.2", "--for", "python")
    older = push(mxr, model, programs.gfx908, "--rocm", "7.1", "--for", "python", "--no-fast-math")
    mxr("fetch", model, *ARCH, expect=2)
    words = ("namespace", "set", "default", "--rocm", "7.1", "--batch", "4", "--data", registry.data)
    done = run_program(command("mxr-registry", *words), env=os.environ | registry.environ)
    assert done.stdout == "default: serve auto, rocm 7.1, batch 4\n"
    # Who asked already asks again in an hour.
    mxr("fetch", model, *ARCH, expect=2)
    other = host("two", registry.url)
    found = other("fetch", model, *ARCH, "--json")
    assert found.json["id"] == older and not {"rocm", "inputs.x"} & set(found.json["match"]["assumed"])
    assert "mxr: rocm 7.1, batch 4 (the registry's defaults)" in found.err.splitlines()
    assert other("fetch", model, *ARCH, "--rocm", "7.2", "--json").json["id"] == newer
    assert other("fetch", model, *ARCH, "--json", env={"MXR_ROCM": "7.2"}).json["id"] == newer
    shown = other("config", model, "--json").json["defaults"]
    assert shown["batch"] == {"value": [4], "from": "the registry's defaults"}
    # A lock takes nothing open, but defaults.
    locked = other("lock", model, *ARCH, "--migraphx", "2.15", "--for", "python", "--no-fast-math", "--json").json
    assert [entry["id"] for entry in locked["entries"]] == [older]
    registry.kill9()
    for words in ((), ("--offline",)):
        assert other("fetch", model, *ARCH, *words, "--json").json["id"] == older


def test_another_release_of_rocm_is_accepted_where_it_is_allowed(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs, tmp_path: Path
) -> None:
    """From ROCm 10 on MIGraphX is released apart from the core: an update of the core compiles nothing again."""
    registry = own_registry()
    mxr = host("one", registry.url)
    older = push(mxr, model, programs.gfx908, "--rocm", "10.0", "--for", "python")
    rest = ("--arch", "gfx908:sramecc+:xnack-", "--migraphx", "2.15", "--batch", "4", "--for", "python")
    words = ("fetch", model, *rest, "--rocm", "10.1")
    error = mxr(*words, "--json", expect=3).error
    assert "--allow rocm" in error["hint"] and "rocm 10.0, but the request asks for 10.1" in error["detail"]
    done = mxr(*words, "--allow", "rocm", "--json", "-o", f"{tmp_path}/out/")
    assert (done.json["id"], done.json["match"]["relaxed"]) == (older, ["rocm"])
    assert "not an exact match: rocm 10.0 instead of 10.1" in done.err
    # An open request, too; but never one that states the patch, another major, or the time before ROCm 10.
    open_words = ("fetch", model, "--arch", "gfx908", "--rocm", "10.1", "--allow", "rocm", "--json")
    assert mxr(*open_words).json["match"]["relaxed"] == ["rocm"]
    for rocm in ("10.1.2", "11.0", "7.2"):
        mxr("fetch", model, *rest, "--rocm", rocm, "--allow", "rocm", expect=3)
    # That of the same release comes first, and the cache asks the registry for it.
    newer = push(mxr, model, programs.gfx908, "--rocm", "10.1", "--for", "python")
    assert mxr(*words, "--allow", "rocm", "--json").json["id"] == newer
    mxr("rm", newer, "--yes", "--force")
    # A namespace allows it for everybody, also where the host tells a patch: it does not ask for that one.
    other = host("two", registry.url)
    file = tmp_path / "host.json"
    told = {"targets": [{"arch": "gfx908"}], "toolchain": {"rocm": "10.1.3", "migraphx": "2.15.0"}}
    file.write_text(json.dumps(other("host", "--json").json | told))
    on_host = ("fetch", model, "--arch", "gfx908:sramecc+:xnack-", "--batch", "4", "--for", "python", "--host", file)
    assert "use `--allow rocm`, and state no patch" in other(*on_host, "--json", expect=3).error["hint"]
    command_words = ("namespace", "set", "default", "--allow", "rocm", "--data", registry.data)
    done_there = run_program(command("mxr-registry", *command_words), env=os.environ | registry.environ)
    assert done_there.stdout == "default: serve auto, allow rocm\n"
    third = host("three", registry.url)
    served = third(*on_host, "--json")
    assert (served.json["id"], served.json["match"]["relaxed"]) == (older, ["rocm"])
    assert "mxr: allow rocm (the registry's defaults)" in served.err.splitlines()
    assert third("config", model, "--json").json["defaults"]["allow"]["value"] == "rocm"
    third("fetch", model, *rest, "--rocm", "10.1.3", expect=3)
    third(*on_host, "--exact", expect=3)
    # While the registry is away the cache has it; a lock pins it.
    mxr("lock", model, *rest, "--rocm", "10.1", "--allow", "rocm", "-o", tmp_path / "mxr.lock")
    registry.kill9()
    assert third(*on_host, "--json").json["id"] == older
    pinned = mxr(
        "fetch", "--locked", tmp_path / "mxr.lock", model, *rest, "--rocm", "10.1", "--allow", "rocm", "--json"
    )
    assert pinned.json["id"] == older
