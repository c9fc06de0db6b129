"""Which cells an exclusion takes: those that match every field that it names."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from mxr.request.builder import Options

from .kinds import SourcedValue
from .table import SectionValues


def excluded(name: str, options: Options, excludes: Iterable[SectionValues]) -> bool:
    """Whether a cell of this model (as the matrix writes it) and these options is left out."""
    return any(_takes(entry, name, options) for entry in excludes)


def _takes(entry: SectionValues, name: str, options: Options) -> bool:
    for field, said in entry.said.items():
        if field == "path":
            if not (name == said.value or fnmatch.fnmatchcase(name, said.value)):
                return False
        elif not any(_equal(field, each, options) for each in said.value):
            return False
    return True


def _equal(field: str, wanted: SourcedValue, options: Options) -> bool:
    found = getattr(options, "consumer" if field == "for" else field)
    if field == "arch":
        return found is not None and (found == wanted.value or found.partition(":")[0] == wanted.value)
    if field in ("rocm", "migraphx"):
        return found is not None and (found == wanted.value or found.startswith(wanted.value + "."))
    usual = {"vendor": "amd" if options.kind == "gpu" else None, "tuning": "default"}
    return bool((found if found is not None else usual.get(field)) == wanted.value)
