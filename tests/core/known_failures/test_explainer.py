"""Tests of the explainer: one realistic line per known text (samples.txt), and ordinary lines (ordinary.txt).

The samples have the form in which the programs print them: MIGraphX puts "source file:line: function:" before its
messages, Python the name of an exception, container runtimes a timestamp. Names of hosts and files are invented.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.known_failures.explainer import find_failures
from mxr.known_failures.table import FAILURES

MGX = "/long_pathname_so_that_rpms_can_package_the_debug_info/src/extlibs/AMDMIGraphX/src/"
MISMATCH = (
    f"RuntimeError: {MGX}program.cpp:857: from_value: Error: Program version mismatch. MXR file was created using "
    "program file version: 7, while installed MIGraphX is using program file version: 8, Try regenerating MXR file "
    "using installed MIGraphX and running again."
)

HERE = Path(__file__).parent
ROWS = [row for row in (HERE / "samples.txt").read_text().splitlines() if not row.startswith("# ")]
SAMPLES = [tuple(row.split(": ", 1)) for row in ROWS]

WRAPPINGS = [
    "{}",
    "  \t{}  ",
    "2026-03-01T03:04:05.123456789Z {}",
    "Mar 01 03:04:05 node-7 amdinfer[4711]: {}",
    "[pod/serve-0/server] {}",
    "2026-03-01T03:04:05.1+00:00 stderr F {}",
    "server-1  | {}",
    "\x1b[1;31m{}\x1b[0m",
]

ORDINARY = [
    "",
    "\n\n",
    "Model Compile: Begin\nModel Compile: Complete",
    *(HERE / "ordinary.txt").read_text().splitlines(),
]


@for_each(SAMPLES)
def test_each_known_text_is_recognised(name: str, line: str) -> None:
    found = find_failures(line)
    assert [hit.failure.name for hit in found][:1] == [name]
    assert found[0].line == 1
    assert "{" not in found[0].means.replace("{float", "") + found[0].fix or name == "wrong-shape"


def test_every_row_has_a_sample() -> None:
    assert {name for name, _ in SAMPLES} == {failure.name for failure in FAILURES}


@for_each(WRAPPINGS)
def test_prefixes_colours_and_case_do_not_matter(wrapping: str) -> None:
    for name, line in SAMPLES:
        found = find_failures("started\n" + wrapping.format(line) + "\nended")
        assert found and found[0].failure.name == name, (wrapping, line)
        assert found[0].line == 2


def test_json_logs_are_read() -> None:
    line = json.dumps({"log": f"\x1b[31m{MISMATCH}\x1b[0m\n", "stream": "stderr", "time": "2026-03-01T03:04:05Z"})
    assert [hit.failure.name for hit in find_failures(line)] == ["file-version"]
    option = json.dumps({"msg": 'Unknown provider option: "cache_dirs".'})
    assert "`cache_dirs`" in find_failures(option)[0].means


def test_a_message_broken_over_lines_is_read() -> None:
    broken = "[03:04:05] ERROR    Program version mismatch. MXR file was created\n" + " " * 20
    broken += "using program file version: 7, while installed\n" + " " * 20
    broken += "MIGraphX is using program file version: 8"
    hit = find_failures("first\n" + broken)[0]
    assert (hit.line, hit.failure.name.startswith("file-version")) == (2, True)


@for_each(ORDINARY)
def test_ordinary_logs_contain_no_known_failure(text: str) -> None:
    assert find_failures(text) == []


def test_joined_ordinary_logs_contain_no_known_failure() -> None:
    assert find_failures("\n".join(ORDINARY)) == []


def test_groups_of_the_pattern_fill_the_placeholders() -> None:
    hit = find_failures(MISMATCH)[0]
    assert "format 7" in hit.means and "format 8" in hit.means
    hit = find_failures(next(line for name, line in SAMPLES if name == "epcontext-arch"))[0]
    assert "compiled for gfx942:sramecc+:xnack-" in hit.means
    assert "gfx90a:sramecc+:xnack-" in hit.fix


def test_the_gpu_message_of_amdinfer_is_a_consequence_of_the_hip_error() -> None:
    log = "\n".join(
        [
            "[2026-03-01 03:04:05.001] [info] migraphx worker loading compiled model file /mnt/models/resnet50_b64.mxr",
            "Error: The program ISA amdgcn-amd-amdhsa--gfx942:sramecc+:xnack- is not compatible with the device ISA "
            "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-",
            f"MIGraphX Error: {MGX}targets/gpu/kernel.cpp:70: load_module: Failed to load module: no kernel image is "
            "available for execution on the device",
            "[2026-03-01 03:04:05.006] [error] Failed to call function.  Server could not connect to a GPU.",
        ]
    )
    found = [(hit.failure.name, hit.line, hit.consequence_of) for hit in find_failures(log)]
    assert found == [
        ("hip-isa", 2, None),
        ("module-wrong-arch", 3, "hip-isa"),
        ("amdinfer-gpu", 4, "hip-isa"),
    ]


def test_a_python_traceback_is_reported_at_its_last_line() -> None:
    log = f"""Traceback (most recent call last):
  File "/srv/serve.py", line 12, in <module>
    program = migraphx.load("net.mxr")
              ^^^^^^^^^^^^^^^^^^^^^^^^
{MISMATCH}
"""
    assert [(hit.failure.name, hit.line) for hit in find_failures(log)] == [("file-version", 5)]


def test_the_status_of_onnx_runtime_is_a_consequence() -> None:
    log = f"""2026-03-01 03:04:05.006 [E:onnxruntime:, sequential_executor.cc:516 ExecuteKernel] Non-zero status code \
