"""What a consumer is: flags, the name of its file in a folder, and the words that a person needs."""

from __future__ import annotations

from collections.abc import Callable

from mxr.errors import Usage
from mxr.keys import Key
from mxr.value import dataclass


@dataclass(frozen=True, slots=True)
class Consumer:
    """`name_file(stem, key)` is the file name it looks for when `-o` is a folder; None where mxr has no form for it."""

    name: str
    summary: str
    offload_copy: bool
    fast_math: bool
    name_file: Callable[[str, Key], str] | None
    source: str

    def file_name(self, stem: str, key: Key) -> str:
        """The file name for a model of this stem. Raises `Usage` where the consumer cannot use this key."""
        if self.name_file is None:
            raise Usage(
                f"{self.name} has no folder layout that mxr can write yet.", hint="Give a file: -o FOLDER/model.mxr."
            )
        return self.name_file(stem, key)


def plain(stem: str, key: Key) -> str:  # noqa: ARG001 - the signature of every naming
    """`<stem>.mxr`."""
    return f"{stem}.mxr"
