"""Reading an error text or a log: which known failures it shows, in plain words, and the command that fixes each.

What is known is data, in `explain_table.py`. Here is only how a log is read:

    any bytes -> lines without colours and doubled blanks -> literal needles find candidates -> a small pattern decides

Nothing found, or nothing but catch-alls: the same once more with indented lines joined to those before them, because
some loggers break a message over several lines. Time grows with the length of the log and not with its content:
patterns only ever see a short window around a needle, and a needle that keeps being wrong is given up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from .table import FAILURES, LEVELS, KnownFailure

__all__ = ["MAX_BYTES", "Explanation", "KnownFailure", "explain"]

MAX_BYTES = 64 << 20
"""Bytes of a log that are read: of a longer one the end, where a failure stands."""

_BEFORE, _AFTER = 512, 2048
_PATIENCE = 256 << 10
"""Bytes that one needle's pattern may look at in vain, a look costing 128 more."""
_SHOWN = 400
_UNSAID = "(not said)"

_BROKEN = b"\v"
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
_HARMLESS = re.compile(r"[A-Za-z0-9_./:+@,=%][A-Za-z0-9_./:+@,=%-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A known failure, found in a text."""

    failure: KnownFailure
    line: int
    """Number of the line, from 1."""
    text: str
    """That line without colours, prefixes and control characters, cut to a readable length."""
    means: str
    fix: str
    consequence_of: str | None = None
    """The name of the failure in the same text that explains this one."""

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
    """A log made ready for searching. `lowered` is `body` in lower case, byte for byte in the same places."""

    body: bytes
    lowered: bytes
    lines: bytes
    """`body` with all its line ends, of which it may have lost some."""
    skipped: int

    def line(self, at: int) -> int:
        """The number, from 1, of the line that holds byte `at`."""
        return self.skipped + self.lines.count(b"\n", 0, at) + 1


def explain(text: str | bytes) -> list[Explanation]:
    """The known failures in `text`: causes first, what merely follows from them last. Empty when nothing is known.

    Takes any text or bytes, raises nothing, reads at most the last `MAX_BYTES`. Each failure is told once, where it is
    first seen.
    """
    data, skipped = _bounded(text)
    tidy = _tidy(data)
    body = tidy.replace(_BROKEN, b"\n")
    found = _search(_Log(body, body.lower(), body, skipped), FAILURES)
    if _BROKEN in tidy and all(hit.failure.level == "catch-all" for hit in found):
        known = {hit.failure.name for hit in found}
        joined = tidy.replace(_BROKEN, b" ")
        rest = [failure for failure in FAILURES if failure.name not in known]
        found += _search(_Log(joined, joined.lower(), body, skipped), rest)
    return _ordered(_uncovered(found))


def _bounded(text: str | bytes) -> tuple[bytes, int]:
    """The bytes to read, and how many lines were left out before them."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # what PowerShell writes with ">"
        data = data[: MAX_BYTES * 2].decode("utf-16", "replace").encode("utf-8", "replace")
    if len(data) <= MAX_BYTES:
        return data, 0
    cut = len(data) - MAX_BYTES
    return data[cut:], data.count(b"\n", 0, cut)


def _tidy(data: bytes) -> bytes:
    """The same lines without colours and with single blanks; of JSON lines the escapes that hinder searching undone.

    Before an indented line stands `_BROKEN` in the place of the line end: it may carry on the one before.
    """
    body = _JSON_LINE.sub(_unescaped, _COLOUR.sub(b"", data)).translate(_TO_BLANKS)
    while b"  " in body:
        body = body.replace(b"  ", b" ")
    return body.replace(b" \n", b"\n").replace(b"\n ", _BROKEN)


def _unescaped(line: re.Match[bytes]) -> bytes:
    return line[0].replace(b'\\"', b'"').replace(b"\\n", b" ").replace(b"\\t", b" ")


def _search(log: _Log, failures: tuple[KnownFailure, ...] | list[KnownFailure]) -> list[Explanation]:
    hits = (_find(log, failure) for failure in failures)
    return [hit for hit in hits if hit is not None]


def _find(log: _Log, failure: KnownFailure) -> Explanation | None:
    """The first place in `log` that shows this failure."""
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
    while spent < _PATIENCE and (at := log.lowered.find(needle, at)) >= 0:
        pattern = pattern or re.compile(failure.pattern, re.IGNORECASE | re.ASCII)
        window, end = _window(log.body, at)
        bare = _bare(window)
        match = pattern.search(bare)
        if match is not None:
            return _told(failure, log.line(at), bare, match)
        spent += len(window) + 128
        at = max(end, at + len(needle))
    return None


def _window(body: bytes, at: int) -> tuple[str, int]:
    """The line around byte `at`, or as much of it as a pattern may see, and where that ends."""
    start = max(at - _BEFORE, body.rfind(b"\n", max(0, at - _BEFORE), at) + 1, 0)
    end = body.find(b"\n", at, at + _AFTER)
    if end < 0:
        end = min(len(body), at + _AFTER)
    return body[start:end].decode("utf-8", "replace"), end


def _bare(line: str) -> str:
    """The line without what loggers, containers and interpreters put before it."""
    line = line.strip()
    for _ in range(8):
        match = _PREFIX.match(line)
        if match is None:
            break
        line = line[match.end() :].lstrip()
    return line


def _told(failure: KnownFailure, line: int, bare: str, match: re.Match[str]) -> Explanation:
    groups = {name: _printable(value or "") for name, value in match.groupdict().items()}
    start = max(0, match.start() - _SHOWN // 2) if len(bare) > _SHOWN else 0
    return Explanation(
        failure=failure,
        line=line,
        text=_printable(bare[start : start + _SHOWN]),
        means=failure.means.format_map({name: value or _UNSAID for name, value in groups.items()}),
        fix=failure.fix.format_map({name: _argument(name, value) for name, value in groups.items()}),
    )


def _printable(value: str) -> str:
    """Without anything that could steer a terminal: a log is not trusted."""
    return "".join(letter if letter.isprintable() else " " for letter in value).strip()


def _argument(name: str, value: str) -> str:
    """A word from the log for a command that people will paste into a shell, or a placeholder for it."""
    return value if _HARMLESS.fullmatch(value) else name.upper()


def _uncovered(found: list[Explanation]) -> list[Explanation]:
    """Without those that a better row says on the same line."""
    covered = {(name, hit.line) for hit in found for name in hit.failure.covers}
    return [hit for hit in found if (hit.failure.name, hit.line) not in covered]


def _ordered(found: list[Explanation]) -> list[Explanation]:
    found = sorted(found, key=lambda hit: (LEVELS.index(hit.failure.level), hit.line))
    return [replace(hit, consequence_of=_cause_of(hit, found)) for hit in found]


def _cause_of(hit: Explanation, ordered: list[Explanation]) -> str | None:
    """A catch-all follows from whatever else went wrong, a symptom only from a cause of its own kind."""
    level = hit.failure.level
    for other in ordered:
        if level == "catch-all" and other.failure.level in ("cause", "symptom"):
            return other.failure.name
        if level == "symptom" and other.failure.level == "cause" and other.failure.kind == hit.failure.kind:
            return other.failure.name
    return None
