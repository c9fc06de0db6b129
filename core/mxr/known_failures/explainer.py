"""Finds known failures in an error text or log, and explains each with the command that fixes it.

The failures are data, in `table.py`. This module only searches a log:

    any bytes -> lines without colours and repeated blanks -> literal needles find candidates -> a pattern decides

If the search finds nothing, or only catch-alls, it runs again with indented lines joined to the previous line, because
some loggers break a message over several lines.

The running time depends on the length of the log, not on its content: a pattern sees only a short window around a
needle, and the search stops trying a needle that keeps failing to match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from .table import FAILURES, LEVELS, KnownFailure

__all__ = ["MAX_BYTES", "Explanation", "KnownFailure", "find_failures"]

MAX_BYTES = 64 << 20
"""Maximum number of bytes that are read. Of a longer log only the end is read, because that is where it fails."""

_BEFORE, _AFTER = 512, 2048
"""Bytes before and after a needle that its pattern sees."""
_SEARCH_BUDGET = 256 << 10
"""Bytes that the pattern of one needle may search without a match. Each attempt costs 128 bytes in addition."""
_MAX_TEXT = 400
"""Characters of the log line that an explanation shows."""
_UNKNOWN = "(unknown)"

_CONTINUED = b"\v"
"""Replaces a line end before an indented line, which may continue the previous line."""
_TO_BLANKS = bytes.maketrans(b"\t\r\v\f\0", b"     ")
_JSON_LINE = re.compile(rb"^\{.*", re.MULTILINE)

_COLOUR = re.compile(rb"(?:\x1b|\\u001[bB])(?:\[[0-9;:?]{0,32}[A-Za-z]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\))")
_PREFIX = re.compile(
    r"""(?:
      \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]?\d{0,9}\s?(?:Z|[+-]\d\d:?\d\d)?\s
    | [A-Z][a-z]{2}\s\d{1,2}\s\d\d:\d\d:\d\d(?:\.\d{1,9})?\s\S{1,80}\s[\w./@-]{1,80}(?:\[\d{1,10}\])?:\s
    | \[[^\]]{1,200}\]:?\s
    | (?:stdout|stderr)\s[FP]\s
    | [\w.-]{1,80}\s?\|\s
    | \{"(?:log|message|msg)":\s?"
    )""",
    re.VERBOSE | re.ASCII,
)
_SHELL_SAFE = re.compile(r"[A-Za-z0-9_./:+@,=%][A-Za-z0-9_./:+@,=%-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A known failure found in a text."""

    failure: KnownFailure
    line: int
    """Line number, starting at 1."""
    text: str
    """The line without colours, prefixes and control characters, shortened to a readable length."""
    means: str
    fix: str
    consequence_of: str | None = None
    """Name of the failure in the same text that causes this one."""

    def to_json(self) -> dict[str, Any]:
        """`{"name","who","kind","line","text","means","fix","source","consequence_of"}`."""
        return {
            "name": self.failure.name,
            "who": self.failure.who,
            "kind": self.failure.kind,
            "line": self.line,
            "text": self.text,
            "means": self.means,
            "fix": self.fix,
            "source": self.failure.source,
            "consequence_of": self.consequence_of,
        }


@dataclass(frozen=True, slots=True)
class _Log:
    """A log prepared for searching. `lowered` is `body` in lower case, with every byte at the same offset."""

    body: bytes
    lowered: bytes
    lines: bytes
    """`body` with all line ends; `body` itself has none between joined lines."""
    skipped: int

    def line(self, at: int) -> int:
        """Number of the line, starting at 1, that contains byte `at`."""
        return self.skipped + self.lines.count(b"\n", 0, at) + 1


def find_failures(text: str | bytes) -> list[Explanation]:
    """Return the known failures in `text`, causes first and their consequences last; empty if there are none.

    Accepts any text or bytes and raises no error. Reads at most the last `MAX_BYTES`. Each failure is reported once, at
    its first occurrence.
    """
    data, skipped = _last_bytes(text)
    normalized = _normalized(data)
    body = normalized.replace(_CONTINUED, b"\n")
    found = _search(_Log(body, body.lower(), body, skipped), FAILURES)
    if _CONTINUED in normalized and all(hit.failure.level == "catch-all" for hit in found):
        known = {hit.failure.name for hit in found}
        joined = normalized.replace(_CONTINUED, b" ")
        rest = [failure for failure in FAILURES if failure.name not in known]
        found += _search(_Log(joined, joined.lower(), body, skipped), rest)
    return _ordered(_most_specific(found))


