"""The names of several programs of one model in one folder: `net_b4.mxr`, `net_b4_fp16.mxr`, `net_gfx908.mxr`.

They say in what the programs differ, and stay the same when a program is compiled again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mxr.artifact.key import Key
from mxr.artifact.target import PRECISIONS, show_dims, show_precision, userland

SUFFIX = ".mxr"
MAX_SHAPES = 40
"""Characters of shapes in a name. Longer ones are told apart by the digits of the id."""

_PRECISION = f"(?:{'|'.join(('fp32', *PRECISIONS))})"
_WORDS = (
    "b[0-9]{1,9}",
    rf"{_PRECISION}(?:\+{_PRECISION})*",
    "gfx[0-9a-z-]{2,20}|gpu|ref",
    r"(?:rocm|dtk|migraphx)[0-9]+\.[0-9]+",
    r"[0-9]+(?:(?:x|\.\.)[0-9]+)*",
    "[0-9a-f]{12}",
)
_ADDED = re.compile(rf"(?P<stem>.+?)[-_](?:{'|'.join(_WORDS)})")
"""A stem with one word that was added. Source of the first: Xilinx/inference-server, src/amdinfer/workers/migraphx.cpp.
"""


def shorter_stem(stem: str) -> str | None:
    """Return a stem without the last word that consumers, sets and locks add to it; None if there is none."""
    found = _ADDED.fullmatch(stem)
    return found and found["stem"]


def distinct_names(name: str, programs: Sequence[tuple[Key, str]]) -> list[str]:
    """Return a name for each program, given by key and id, all of which would have the same `name` in a folder.

    Programs with one id share a name. Where their keys do not tell two programs apart, the digits of the id do.
    """
    columns = [_shapes([key for key, _ in programs]), *zip(*(_words(key) for key, _ in programs), strict=True)]
    differing = [column for column in columns if len(set(column)) > 1]
    words = ["_".join(filter(None, row)) for row in zip(*differing, strict=True)] or [""] * len(programs)
    owners = owners_of(zip(words, (identity for _, identity in programs), strict=True))
    return [
        longer_name(name, word if word and len(owners[word]) == 1 else identity[:12])
        for word, (_, identity) in zip(words, programs, strict=True)
    ]


def owners_of(rows: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the ids of the programs of each name, given as pairs of both."""
    found: dict[str, set[str]] = {}
    for name, identity in rows:
        found.setdefault(name, set()).add(identity)
    return found


def longer_name(name: str, word: str) -> str:
    """Return the name of a file with a word added to its stem."""
    return f"{name.removesuffix(SUFFIX)}_{word}{SUFFIX}"


def _words(key: Key) -> tuple[str, ...]:
    """The word of each fact but the shapes."""
    rocm = f"{userland(key.vendor).lower()}{key.rocm}" if key.rocm else ""
    return show_precision(key.precision), key.arch or key.kind, rocm, f"migraphx{key.migraphx}"


def _shapes(keys: Sequence[Key]) -> list[str]:
    """A word for the shapes of each key: the batch size if they differ in nothing else, nothing if they are equal."""
    inputs = [dict(key.inputs) for key in keys]
    if any(each.keys() != inputs[0].keys() for each in inputs):
        return ["" for _ in keys]
    differing = [name for name in inputs[0] if len({each[name] for each in inputs}) > 1]
    rests = {tuple(each[name][1:] for name in differing) for each in inputs}
    found = []
    for each in inputs:
        batches = {each[name][:1] for name in differing}
        (batch,) = batches if len(batches) == len(rests) == 1 else [()]
        shapes = "_".join(show_dims(each[name]).replace(",", "x") for name in differing)
        word = f"b{batch[0]}" if batch and isinstance(batch[0], int) else shapes
        found.append(word if len(word) <= MAX_SHAPES and re.fullmatch(r"b?[0-9x._]*", word) else "")
    return found
