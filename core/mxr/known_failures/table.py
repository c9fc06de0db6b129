"""Load all known failures: the tables of the programs (`*.toml`), joined in the order in which they are searched.

To add a failure, add a row to the table of the program that prints the text, and a sample line to
`tests/core/known_failures/test_explainer.py`. `KnownFailure` explains the fields; `who` is that of the
table. Rules for a row, all of them tested:

- A pattern is matched against one line at a time, without regard to case. The line has no colours, timestamps or other
  logger prefixes, and runs of blanks are single blanks.
- Matching must take linear time: every repeat has an upper bound.
- Needles are literal, in lower case, and rare in ordinary logs.

Sources name files of MIGraphX 2.16 (ROCm/AMDMIGraphX, May 2026) unless they say otherwise. "run" at the end of a source
means that the text was observed when running MIGraphX 2.16 on its reference target. The other texts were read in source
code or in public issues.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Who = Literal["migraphx", "onnxruntime", "amdinfer", "hip", "kernel"]
Kind = Literal["permanent", "transient", "hang", "mismatch", "usage", "damaged", "warning"]
Level = Literal["cause", "symptom", "note", "catch-all"]

LEVELS: tuple[Level, ...] = ("cause", "symptom", "note", "catch-all")
"""The order in which the explainer reports failures."""


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """One known failure: how to recognise it in a log, what it means and how to fix it.

    `who` is the program that prints the text.

    `kind` tells a worker how to treat a compile that ends with this failure. `permanent`, `mismatch`, `usage` and
    `damaged` fail again; `transient` may succeed on a retry or on a larger host; `hang` means that the worker must
    probe the GPU first; `warning` is not a failure.

    `needles` are literal lower-case texts; one of them must occur before `pattern` is tried.

    `means` and `fix` can contain `{group}` for each named group of `pattern`.

    `source` is where the text is documented or was observed.

    `covers` names failures that are less specific: they are not reported for the same line.

    `unless` is a lower-case text that, anywhere in the log, rules the failure out.
    """

    name: str
    who: Who
    kind: Kind
    level: Level
    needles: tuple[bytes, ...]
    pattern: str
    means: str
    fix: str
    source: str
    covers: tuple[str, ...] = ()
    unless: bytes = b""


TABLES = (
    "migraphx_versions",
    "migraphx_files",
    "migraphx_runs",
    "migraphx_devices",
    "migraphx_compiles",
    "onnxruntime",
    "amdinfer",
    "hip",
    "kernel",
    "migraphx_interface",
)
"""The order decides between failures of the same level on the same line: the first is reported first."""

_FRAGMENT = re.compile(r"\$\{([A-Z_]+)(?::(\w+))?\}")


def _load() -> Iterator[KnownFailure]:
    fragments = _read("fragments")

    def whole(text: str) -> str:
        """Return a text with its fragments; `${GFX:arch}` is the fragment GFX with a group of that name."""
        return _FRAGMENT.sub(lambda found: fragments[found[1]].replace("%s", found[2] or ""), text)

    for name in TABLES:
        table = _read(name)
        for row in table["failures"]:
            texts: dict[str, Any] = {field: whole(row.pop(field)) for field in ("pattern", "means", "fix")}
            needles = tuple(each.encode() for each in row.pop("needles"))
            covers, unless = tuple(row.pop("covers", ())), row.pop("unless", "").encode()
            yield KnownFailure(who=table["who"], needles=needles, covers=covers, unless=unless, **texts, **row)


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / f"{name}.toml").read_text(encoding="utf-8"))


FAILURES: tuple[KnownFailure, ...] = tuple(_load())
