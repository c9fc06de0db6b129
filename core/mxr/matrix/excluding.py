"""Decides which cells are excluded: those that match every field of an exclusion."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from mxr.request.builder import RequestOptions

from .kinds import SourcedValue
from .table import SectionValues


def excluded(name: str, options: RequestOptions, excludes: Iterable[SectionValues]) -> bool:
    """Whether a cell is excluded. `name` is its model as written in the matrix."""
    return any(_matches(entry, name, options) for entry in excludes)


def _matches(entry: SectionValues, name: str, options: RequestOptions) -> bool:
    for field, given in entry.values.items():
        if field == "path":
            if not (name == given.value or fnmatch.fnmatchcase(name, given.value)):
                return False
        elif not any(_equal(field, each, options) for each in given.value):
            return False
    return True


def _equal(field: str, wanted: SourcedValue, options: RequestOptions) -> bool:
    found = getattr(options, "consumer" if field == "for" else field)
    if field == "arch":
        return found is not None and (found == wanted.value or found.partition(":")[0] == wanted.value)
    if field in ("rocm", "migraphx"):
        return found is not None and (found == wanted.value or found.startswith(wanted.value + "."))
    defaults = {"vendor": "amd" if options.kind == "gpu" else None, "tuning": "default"}
    return bool((found if found is not None else defaults.get(field)) == wanted.value)
