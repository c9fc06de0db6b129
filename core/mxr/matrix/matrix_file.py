"""Reads a matrix from a file according to the table of fields."""

from __future__ import annotations

from pathlib import Path

from mxr.util.frozen import dataclass

from .document import DocumentNode, Variables, read_document
from .fields import MATRIX, SectionValues

LIMIT = 2_000
"""Default maximum number of combinations. The matrix or the caller can set another."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix as written in its file.

    `limit` is the maximum number of combinations. `outside`: whether it may name files outside of its folder.
    """

    path: Path
    entry: SectionValues
    limit: int
    outside: bool = False

    @property
    def folder(self) -> Path:
        """The folder that its paths are relative to."""
        return self.path.parent

    def file(self, text: str, node: DocumentNode) -> Path:
        """Return the path of a file that the matrix names. Raises `UsageError` where it is outside of the folder.

        Symbolic links are resolved. A file outside is refused whether it exists or not.
        """
        path = self.folder / text
        if not self.outside and not path.resolve().is_relative_to(self.folder.resolve()):
            hint = f"Copy it into {self.folder}/, or allow such files with --allow-outside."
            raise node.error(f"{text} is outside of the folder of the matrix.", hint)
        return path

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


def read_matrix(path: Path, variables: Variables, limit: int | None = None, *, outside: bool = False) -> Matrix:
    """Read the matrix in a file. `limit` overrides the limit in the file; `outside` is that of `Matrix`.

    Raises `UsageError` with the file and line, and the errors of `disk.faults`.
    """
    return matrix_of(path, read_document(path, variables), limit, outside=outside)


def matrix_of(path: Path, node: DocumentNode, limit: int | None = None, *, outside: bool = False) -> Matrix:
    """Return the matrix in a document node. Raises `UsageError`."""
    entry = MATRIX.read(node)
    given = entry.get("limit")
    return Matrix(path, entry, limit or (given.value if given else LIMIT), outside)
