"""What happens to a file while it is being hashed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class Meddler:
    """A digest that does something to a file when it is first given bytes."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        self.meddle: Callable[[], object] | None = meddle

    def update(self, data: object) -> None:
        if self.meddle:
            self.meddle()
            self.meddle = None

    def hexdigest(self) -> str:
        return "0" * 64


def grow(path: Path) -> None:
    """Appends to a file."""
    with path.open("ab") as file:
        file.write(b"more")