returned while running MGXKernel_graph_main_0 node. Name:'MIGraphXExecutionProvider_MGXKernel_graph_main_0' \
Status Message: Failed to call function
{MGX}targets/gpu/hip.cpp:128: register_on_gpu: Gpu register failed: invalid argument
"""
    found = [(hit.failure.name, hit.consequence_of) for hit in find_failures(log)]
    assert found == [("offload-copy", None), ("ort-status", "offload-copy")]


def test_the_cpu_fallback_is_a_consequence_of_the_option() -> None:
    log = """*************** EP Error ***************
EP Error /onnxruntime/python/onnxruntime_pybind_state.cc:966 Invalid MIGraphX EP option: migraphx_load_compiled_path
 when using [('MIGraphXExecutionProvider', {'device_id': '0'})]
Falling back to ['CPUExecutionProvider'] and retrying.
****************************************"""
    found = [(hit.failure.name, hit.consequence_of) for hit in find_failures(log)]
    assert found == [("ort-option", None), ("ort-on-cpu", "ort-option")]


def test_a_warning_does_not_cause_a_catch_all() -> None:
    warning = next(line for name, line in SAMPLES if name == "tuned-solution")
    found = find_failures(f"{warning}\nFailed to call function")
    assert [(hit.failure.name, hit.consequence_of) for hit in found] == [
        ("tuned-solution", None),
        ("failed-to-call", None),
    ]


def test_a_cause_of_another_kind_does_not_cause_a_symptom() -> None:
    found = find_failures("Gpu allocation failed: out of memory\nFailed to load module: unknown error")
    assert [(hit.failure.name, hit.consequence_of) for hit in found] == [("gpu-memory", None), ("module-load", None)]


def test_each_failure_is_reported_once_at_its_first_line() -> None:
    found = find_failures("ok\n" + "Failed to call function\n" * 1000)
    assert [(hit.failure.name, hit.line) for hit in found] == [("failed-to-call", 2)]


def test_the_json_form_is_stable() -> None:
    (hit,) = find_failures(MISMATCH)
    document = json.loads(json.dumps(hit.to_json()))
    assert set(document) == {"name", "who", "kind", "line", "text", "means", "fix", "source", "consequence_of"}
    assert document["name"] == "file-version" and document["kind"] == "mismatch" and document["who"] == "migraphx"


def test_a_log_cannot_put_commands_or_escapes_into_the_fix() -> None:
    hit = find_failures("read_buffer: Failure opening file: $(reboot);`id`.mxr")[0]
    assert "reboot" not in hit.fix and "FILE" in hit.fix
    hit = find_failures("read_buffer: Failure opening file: --debug.mxr")[0]
    assert "--debug" not in hit.fix
    hit = find_failures("Requested target 'g\x1b]0;owned\x07pu\u202e\x9b31m' is not loaded or not supported")[0]
    assert (hit.text + hit.means + hit.fix).isprintable()


def test_undecodable_bytes_and_utf_16_are_accepted() -> None:
    assert find_failures(b"\xff\xfeodd") == []
    assert find_failures(b"\x80\xc3( " + MISMATCH.encode() + b"\xed\xa0\x80")[0].failure.name == "file-version"
    assert find_failures(MISMATCH.encode("utf-16"))[0].failure.name == "file-version"
    assert find_failures("\ud800 " + MISMATCH)[0].failure.name == "file-version"


def test_only_the_end_of_a_huge_log_is_read_and_line_numbers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxr.known_failures.explainer.MAX_BYTES", 1 << 20)
    log = b"Failed to call function\n" + b"x" * (1 << 20) + b"\nmore\nSegmentation fault\n"
    assert [(hit.failure.name, hit.line) for hit in find_failures(log)] == [("segfault", 4)]
    many = b"Failed to call function\n" + b"some line\n" * 200_000 + b"Segmentation fault\n"
    assert [(hit.failure.name, hit.line) for hit in find_failures(many)] == [("segfault", 200_002)]


SIZE = 5_000_000 if os.environ.get("MXR_TEST_SOAK") == "1" else 500_000
LIMIT = 2.0
"""Seconds of processor time. Quadratic time on either size would take minutes."""
NEEDLES = " ".join(needle.decode() for failure in FAILURES for needle in failure.needles)
HOSTILE_UNITS = {
    "one line": "a",
    "blanks": " ",
    "lines": "\n",
    "escapes": "\x1b[",
    "open escape": "0;",
    "brackets": "[",
    "json": '{"log":"\n',
    "needles": NEEDLES + " ",
    "needle lines": NEEDLES.replace(" ", "\n") + "\n",
    "each needle a line": "\n".join(needle.decode() for failure in FAILURES for needle in failure.needles) + "\n",
    "shapes": "incorrect shape {",
    "names": "failure opening file: ",
    "name lines": 'write_buffer: failure opening file: ""\n',
    "bundles": "program isa gfx900:xnack- is not compatible ",
    "hashes": "failure opening file: 20f00-1-1-1-1-",
}


@for_each(HOSTILE_UNITS.values())
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = "\x1b[" + unit * (SIZE // len(unit))
    started = time.process_time()
    find_failures(text)
    assert time.process_time() - started < LIMIT


@given(st.text() | st.binary())
def test_any_input_is_accepted(text: str | bytes) -> None:
    find_failures(text)


@given(st.lists(st.sampled_from([line for _, line in SAMPLES]), min_size=1, max_size=8), st.binary(max_size=40))
def test_any_mixture_is_ordered_and_marked(lines: list[str], junk: bytes) -> None:
    found = find_failures(b"\n".join([*(line.encode() for line in lines), junk]))
    assert found
    names = [hit.failure.name for hit in found]
    assert len(names) == len(set(names))
    levels = [("cause", "symptom", "note", "catch-all").index(hit.failure.level) for hit in found]
    assert levels == sorted(levels)
    for hit in found:
        assert hit.consequence_of is None or hit.consequence_of in names[: names.index(hit.failure.name)]


@for_each(FAILURES)
def test_each_row_follows_the_rules_of_the_table(failure) -> None:
    pattern = re.compile(failure.pattern, re.IGNORECASE | re.ASCII)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", failure.name)
    assert set(failure.covers) <= {other.name for other in FAILURES} - {failure.name}
    groups = {name: "x" for name in pattern.groupindex}
    assert failure.means.format_map(groups) and failure.fix.format_map(groups)
    assert all(needle == needle.lower() and len(needle) >= 6 for needle in failure.needles)
    assert failure.source
    assert not re.search(r"(?<!\\)[*+](?![\]:+-])", re.sub(r"\[[^\]]*\]", "", failure.pattern)), "an unbounded repeat"


def test_names_are_unique() -> None:
    names = [failure.name for failure in FAILURES]
    assert len(names) == len(set(names))


def test_fixes_name_only_commands_that_exist() -> None:
    commands = {"fetch", "check", "inspect", "host", "cache", "explain"}
    for failure in FAILURES:
        assert set(re.findall(r"`mxr (\w+)", failure.fix + failure.means)) <= commands


def test_no_advice_can_destroy_a_file() -> None:
    """What is in the way is moved, not deleted, and no path from a text becomes the target of a command."""
    harmful = r"\bdelete\b|\brm\b|\boverwrite\b|--force|remove (the|this) file|-o \{"
    for failure in FAILURES:
        assert not re.search(harmful, failure.fix.lower()), failure.name
