"""What is shown is harmless: no text controls a terminal, a log, a CI system or HTML, and JSON keeps its values."""

from __future__ import annotations

import ast
import json
import logging
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import cmarkgfm
import pytest
from harness.harmless import is_harmless
from harness.rows import for_each
from hypothesis import example, given
from hypothesis import strategies as st

from mxr.display import github, logs, streams
from mxr.display.text import json_text, printable, printable_lines, python_quoted, redact, shell_quoted
from mxr.errors import MxrError, UsageError, from_json

HOSTILE = (
    "\x1b[2J",
    "\x9b2J",
    "a\rb",
    "a\nmxr: all is well",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\u200f",
    "\u2028::error::x",
    "\u2029",
    "\x85::error::x",
    "::error::x",
    " \u3000::stop-commands::x",
    "a##[error]x",
    "###[debug]",
    "##vso[task.setvariable variable=a]b",
    "##teamcity[x]",
    "\x00\x07\x08\x7f",
    "\udc80",
    "\ufeff::error::x",
    "\r\x1b[0Ksection_start:1:x\r\x1b[0K",
    "</script><!-- ",
    "\x1b]8;;https://example.org\x1b\\x",
)
TEXT = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=60), st.text("#:[] \tvso\x1b\n\u2028", max_size=12))


@given(TEXT)
@example("naïve 模型 \U0001f600 e\u0301")
def test_a_line_is_harmless_and_stays_the_same_when_printed_again(text: str) -> None:
    line = printable(text)
    assert is_harmless(line) and printable(line) == line


def test_what_is_shown_of_hostile_text() -> None:
    assert [printable(each) for each in ("\x1b[2J", "a\n\t::b", "::error::x", "##[x]", "\u202ex", "名 é")] == [
        r"\x1b[2J",
        r"a\n\t::b",
        r"\x3a:error::x",
        r"\x23#[x]",
        r"\u202ex",
        "名 é",
    ]


