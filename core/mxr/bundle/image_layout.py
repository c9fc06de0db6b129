"""Reading an OCI image layout, in a tar or in a folder: small documents whole, blobs by ranges. Nothing is trusted."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from mxr.artifact.manifest import SHA256, Blob
from mxr.errors import Damaged, Usage
from mxr.util import disk

from . import oci, tarball
from .oci import BLOBS, Descriptor

CHUNK = 1 << 20
MOST_DOCUMENT = 16 << 20
"""Bytes of one JSON document in a bundle."""


class ImageLayout(Protocol):
    """The files of a layout by name."""

    path: Path

    def sizes(self) -> dict[str, int]:
        """Each file and its bytes."""
        ...

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """Bytes of a file, fewer where it ends."""
        ...


class TarLayout:
    """A layout in a tar, open until it is closed. Raises `Usage` where there is no such file, `Damaged`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk.faults(path, "read"):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._members = tarball.members(self._descriptor, path)
            except BaseException:
                os.close(self._descriptor)
                raise

    def sizes(self) -> dict[str, int]:
        """See `Layout.sizes`."""
        return {name: member.size for name, member in self._members.items()}

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """See `Layout.read_at`."""
        member = self._members[name]
        with disk.faults(self.path, "read"):
            return os.pread(self._descriptor, max(0, min(length, member.size - offset)), member.offset + offset)

    def close(self) -> None:
        """Closes the tar."""
        os.close(self._descriptor)


class FolderLayout:
    """A layout in a folder, as `oras copy --to-oci-layout` makes it. What else is in the folder is passed over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        blobs = path / BLOBS
        if not blobs.is_dir():
            raise wrong(self, f"there is no {BLOBS} in it")
        with disk.faults(path, "read"):
            names = [BLOBS + each.name for each in os.scandir(blobs) if SHA256.fullmatch(each.name)]
            present = [name for name in (oci.LAYOUT_FILE, oci.INDEX_FILE) if (path / name).exists()]
            self._sizes = {name: self._size(name) for name in (*present, *names)}

    def _size(self, name: str) -> int:
        path = self.path / name
        if path.is_symlink() or not path.is_file():
            raise Damaged(f"{path} is not a plain file.", hint="Copy the layout again.")
        return path.stat().st_size

    def sizes(self) -> dict[str, int]:
        """See `Layout.sizes`."""
        return self._sizes

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """See `Layout.read_at`."""
        path = self.path / name
        with disk.faults(path, "read"):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                return os.pread(descriptor, length, offset)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Nothing is open."""


def open_layout(path: Path) -> TarLayout | FolderLayout:
    """The layout in a tar or a folder. Raises `Usage` where there is neither, `Damaged`."""
    if path.is_dir():
        return FolderLayout(path)
    if not path.is_file():
        raise Usage(f"There is no bundle {path}.", hint="Give the path of what `mxr export` wrote.")
    return TarLayout(path)


def document(layout: ImageLayout, what: Descriptor | str) -> bytes:
    """A small document: by its name, or by a descriptor whose size and sha256 it must have. Raises `Damaged`."""
    name = what if isinstance(what, str) else what.name
    size = layout.sizes().get(name)
    if size is None:
        raise wrong(layout, f"{name} is missing")
    if size > MOST_DOCUMENT or (isinstance(what, Descriptor) and size != what.size):
        raise wrong(layout, f"{name} has {size} bytes, which it cannot have")
    data = layout.read_at(name, 0, size)
    if isinstance(what, Descriptor) and sha256(data).hexdigest() != what.sha256:
        raise wrong(layout, f"{name} does not have the sha256 that it is called by")
    return data


def chunks(layout: ImageLayout, blob: Blob) -> Iterator[bytes]:
    """The bytes of a blob. Raises `Damaged` where they end early."""
    name = BLOBS + blob.sha256
    for at in range(0, blob.size, CHUNK):
        wanted = min(CHUNK, blob.size - at)
        data = layout.read_at(name, at, wanted)
        if len(data) != wanted:
            raise wrong(layout, f"{name} ends early")
        yield data


def wrong(layout: ImageLayout, what: str) -> Damaged:
    """The error for a layout that is not what it should be."""
    return Damaged(f"{layout.path} is not a whole bundle: {what}.", hint="Copy it again from where it was exported.")


class FileWithin:
    """A file made of blobs of a layout, as the reader of programs wants it: see `program.Source`."""

    def __init__(self, layout: ImageLayout, blobs: Sequence[Blob]) -> None:
        self._layout = layout
        self._blobs = blobs
        self._ends = list(accumulate(blob.size for blob in blobs))
        self.size = self._ends[-1] if self._ends else 0

    def read_at(self, offset: int, length: int) -> bytes:
        """See `program.Source.read_at`."""
        parts = []
        at = bisect.bisect_right(self._ends, offset)
        while length > 0 and at < len(self._blobs):
            blob = self._blobs[at]
            begin = offset - (self._ends[at] - blob.size)
            data = self._layout.read_at(BLOBS + blob.sha256, begin, min(length, blob.size - begin))
            parts.append(data)
            offset, length, at = offset + len(data), length - len(data), at + 1
        return b"".join(parts)
