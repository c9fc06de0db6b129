"""What a consumer is: flags, the name of its file or its layout in a folder, and the words that a person needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mxr.artifact.key import Key
from mxr.errors import Usage
from mxr.util.frozen import dataclass

from .layout import Delivery, Layout


@dataclass(frozen=True, slots=True)
class Consumer:
    """`name_file(stem, key)` is the one file that it looks for when `-o` is a folder, `lay_out` what it needs where
    one plain file is not enough; None where mxr has no form for it.

    `fit` raises `Usage` for a key that it cannot use, before anything moves. `tell(path, key)` are the settings for one
    plain file. `needs_model`: the layout needs what only the ONNX file tells. `tree` shows the layout in one line.
    """

    name: str
    summary: str
    offload_copy: bool
    fast_math: bool
    name_file: Callable[[str, Key], str] | None
    source: str
    fit: Callable[[Key], None] | None = None
    lay_out: Callable[[Delivery], Layout] | None = None
    tell: Callable[[Path, Key], tuple[str, ...]] | None = None
    needs_model: bool = False
    tree: str = ""

    @property
    def page(self) -> str:
        """Its page in the documentation."""
        return f"docs/consumers/{self.name.removesuffix('-repo')}.md"

    def file_name(self, stem: str, key: Key) -> str:
        """The file name for a model of this stem. Raises `Usage` where the consumer cannot use this key."""
        if self.name_file is None:
            raise Usage(
                f"{self.name} takes no plain file: its layout is {self.tree}.", hint="Give a folder: -o FOLDER/."
            )
        return self.name_file(stem, key)

    def check(self, stem: str, key: Key) -> None:
        """Raises `Usage` where a folder cannot be laid out for this key."""
        if self.fit is not None:
            self.fit(key)
        if self.lay_out is None:
            self.file_name(stem, key)


def plain(stem: str, key: Key) -> str:  # noqa: ARG001 - the signature of every naming
    """`<stem>.mxr`."""
    return f"{stem}.mxr"
