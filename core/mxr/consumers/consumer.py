"""The description of a consumer: compile flags, file name or folder layout, and texts for people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.key import Key
from mxr.errors import UsageError
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from .layout import Delivery, Layout


@dataclass(frozen=True, slots=True)
class Consumer:
    """A program that loads compiled programs.

    `name_file(stem, key)` is the name of the plain file that it reads when `-o` is a folder; None if it does not read
    plain files. `lay_out` computes the layout if one plain file is not enough, else None.

    `check_key` raises `UsageError` for a key that it cannot use, before anything is downloaded. `tell(path, key)` are
    the settings for one plain file. `needs_model`: the layout needs facts that only the ONNX file has. `tree` shows the
    layout in one line. `batch`: the only batch size that it can load, None if it loads any. `records`: artifacts can be
    files that it wrote itself, which only a request that leaves nothing open finds.
    """

    name: str
    summary: str
    offload_copy: bool
    fast_math: bool
    name_file: Callable[[str, Key], str] | None
    source: str
    check_key: Callable[[Key], None] | None = None
    lay_out: Callable[[Delivery], Layout] | None = None
    tell: Callable[[Path, Key], tuple[str, ...]] | None = None
    needs_model: bool = False
    tree: str = ""
    batch: int | None = None
    records: bool = False

    @property
    def page(self) -> str:
        """The path of its documentation page."""
        return f"docs/consumers/{self.name.removesuffix('-repo')}.md"

    def file_name(self, stem: str, key: Key) -> str:
        """The file name for a model of this stem. Raises `UsageError` if the consumer cannot use this key."""
        if self.name_file is None:
            raise UsageError(
                f"{self.name} does not read plain files: its layout is {self.tree}.", hint="Give a folder: -o FOLDER/."
            )
        return self.name_file(stem, key)

    def check(self, stem: str, key: Key) -> None:
        """Raise `UsageError` if the consumer cannot use this key."""
        if self.check_key is not None:
            self.check_key(key)
        if self.lay_out is None:
            self.file_name(stem, key)


def plain(stem: str, key: Key) -> str:  # noqa: ARG001 - the signature of `Consumer.name_file`
    """`<stem>.mxr`."""
    return f"{stem}.mxr"
