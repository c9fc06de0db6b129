"""Every command has `--help` and `--json`: one document on standard output, messages beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import Programs
from .stack import Host

ON = ("embedded",)

COMMANDS = (
    *(
        "fetch",
        "identity",
        "key",
        "push",
        "inspect",
        "check",
        "diff",
        "explain",
        "ls",
        "show",
        "promote",
        "rm",
        "host",
        "freeze",
    ),
    *("consumers", "cache", "cache dir", "cache ls", "cache verify", "cache prune", "cache rm", "jobs", "workers"),
    *("precompile", "plan", "lock", "verify", "export", "import", "kserve-init", "config"),
    *("yank", "quarantine", "unyank", "statement", "statement export", "statement import"),
    "tag",
    *("trust", "trust add", "trust ls", "trust rm"),
    *("login", "logout", "whoami", "open", "completion", "misses", "history"),
)


def test_the_list_above_is_whole(mxr: Host) -> None:
    walk = """
import json
from mxr_cli.main import mxr
def names(group, path=()):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        options = sorted({text for each in command.params for text in each.opts})
        yield " ".join((*path, name)), options, hasattr(command, "commands")
        if hasattr(command, "commands"):
            yield from names(command, (*path, name))
print(json.dumps(list(names(mxr))))
"""
    found = mxr.python(walk).json
    assert sorted(name for name, _, _ in found) == sorted(COMMANDS)
    for name, options, group in found:
        assert group or {"--json", "--debug"} <= set(options), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_how_a_command_is_used(mxr: Host, name: str) -> None:
    said = mxr(*name.split(), "--help")
    assert said.out.startswith(f"Usage: mxr {name} ")
    assert said.err == ""


def test_version_and_help_of_the_program_itself(mxr: Host) -> None:
    assert mxr("--version").out.startswith("mxr 0.")
    shown = mxr("--help").out
    assert all(f"\n  {name.split()[0]} " in shown for name in COMMANDS)


def holds(found: Any, *names: str) -> None:
    assert set(names) <= set(found), found


def test_what_was_missed(mxr: Host, model: Path, gpu: tuple[str, ...]) -> None:
    for _ in range(2):
        mxr("fetch", model, *gpu, "--precision", "int8", expect=3)
    (first, *_) = mxr("misses", "--json").json["misses"]
    assert (first["count"], first["request"]["key"]["precision"]) == (2, "int8")
    assert (first["reason"], [each["host"] for each in first["asked_by"]]) == ("unknown_model", [os.uname().nodename])
    words = ("misses", "--limit", "1", "--arch", "gfx908", "--why", "unknown_model", "--since", "7d")
    lines = mxr(*words, "--by", os.uname().nodename).out.splitlines()
    assert len(lines) == 2 and lines[1].startswith("2 ") and "gfx908" in lines[1] and "int8" in lines[1]
    assert len(mxr(*words, "--by", "nobody").out.splitlines()) == 1
    assert "such as 24h" in mxr("misses", "--since", "soon", expect=2).err
    mxr("fetch", model, "--arch", "gfx1201", expect=3)
    (partial,) = mxr("misses", "--arch", "gfx1201", "--json").json["misses"]
    assert "rocm" in partial["open"] and "rocm ?" in mxr("misses", "--arch", "gfx1201").out


def test_who_did_what(mxr: Host, model: Path, published: dict[str, Any]) -> None:
    mxr("promote", published["id"])
    for what in (model, published["id"][:12], published["key"]["model"][:25]):
        first, *_, last = mxr("history", what, "--json").json["events"]
        assert (first["kind"], last["kind"]) == ("artifact.promote", "artifact.publish")
        assert {each["subject"] for each in (first, last)} == {published["id"]}
    lines = mxr("history", "--kind", "artifact.promote", "--limit", "1").out.splitlines()
    assert lines[0].split() == ["WHEN", "WHAT", "OF", "BY", "FROM", "DETAIL"] and len(lines) == 2
    assert f"artifact.promote  {published['id'][:12]}" in lines[1]
    assert mxr("history", "--by", "nobody").out.splitlines()[1:] == []


def test_documents_of_a_program_s_life(
    mxr: Host, model: Path, programs: Programs, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    holds(published, "id", "digest", "sha256", "key", "attributes")

    assert mxr("identity", model, "--json").json == {"model": published["key"]["model"]}
    key = mxr("key", model, *gpu, "--json").json
    holds(key, "model", "digest", "key")
    assert (key["model"], key["digest"], key["key"]) == (
        published["key"]["model"],
        published["digest"],
        published["key"],
    )

    fetched = mxr("fetch", model, *gpu, "--json").json
    holds(fetched, "path", "source", "id", "sha256", "digest", "key", "match")
    assert fetched["match"] == {"exact": True, "relaxed": [], "assumed": {}}

    rows = mxr("ls", "--model", model, "--json").json["artifacts"]
    holds(rows[0], "id", "digest", "sha256", "size", "key", "attributes", "provenance")
    shown = mxr("show", published["id"], "--json").json
    holds(shown, *rows[0], "manifest")
    holds(mxr("promote", published["id"], "--json").json, "id", "promoted_at")
    for word in ("yank", "quarantine"):
        said = mxr(word, published["id"], "--reason", "x", "--json").json
        holds(said, "id", "recall")
        holds(said["recall"], "word", "reason", "recalled_at", "recalled_by")
    assert mxr("unyank", published["id"], "--json").json == {**said, "ended": True}

    (held,) = mxr("cache", "ls", "--json").json["files"]
    assert (held["sha256"], held["id"]) == (published["sha256"], published["id"])
    assert mxr("cache", "verify", "--json").json == {"verified": 1, "damaged": [], "recalled": []}
    assert mxr("cache", "dir", "--json").json == {"dir": str(mxr.cache / "v2")}
    assert mxr("cache", "prune", "--older-than", "1", "--json").json == {"removed": [], "freed": 0, "registries": 0}
    assert mxr("cache", "prune", "--older-than", "0", "--json").json["removed"] == [published["sha256"]]
    assert mxr("cache", "rm", "--all", "--json").json["removed"]
    assert not mxr.cache.exists() or not list(mxr.cache.rglob("*.json"))

    assert mxr("rm", published["id"], "--yes", "--force", "--json").json == {"id": published["id"], "removed": True}


def test_documents_about_files(mxr: Host, programs: Programs) -> None:
    told = mxr("inspect", programs.gfx908, "--json").json
    expected = {
        **{"file_version": 7, "migraphx": "2.15.0", "flavour": "upstream", "compiled": True, "targets": ["gpu"]},
        **{"archs": ["gfx908:sramecc+:xnack-"], "offload_copy": True},
        "inputs": {"x": {"type": "float_type", "dims": [4, 3, 32, 32]}},
    }
    assert {name: told[name] for name in expected} == expected
    holds(told, "outputs", "precisions", "libraries", "sizes")
    holds(told["sizes"], "file", "literals", "code_objects")
    assert told["sizes"]["file"] == programs.gfx908.stat().st_size

    checked = mxr("check", programs.gfx908, "--arch", "gfx908", "--rocm", "7.2", "--migraphx", "2.15", "--json").json
    assert checked["ok"] is True
    for row in checked["requirements"]:
        holds(row, "field", "needed", "found", "ok")

    assert mxr("diff", programs.gfx908, programs.gfx908, "--json").json == {"same": True, "differences": []}
    differences = mxr("diff", programs.gfx908, programs.gfx942, "--json", expect=6).json["differences"]
    assert "archs" in {row["field"] for row in differences}


def test_documents_about_this_machine(mxr: Host) -> None:
    holds(mxr("host", "--json").json, "targets", "toolchain", "found_by")
    names = {row["name"]: row for row in mxr("consumers", "--json").json["consumers"]}
    assert {name: (row["offload_copy"], row["fast_math"]) for name, row in names.items()} == {
        "python": (True, True),
        "driver": (False, True),
        "amdinfer": (True, True),
        "ort": (False, False),
        "amdinfer-repo": (True, True),
        "triton": (True, True),
        "kserve": (True, True),
        "epcontext": (False, False),
    }
    told = mxr("explain", "Failed to call function", "--json").json["explanations"]
    assert told
    assert mxr("explain", "--json", stdin="all is well\n", expect=3).json == {"explanations": []}


def test_a_recorded_host_stands_for_this_one(mxr: Host, model: Path, published: dict[str, Any], tmp_path: Path) -> None:
    facts = mxr("host", "--json").json
    facts["targets"] = [{"arch": "gfx908", "vendor": "amd", "sramecc": "+", "xnack": "-", "num_cu": 120}]
    facts["toolchain"] |= {"rocm": "7.2.0", "migraphx": "2.15.0"}
    record = tmp_path / "host.json"
    record.write_text(json.dumps(facts))
    fetched = mxr("fetch", model, "--batch", "4", "--for", "python", "--host", record, "--json")
    assert fetched.json["id"] == published["id"]
    assert "gfx908" in fetched.err


def test_messages_never_mix_with_the_answer(
    mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    without_consumer = [word for word in gpu if word not in ("--for", "python")]
    said = mxr("fetch", model, *without_consumer)
    assert said.out.splitlines() == [str(Path(said.out.strip()))]
    assert Path(said.out.strip()).is_file()
    assert "the complete command: mxr fetch" in said.err and "not an exact match" not in said.err
    assert "\r" not in said.err
