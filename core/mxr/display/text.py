"""Escapes text for a terminal, a log or a CI system: control characters, bidi marks, line separators, CI commands.

A CI system executes commands that it finds in the output of a job: lines that begin with `::` (GitHub), and `##[` or
`##vso[` anywhere in a line (GitHub, Azure Pipelines, TeamCity). A terminal executes escape sequences.
Source: actions/runner, src/Runner.Common/ActionCommand.cs (TryParse, TryParseV2); GitLab Runner's section markers need
an ESC; ECMA-48 for C0, C1 and escape sequences; Unicode, UAX #9 for bidi marks.

`redact` leaves secrets out of text: user, password and signature of URLs, tokens in headers, parameters named so.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable

USERINFO = r"(?<=://)(?:[^\s/?#'\"<>]{0,512}|[^\s/@:'\"<>]{0,512}:[^\s'\"<>]{0,512})@"
"""The second form is a password with a delimiter that is not percent-encoded."""

PARAMETER = r"(?i)(\b(?:X-Amz-(?:Signature|Credential|Security-Token)|password|passwd|secret|token)=)[^&\s'\"]+"
AUTHORIZATION = r"(?i)\b(bearer |authorization['\"]?[:=] ?['\"]?\w{1,20} )[\w.~+/=-]{8,}"
TOKEN = r"\bmxr_[A-Za-z0-9]+_[A-Za-z0-9_-]{32,}"
HIDDEN = "***"


def redact(text: str) -> str:
    """Return `text` without secrets that can be recognized by their form."""
    if "@" in text and "://" in text:
        text = re.sub(USERINFO, f"{HIDDEN}@", text)
    if "=" in text:
        text = re.sub(PARAMETER, rf"\1{HIDDEN}", text)
    if "mxr_" in text:
        text = re.sub(TOKEN, f"mxr_{HIDDEN}", text)
    lower = text.lower()
    if "bearer " in lower or "authorization" in lower:
        text = re.sub(AUTHORIZATION, rf"\1{HIDDEN}", text)
    return text


def redact_url(url: str) -> str:
    """Return a URL without the parts that may be secret: user, password and query."""
    scheme, _, rest = url.partition("://")
    # Not parsed as a URL: a password that is not percent-encoded may contain any delimiter.
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


CI_COMMAND = r"##(?=[\w.]*\[)"
MARKUP = r"<(?=[/!])"
"""What would end a script element or begin a comment in HTML."""

LINE_ENDS = "\r\n|\n|\r"

# Patterns are texts: `re` compiles and keeps them at their first use, and a fetch uses none.
INVISIBLE = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U000e0100-\U000e01ef]"
)
"""Letters and marks that Python counts as printable and nobody sees: fillers, joiners, variation selectors.

Source: Unicode 15.1, DerivedCoreProperties.txt, Default_Ignorable_Code_Point; U+2800 and U+16FE4 are blank, too.
"""


def printable(text: object) -> str:
    r"""Return `text` as one line that no terminal and no CI system interprets, without secrets of URLs.

    Characters that are not printable are written as `\x1b`, `\n` or `\u202e`; spaces and all letters stay as they are.
    Printing the result again changes nothing.
    """
    shown = redact(str(text))
    if not shown.isprintable() or (not shown.isascii() and re.search(INVISIBLE, shown)):
        shown = "".join(each if _is_shown(each) else _escape(each) for each in shown)
    if "##" in shown:
        shown = re.sub(CI_COMMAND, r"\\x23#", shown)
    if shown.lstrip().startswith("::"):
        shown = shown.replace("::", r"\x3a:", 1)
    return shown


def printable_lines(text: str) -> list[str]:
    r"""Return the lines of a log, each as `printable`. Lines end with `\n`, `\r\n` or `\r`; tabs become spaces."""
    lines = re.split(LINE_ENDS, text)
    return [printable(line.expandtabs()) for line in (lines if lines[-1] else lines[:-1])]


def json_text(value: object, *, indent: int | None = None) -> str:
    r"""Return JSON with the same values; `\uXXXX` stands for what a terminal, a CI system or HTML interprets."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not text.isascii() or "\x7f" in text:
        text = "".join(each if each == "\n" or _is_shown(each) else json_escape(each) for each in text)
    return re.sub(MARKUP, r"\\u003c", re.sub(CI_COMMAND, r"#\\u0023", text))


def json_escape(letter: str) -> str:
    r"""Return a character as `\uXXXX`, or as two of them (RFC 8259, section 7)."""
    return "\\u007f" if letter == "\x7f" else json.dumps(letter)[1:-1]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 entry", "2 entries". `plural`: that of a noun to which no s is added."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def shell_quoted(text: object) -> str:
    """Return `text` as one word of a command line to copy: names of files come from other people."""
    import shlex

    return shlex.quote(str(text))


def python_quoted(text: object) -> str:
    """Return `text` as a string of Python or JSON to copy."""
    return json.dumps(str(text), ensure_ascii=False)


def _is_shown(letter: str) -> bool:
    if letter.isprintable():
        return letter.isascii() or not re.match(INVISIBLE, letter)
    return unicodedata.category(letter) == "Zs"


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the known name that is nearest to an unknown one, with a space before; else nothing."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1)
    return f" Did you mean {found[0]}?" if found else ""
