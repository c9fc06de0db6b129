"""Reading a matrix: a file, held against the table of fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mxr.util.frozen import dataclass

from .document import DocumentNode, read_document
from .table import MATRIX, SectionValues

LIMIT = 2_000
"""Combinations that a matrix may have unless it, or who reads it, says otherwise."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix as it stands in its file; `limit` is the largest number of combinations that is not a mistake."""

    path: Path
    entry: SectionValues
    limit: int

    @property
    def folder(self) -> Path:
        """What its paths are relative to."""
        return self.path.parent

    def section(self, name: str) -> SectionValues:
        """A mapping of it, empty where it is not there."""
        said = self.entry.get(name)
        found = said.value if said else SectionValues(self.entry.node, {})
        assert isinstance(found, SectionValues)
        return found

    def sections(self, name: str) -> tuple[SectionValues, ...]:
        """A list of it, empty where it is not there."""
        said = self.entry.get(name)
        return said.value if said else ()


def read(path: Path, environ: Mapping[str, str], limit: int | None = None) -> Matrix:
    """The matrix in a file, with its variables from `environ`; `limit` wins over the file's.

    Raises `Usage` that names file and line, or as `disk.faults` does.
    """
    return of(path, read_document(path, environ), limit)


def of(path: Path, node: DocumentNode, limit: int | None = None) -> Matrix:
    """The matrix that these nodes are. Raises `Usage`."""
    entry = MATRIX.read(node)
    said = entry.get("limit")
    return Matrix(path, entry, limit or (said.value if said else LIMIT))
