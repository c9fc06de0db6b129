"""Reads a matrix from a file according to the table of fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mxr.util.frozen import dataclass

from .document import DocumentNode, read_document
from .table import MATRIX, SectionValues

LIMIT = 2_000
"""Default maximum number of combinations. The matrix or the caller can set another."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix as written in its file. `limit` is the maximum number of combinations."""

    path: Path
    entry: SectionValues
    limit: int

    @property
    def folder(self) -> Path:
        """The folder that its paths are relative to."""
        return self.path.parent

    def section(self, name: str) -> SectionValues:
        """Return a section; an empty one if the file does not have it."""
        given = self.entry.get(name)
        found = given.value if given else SectionValues(self.entry.node, {})
        assert isinstance(found, SectionValues)
        return found

    def sections(self, name: str) -> tuple[SectionValues, ...]:
        """Return a list of sections; an empty one if the file does not have it."""
        given = self.entry.get(name)
        return given.value if given else ()


def read(path: Path, environ: Mapping[str, str], limit: int | None = None) -> Matrix:
    """Read the matrix in a file, with variables from `environ`. `limit` overrides the limit in the file.

    Raises `Usage` with the file and line, and the errors of `disk.faults`.
    """
    return of(path, read_document(path, environ), limit)


def of(path: Path, node: DocumentNode, limit: int | None = None) -> Matrix:
    """Return the matrix in a document node. Raises `Usage`."""
    entry = MATRIX.read(node)
    given = entry.get("limit")
    return Matrix(path, entry, limit or (given.value if given else LIMIT))