def _last_bytes(text: str | bytes) -> tuple[bytes, int]:
    """The bytes to read, and the number of skipped lines before them."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, which PowerShell writes with ">"
        data = data[: MAX_BYTES * 2].decode("utf-16", "replace").encode("utf-8", "replace")
    if len(data) <= MAX_BYTES:
        return data, 0
    cut = len(data) - MAX_BYTES
    return data[cut:], data.count(b"\n", 0, cut)


def _normalized(data: bytes) -> bytes:
    """The lines without colours, with single blanks, and JSON lines without the escapes that hinder a search.

    `_CONTINUED` replaces the line end before an indented line.
    """
    body = _JSON_LINE.sub(_unescaped, _COLOUR.sub(b"", data)).translate(_TO_BLANKS)
    while b"  " in body:
        body = body.replace(b"  ", b" ")
    return body.replace(b" \n", b"\n").replace(b"\n ", _CONTINUED)


def _unescaped(line: re.Match[bytes]) -> bytes:
    return line[0].replace(b'\\"', b'"').replace(b"\\n", b" ").replace(b"\\t", b" ")


def _search(log: _Log, failures: tuple[KnownFailure, ...] | list[KnownFailure]) -> list[Explanation]:
    hits = (_find(log, failure) for failure in failures)
    return [hit for hit in hits if hit is not None]


def _find(log: _Log, failure: KnownFailure) -> Explanation | None:
    """The first occurrence of the failure in `log`."""
    if failure.unless and failure.unless in log.lowered:
        return None
    best: Explanation | None = None
    for needle in failure.needles:
        hit = _find_needle(log, failure, needle)
        if hit is not None and (best is None or hit.line < best.line):
            best = hit
    return best


def _find_needle(log: _Log, failure: KnownFailure, needle: bytes) -> Explanation | None:
    at, spent, pattern = 0, 0, None
    while spent < _SEARCH_BUDGET and (at := log.lowered.find(needle, at)) >= 0:
        pattern = pattern or re.compile(failure.pattern, re.IGNORECASE | re.ASCII)
        window, end = _window(log.body, at)
        message = _without_prefixes(window)
        match = pattern.search(message)
        if match is not None:
            return _explanation(failure, log.line(at), message, match)
        spent += len(window) + 128
        at = max(end, at + len(needle))
    return None


def _window(body: bytes, at: int) -> tuple[str, int]:
    """The line around byte `at`, limited to what a pattern may see, and the offset of its end."""
    start = max(at - _BEFORE, body.rfind(b"\n", max(0, at - _BEFORE), at) + 1, 0)
    end = body.find(b"\n", at, at + _AFTER)
    if end < 0:
        end = min(len(body), at + _AFTER)
    return body[start:end].decode("utf-8", "replace"), end


def _without_prefixes(line: str) -> str:
    """The line without the prefixes of loggers and container runtimes."""
    line = line.strip()
    for _ in range(8):
        match = _PREFIX.match(line)
        if match is None:
            break
        line = line[match.end() :].lstrip()
    return line


def _explanation(failure: KnownFailure, line: int, message: str, match: re.Match[str]) -> Explanation:
    groups = {name: _printable(value or "") for name, value in match.groupdict().items()}
    start = max(0, match.start() - _MAX_TEXT // 2) if len(message) > _MAX_TEXT else 0
    return Explanation(
        failure=failure,
        line=line,
        text=_printable(message[start : start + _MAX_TEXT]),
        means=failure.means.format_map({name: value or _UNKNOWN for name, value in groups.items()}),
        fix=failure.fix.format_map({name: _argument(name, value) for name, value in groups.items()}),
    )


def _printable(value: str) -> str:
    """The text without control characters: a log is untrusted and could contain terminal escape sequences."""
    return "".join(letter if letter.isprintable() else " " for letter in value).strip()


def _argument(name: str, value: str) -> str:
    """The value from the log if it is safe in a shell command that users paste, otherwise a placeholder."""
    return value if _SHELL_SAFE.fullmatch(value) else name.upper()


def _most_specific(found: list[Explanation]) -> list[Explanation]:
    """The failures that no more specific failure on the same line covers."""
    covered = {(name, hit.line) for hit in found for name in hit.failure.covers}
    return [hit for hit in found if (hit.failure.name, hit.line) not in covered]


def _ordered(found: list[Explanation]) -> list[Explanation]:
    found = sorted(found, key=lambda hit: (LEVELS.index(hit.failure.level), hit.line))
    return [replace(hit, consequence_of=_cause_of(hit, found)) for hit in found]


def _cause_of(hit: Explanation, ordered: list[Explanation]) -> str | None:
    """The cause of `hit`: for a catch-all any other failure, for a symptom only a cause of the same kind."""
    level = hit.failure.level
    for other in ordered:
        if level == "catch-all" and other.failure.level in ("cause", "symptom"):
            return other.failure.name
        if level == "symptom" and other.failure.level == "cause" and other.failure.kind == hit.failure.kind:
            return other.failure.name
    return None
