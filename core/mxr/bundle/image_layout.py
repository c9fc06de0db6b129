"""Reads an OCI image layout from a tar or a folder: documents whole, blobs in ranges. The input is not trusted."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Protocol, cast

from mxr.artifact.field_docs import SHA256
from mxr.artifact.manifest import Blob, File
from mxr.errors import DamagedError, UsageError
from mxr.util import disk
from mxr.util.hashing import CHUNK

from . import oci
from .oci import BLOBS, Descriptor

MAX_DOCUMENT_BYTES = 16 << 20
"""Maximum bytes of one JSON document in a bundle."""

MAX_MEMBERS = 200_000
"""Maximum files and folders of a bundle."""

MAX_HEADER_BYTES = 64 << 10
"""Maximum bytes of one header of a tar with all its extensions. `tarfile` reads as many as they say."""


class ImageLayout(Protocol):
    """The files of a layout, by name."""

    path: Path

    def sizes(self) -> dict[str, int]:
        """The size of each file in bytes."""
        ...

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes of a file; fewer at its end."""
        ...


class TarLayout:
    """A layout in a tar, which stays open until `close`. Raises `DamagedError` or a disk fault."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk.faults(path, "read"):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._members = dict(self._files())
            except BaseException:
                os.close(self._descriptor)
                raise

    def _files(self) -> Iterator[tuple[str, tarfile.TarInfo]]:
        """The plain files, of which only the headers are read. Nothing is ever extracted, so any name will do."""
        names: set[str] = set()
        try:
            reader = _HeaderReader(self._descriptor)
            for count, member in enumerate(tarfile.TarFile(fileobj=cast(IO[bytes], reader))):
                reader.left = MAX_HEADER_BYTES
                name = member.name.removeprefix("./")
                if name in names or count >= MAX_MEMBERS:
                    raise wrong(self, f"it contains {name[:80]!r} twice, or too many files")
                if member.isdir() and member.size == 0:
                    continue
                if not member.isfile() or member.issparse() or member.size < 0:
                    raise wrong(self, f"{name[:80]!r} is not a plain file")
                names.add(name)
                yield name, member
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as problem:
            raise wrong(self, f"it is truncated, corrupt, or not a tar ({problem})") from None

    def sizes(self) -> dict[str, int]:
        """See `ImageLayout.sizes`."""
        return {name: member.size for name, member in self._members.items()}

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """See `ImageLayout.read_at`."""
        member = self._members[name]
        with disk.faults(self.path, "read"):
            return os.pread(self._descriptor, max(0, min(length, member.size - offset)), member.offset_data + offset)

    def close(self) -> None:
        """Close the tar."""
        os.close(self._descriptor)


class _HeaderReader:
    """The bytes of a tar for `tarfile`, which must not take memory for what a header says. `left`: bytes to read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._at, self.left = descriptor, 0, MAX_HEADER_BYTES

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise tarfile.ReadError("a header is too large")
        self.left -= size
        data = os.pread(self._descriptor, size, self._at)
        self._at += len(data)
        return data

    def seek(self, at: int) -> int:
        if at < self._at - tarfile.BLOCKSIZE:
            raise tarfile.ReadError("a header points back")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at


class FolderLayout:
    """A layout in a folder, as `oras copy --to-oci-layout` writes it. Other files in the folder are ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        blobs = path / BLOBS
        if not blobs.is_dir():
            raise wrong(self, f"it has no folder {BLOBS}")
        with disk.faults(path, "read"):
            names = [BLOBS + each.name for each in os.scandir(blobs) if SHA256.fullmatch(each.name)]
            present = [name for name in (oci.LAYOUT_FILE, oci.INDEX_FILE) if (path / name).exists()]
            self._sizes = {name: self._size(name) for name in (*present, *names)}

    def _size(self, name: str) -> int:
        path = self.path / name
        if path.is_symlink() or not path.is_file():
            raise DamagedError(f"{path} is not a plain file.", hint="Copy the layout again.")
        return path.stat().st_size

    def sizes(self) -> dict[str, int]:
        """See `ImageLayout.sizes`."""
        return self._sizes

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """See `ImageLayout.read_at`."""
        path = self.path / name
        with disk.faults(path, "read"):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                return os.pread(descriptor, length, offset)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Does nothing: no file stays open."""


def open_layout(path: Path) -> TarLayout | FolderLayout:
    """Open the layout in a tar or a folder. Raises `UsageError` if neither exists, `DamagedError` if it is invalid."""
    if path.is_dir():
        return FolderLayout(path)
    if not path.is_file():
        raise UsageError(f"There is no bundle {path}.", hint="Give the path of the file that `mxr export` wrote.")
    return TarLayout(path)


def read_document(layout: ImageLayout, what: Descriptor | str) -> bytes:
    """Read a document, by name or by a descriptor; it must have the size and sha256 of the descriptor.

    Raises `DamagedError`.
    """
    name = what if isinstance(what, str) else what.name
    size = layout.sizes().get(name)
    if size is None:
        raise wrong(layout, f"{name} is missing")
    if size > MAX_DOCUMENT_BYTES or (isinstance(what, Descriptor) and size != what.size):
        raise wrong(layout, f"{name} has an invalid size of {size} bytes")
    data = layout.read_at(name, 0, size)
    if isinstance(what, Descriptor) and sha256(data).hexdigest() != what.sha256:
        raise wrong(layout, f"the content of {name} does not match its sha256")
    return data


def chunks(layout: ImageLayout, blob: Blob) -> Iterator[bytes]:
    """The content of a blob in chunks. Raises `DamagedError` if it is too short."""
    name = BLOBS + blob.sha256
    for at in range(0, blob.size, CHUNK):
        wanted = min(CHUNK, blob.size - at)
        data = layout.read_at(name, at, wanted)
        if len(data) != wanted:
            raise wrong(layout, f"{name} is too short")
        yield data


def wrong(layout: ImageLayout, what: str) -> DamagedError:
    """The error for an invalid layout."""
    return DamagedError(
        f"{layout.path} is not a complete bundle: {what}.", hint="Copy it again from the host that exported it."
    )


@contextmanager
def damage_to(layout: ImageLayout) -> Iterator[None]:
    """Raise `DamagedError` where a document of a layout is refused."""
    try:
        yield
    except UsageError as problem:
        raise wrong(layout, problem.message.rstrip(".")) from None


class FileWithin:
    """A file that consists of blobs of a layout, as a `program.Source`."""

    def __init__(self, layout: ImageLayout, file: File) -> None:
        self._layout = layout
        self._spans = file.spans()
        self.size = file.size

    def read_at(self, offset: int, length: int) -> bytes:
        """See `program.Source.read_at`."""
        return b"".join(
            self._layout.read_at(BLOBS + part.blob.sha256, part.offset, part.length)
            for part in self._spans.ranges(offset, length)
        )
