"""One file in a consumer's folder that is not as mxr placed it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that was added, rewritten, or removed since mxr placed the folder.

    `kind` is `added`, `rewritten`, `missing`, or `replaced` for a model that is not the one of the program any more.
    `why` is the likely reason and what to do. `differences` are rows of (field of the file name, value as placed, value
    as found); only an added file has them.
    """

    kind: str
    path: Path
    why: str
    differences: tuple[tuple[str, str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """`{"kind","path","why","differences":[{"field","asked","found"}]}`."""
        rows = [{"field": field, "asked": asked, "found": found} for field, asked, found in self.differences]
        return {"kind": self.kind, "path": str(self.path), "why": self.why, "differences": rows}
