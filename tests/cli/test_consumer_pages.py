"""The consumers' pages: `mxr` accepts every command line in them, and the list names every page."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from harness.rows import for_each
from paths import ROOT

from mxr import consumers
from mxr_cli.main import mxr

PAGES = sorted((ROOT / "docs" / "consumers").glob("*.md"))
LINE = re.compile(r"^(?:    |\$ )(mxr .+)$|`(mxr [a-z][^`]*)`", re.MULTILINE)
LINES = [(page.name, found[0] or found[1]) for page in PAGES for found in LINE.findall(page.read_text())]


def parse(words: list[str]) -> click.Context:
    """The command's context after its options were parsed; nothing is run. Raises what click raises."""
    with click.Context(mxr) as above:
        command = mxr.get_command(above, words[0])
        assert command is not None, words
        return command.make_context(words[0], words[1:], parent=above)


@for_each(LINES)
def test_the_command_accepts_a_command_line_of_a_page(page: str, line: str) -> None:
    words = shlex.split(line.partition(" > ")[0])[1:]
    if words[0] == "fetch" and len(words) == 1:
        return
    context = parse(words)
    if (name := context.params.get("consumer", "CONSUMER")) not in (None, "CONSUMER"):
        consumer = consumers.find_consumer(name)
        # A layout needs a folder.
        assert consumer.name_file is not None or not str(context.params.get("output")).endswith(".mxr"), line


def test_an_unknown_option_is_found() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(["fetch", "m.onnx", "--layout", "triton"])
    assert len(LINES) > 15


def test_every_page_is_in_the_list() -> None:
    listed = (PAGES[0].parent / "README.md").read_text()
    assert {page.name for page in PAGES} == {"README.md", *re.findall(r"\(([a-z-]+\.md)\)", listed)}
