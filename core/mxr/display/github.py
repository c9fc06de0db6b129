"""Text for GitHub Actions: workflow commands and Markdown."""

from __future__ import annotations

import re

from .text import printable

MARKDOWN = re.compile(r"([\\|`*_<>\[\]&#~!:$()]|(?<=[wW]{3})\.)")
APART = "<!-- -->"
"""Keeps two texts apart: GitHub finds addresses and names by their `@` after backslashes are gone."""


def annotation(message: str, file: object, line: object) -> str:
    """Return the workflow command that marks a line of a file as wrong.

    Source: GitHub, Actions documentation, "Workflow commands"; escaped as in its toolkit (core/src/command.ts).
    """
    where = _data(file).replace(":", "%3A").replace(",", "%2C")
    return f"::error file={where},line={int(str(line))}::{_data(' '.join(message.split()))}"


def _data(text: object) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def markdown(text: object) -> str:
    """Return text for one cell of a Markdown table: shown as it is, without links, mentions, HTML or formulas.

    Source: CommonMark 0.31, section 2.4: a backslash before ASCII punctuation shows that character; GitHub Flavored
    Markdown, "Autolinks (extension)": `www.`, `https://` and mail addresses become links, and cmark-gfm finds the last
    of them in the finished text.
    """
    escaped = MARKDOWN.sub(r"\\\1", printable(" ".join(str(text).split())))
    return escaped.replace("@", f"{APART}@{APART}")
