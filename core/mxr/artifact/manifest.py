"""The manifest of a model or an artifact: its files, and the blobs that each file is the concatenation of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

from mxr.display import progress
from mxr.errors import UsageError
from mxr.util import disk
from mxr.util.codec import HUGE, JsonForm, canonical, refuse, text
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass
from mxr.util.hashing import hash_chunks, read_chunks, sha256_hex

from . import field_docs
from .field_docs import SHA256
from .limits import BYTES_PER_BLOB, FREE_BLOBS, MAX_BLOBS, MAX_FILES, MAX_NAME_LENGTH

EMPTY = sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Blob:
    """Immutable bytes, identified by their sha256. `size` in bytes, at least 1."""

    sha256: Annotated[str, field_docs.BYTES_SHA256]
    size: Annotated[int, Doc("The size in bytes.", minimum=1, examples=[102400])]

    def __post_init__(self) -> None:
        _check_bytes(self.sha256, self.size)
        if self.size == 0:
            raise refuse("size", "at least one byte in a blob", 0)


NO_CHAIN = EMPTY
"""The chain of no blobs. A chain stands for several blobs in their order (`next_chain`)."""


def next_chain(chain: str, sha256: str) -> str:
    """Return the chain of the blobs of a chain and one more: the sha256 of the text of both in hex."""
    return sha256_hex(f"{chain}{sha256}".encode())


@dataclass(frozen=True, slots=True)
class File:
    """One file: its relative name, size in bytes, sha256, and its blobs in order."""

    name: Annotated[
        str,
        Doc(
            "The name of the file: a relative path.",
            minLength=1,
            maxLength=MAX_NAME_LENGTH,
            examples=["model.mxr"],
        ),
    ]
    size: Annotated[int, Doc("The size in bytes.", minimum=0, examples=[102400])]
    sha256: Annotated[str, field_docs.BYTES_SHA256]
    blobs: Annotated[tuple[Blob, ...], Doc("The blobs, in their order in the file.")]

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_bytes(self.sha256, self.size)
        if sum(blob.size for blob in self.blobs) != self.size:
            raise UsageError(
                f"{self.name}: the sizes of its blobs do not add up to {self.size}.", hint="Push the file again."
            )
        if len(self.blobs) > FREE_BLOBS + self.size // BYTES_PER_BLOB:
            most = f"{FREE_BLOBS} blobs, and one more for each {BYTES_PER_BLOB >> 10} KiB of the file"
            raise refuse("blobs", f"at most {most}", len(self.blobs))
        if (self.size == 0 and self.sha256 != EMPTY) or (len(self.blobs) == 1 and self.blobs[0].sha256 != self.sha256):
            raise UsageError(
                f"{self.name}: the sha256 of the file does not match its only blob, or its size 0.",
                hint="Push the file again.",
            )

    def spans(self) -> BlobSpans:
        """Return where each blob is in the file."""
        return BlobSpans(self.blobs)


@dataclass(frozen=True, slots=True)
class BlobRange:
    """`length` bytes of a blob from `offset`, an offset within the blob."""

    blob: Blob
    offset: int
    length: int


class BlobSpans:
    """Where blobs that follow each other are in their file. Iterating yields `(offset in the file, blob)`."""

    def __init__(self, blobs: Sequence[Blob]) -> None:
        self.blobs = blobs
        self._ends = list(accumulate(blob.size for blob in blobs))
        self.size = self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[tuple[int, Blob]]:
        return zip((0, *self._ends), self.blobs, strict=False)

    def ranges(self, start: int, length: int) -> Iterator[BlobRange]:
        """Yield the parts of the blobs that hold `length` bytes of the file from `start`, fewer at the file's end."""
        import bisect

        index = bisect.bisect_right(self._ends, start)
        while length > 0 and index < len(self.blobs):
            blob = self.blobs[index]
            offset = start - (self._ends[index] - blob.size)
            part = min(length, blob.size - offset)
            yield BlobRange(blob, offset, part)
            start, length, index = start + part, length - part, index + 1


def split_file(path: Path, name: str, points: Sequence[int]) -> File:
    """Return the manifest entry of a local file, named `name` and split into blobs at the offsets `points`.

    `points` begin with 0 and end with the size of the file. Raises `UsageError` when the file has another size, and a
    disk error as `disk.faults` does.
    """
    whole, blobs = sha256(), []
    step = progress.begin(f"hashing {path.name}", points[-1])
    with disk.faults(path, "read"), path.open("rb", buffering=0) as file:
        for start, end in pairwise(points):
            part = sha256()
            chunks = read_chunks(file.fileno(), start, end - start)
            size = hash_chunks(chunks, part, whole, sink=lambda data, _: step(len(data)))
            if size != end - start:
                raise _resized(path)
            blobs.append(Blob(part.hexdigest(), size))
        if any(True for _ in read_chunks(file.fileno(), points[-1], 1)):
            raise _resized(path)
    return File(name, points[-1], whole.hexdigest(), tuple(blobs))


