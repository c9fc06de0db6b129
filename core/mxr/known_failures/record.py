"""The record type of the failure tables: one known failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