@given(TEXT, st.lists(st.integers(0, 60), max_size=4))
def test_a_log_that_arrives_in_parts_is_harmless(text: str, cuts: list[int]) -> None:
    """A workflow command cut in two parts, `:` and `:error::`, is still none. Nothing of a line is lost."""
    ends = sorted(cuts)
    parts = [text[start:stop] for start, stop in zip([0, *ends], [*ends, len(text)], strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr(streams, "_write", lambda text, **_: written.append(text))
        log = streams.LogWriter()
        for part in parts:
            log.write(part)
        log.close()
    shown = "".join(written).splitlines()
    assert shown == printable_lines(text) and all(map(is_harmless, shown))


@given(st.dictionaries(TEXT, st.one_of(TEXT, st.lists(TEXT, max_size=3)), max_size=4), st.sampled_from([None, 2]))
@example({"a": "\x7f\x9b\u202e##[x]</script>"}, None)
def test_json_is_harmless_and_keeps_every_value(value: dict[str, object], indent: int | None) -> None:
    text = json_text(value, indent=indent)
    assert json.loads(text) == value
    assert all(map(is_harmless, text.split("\n"))) and "</" not in text and "<!" not in text


@given(TEXT)
def test_an_annotation_is_one_command(text: str) -> None:
    """A message can neither end its workflow command nor begin another one."""
    line = github.annotation(text, f"a,b:c{text}", 7)
    assert line.startswith("::error file=a%2Cb%3Ac") and is_harmless(line.removeprefix("::error "))
    assert ",line=7::" in line and not re.search(r"%(?!25|3A|2C)", line)


@given(TEXT)
@example("www.evil.example https://evil.example a@evil.example xmpp:a@evil.example/b mailto:a@evil.example @user")
@example("[x](https://evil.example) <b> ![i](j) a|b `c` _d_ *e* ~~f~~ $g$ &lt; <https://evil.example> :smile: #1")
def test_a_markdown_cell_is_text(text: str) -> None:
    """GitHub's own renderer shows the same text, without links, images and formatting."""
    shown = printable(" ".join(text.split()))
    table = f"| a |\n|---|\n| {github.markdown(text)} |\n"
    html = cmarkgfm.github_flavored_markdown_to_html(table)
    cell = ElementTree.fromstring(re.sub(r"<!--.*?-->", "", html)).find("tbody/tr/td")
    assert cell is not None and len(cell) == 0 and (cell.text or "") == shown
    assert not re.search(r"\w@\w|@\w", github.markdown(text)), "nor does a later pass find names"


INVISIBLE = ["\u3164", "\u115f", "\u034f", "\ufe0f", "\u2800", "\U000e0101"]


@for_each(INVISIBLE)
def test_what_nobody_sees_is_escaped(letter: str) -> None:
    escaped = letter.encode("unicode_escape").decode()
    assert printable(f"a{letter}b") == f"a{escaped}b"
    assert json.loads(json_text(letter)) == letter and json_text(letter).isascii()
    assert printable("한글 ❤ ｱ é́") == "한글 ❤ ｱ é́"


def test_words_of_commands_to_copy_are_quoted() -> None:
    hostile = "/models/$(touch x); '\"x.mxr"
    assert shlex.split(f"run {shell_quoted(hostile)}") == ["run", hostile]
    assert shell_quoted(Path("/models/a-b_c.mxr")) == "/models/a-b_c.mxr"
    assert ast.literal_eval(python_quoted(hostile)) == hostile


@given(TEXT)
def test_text_is_xml(text: str) -> None:
    element = ElementTree.Element("a", {"b": printable(text)})
    assert ElementTree.fromstring(ElementTree.tostring(element)).get("b") == printable(text)


@given(TEXT)
def test_a_log_record_is_one_line(text: str) -> None:
    """A message cannot add a record, and a traceback is indented."""
    try:
        raise ValueError(text)
    except ValueError as problem:
        found = (type(problem), problem, problem.__traceback__)
    record = logging.LogRecord("mxr", logging.INFO, __file__, 1, "job: %s", (text,), None)
    lines = logs.LineFormatter().format(record).split("\n")
    assert len(lines) == 1 and is_harmless(lines[0])
    record.exc_info = found
    first, *trace = logs.LineFormatter().format(record).split("\n")
    assert first == lines[0] and trace and all(line.startswith("    ") and is_harmless(line) for line in trace)


@for_each(
    [
        "Cannot reach http://me:hunter2@host:8765/v1.",
        "Cannot reach http://hunter2@host.",
        "postgresql://me:hun/hunter2@host/mxr",
        "postgresql://me:p@hunter2@host/mxr",
        "postgresql://host/mxr?password=hunter2&x=1",
        "GET /b?X-Amz-Signature=hunter2&X-Amz-Date=1",
        "Authorization: Bearer hunter2hunter2",
        "Authorization: Basic hunter2hunter2",
        "{'authorization': 'Bearer hunter2hunter2'}",
        "Proxy http://hunter2:x@proxy:3128 refused",
        "mxr_ab12_" + "hunter2" * 6,
    ]
)
def test_secrets_are_left_out(text: str) -> None:
    """In what is printed, and in errors, whose JSON form is not changed by printing."""
    shown = redact(text)
    assert "hunter2" not in shown and "***" in shown
    error = MxrError(f"It failed: {text}", hint=text)
    assert "hunter2" not in json.dumps(error.to_json()) + str(error) + repr(error) + printable(text)


@pytest.mark.parametrize(
    "text", ["mail me@example.org", "a basic optimization_level", "https://example.org/a@b", "MIGRAPHX_TOKENS=1"]
)
def test_other_text_stays(text: str) -> None:
    assert redact(text) == text


def test_an_error_of_a_registry_is_harmless_in_a_traceback() -> None:
    """The message stays as it is for JSON."""
    error = from_json({**UsageError(hint="\u202e").to_json(), "detail": "\x1b[2J\n::error::x"})
    assert (str(error), error.message) == (r"\x1b[2J\n::error::x", "\x1b[2J\n::error::x")


def test_an_encoding_without_a_letter(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    import io
    import sys

    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    streams.write_line("naïve")
    assert stream.buffer.getvalue() == b"na\\xefve\n"