def _resized(path: Path) -> UsageError:
    return UsageError(
        f"The size of {path} changed while it was being read.", hint="Wait until the file is written, then try again."
    )


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of an artifact or of a model, sorted by name, and the blobs that each file is the concatenation of."""

    files: Annotated[tuple[File, ...], Doc("The files.", maxItems=MAX_FILES)]
    v: Annotated[int, Doc("The version of the form.", minimum=1, maximum=1)] = 1

    json_forms: ClassVar[Mapping[str, JsonForm]] = {}
    """None; but with it no reader passes over an unknown field of a manifest."""

    def __post_init__(self) -> None:
        if self.v != 1:
            raise refuse("v", "manifest version 1", self.v)
        names = sorted(file.name for file in self.files)
        if not 1 <= len(names) <= MAX_FILES:
            raise refuse("files", f"1 to {MAX_FILES} files", len(names))
        folders = {
            "/".join(parts[:end]) for name in names for parts in (name.split("/"),) for end in range(1, len(parts))
        }
        if len(set(names)) != len(names) or folders & set(names):
            raise refuse("files", "unique names, none of them a folder of another", names[:5])
        if sum(len(file.blobs) for file in self.files) > MAX_BLOBS:
            raise refuse("files", f"at most {MAX_BLOBS} blobs", sum(len(file.blobs) for file in self.files))
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.name)))

    def to_json(self) -> dict[str, Any]:
        """Return `{"v":1,"files":[{"name","size","sha256","blobs":[{"sha256","size"}]}]}`."""
        return {
            "v": 1,
            "files": [
                {
                    "name": file.name,
                    "size": file.size,
                    "sha256": file.sha256,
                    "blobs": [{"sha256": blob.sha256, "size": blob.size} for blob in file.blobs],
                }
                for file in self.files
            ],
        }

    @property
    def size(self) -> int:
        """The total size of all files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def sha256(self) -> str:
        """The sha256 of the only file, or of the canonical list of names and sha256s of several files."""
        if len(self.files) == 1:
            return self.files[0].sha256
        return sha256(canonical([[file.name, file.sha256] for file in self.files]).encode()).hexdigest()

    def blobs(self) -> Iterator[Blob]:
        """Yield each distinct blob once, in order of first appearance.

        Raises `UsageError` for a blob with two sizes.
        """
        seen: dict[str, int] = {}
        for file in self.files:
            for blob in file.blobs:
                if seen.setdefault(blob.sha256, blob.size) != blob.size:
                    raise refuse("blobs", f"one size for {blob.sha256}", blob.size)
        return (Blob(sha, size) for sha, size in seen.items())


def artifact_id(digest: str, files: Iterable[File]) -> str:
    """Return the id of an artifact: the sha256 of the canonical `{"v":1,"digest","files":[[name,sha256]]}`.

    The split into blobs does not change the id.
    """
    rows = sorted([file.name, file.sha256] for file in files)
    return sha256(canonical({"v": 1, "digest": digest, "files": rows}).encode()).hexdigest()


def check_name(name: str) -> str:
    """Return `name` if it is a relative path that stays within its folder on every system. Raises `UsageError`."""
    parts = name.split("/")
    bad = (
        not name
        or len(name.encode("utf-8", "replace")) > MAX_NAME_LENGTH
        or any(part in ("", ".", "..") or len(part.encode("utf-8", "replace")) > 255 for part in parts)
        or any(ord(letter) < 32 or letter in "\\\x7f" for letter in name)
        or name[1:2] == ":"
    )
    if bad:
        raise refuse("name", "a relative file name that stays within its folder", name)
    return text(name, "name")


def check_sha256(value: str, where: str = "sha256") -> str:
    """Return `value` if it is 64 lower-case hex digits. Raises `UsageError`."""
    if not SHA256.fullmatch(value):
        raise refuse(where, "64 lower-case hex digits", value)
    return value


def _check_bytes(sha: str, size: int) -> None:
    check_sha256(sha)
    if not 0 <= size <= HUGE:
        raise refuse("size", "a size in bytes", size)
