"""The manifest: which files, made of which blobs. A file is the concatenation of its blobs; names are checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

from mxr.errors import Usage
from mxr.util.codec import HUGE, canonical, decode, refuse, text
from mxr.util.frozen import dataclass

SHA256 = re.compile(r"[0-9a-f]{64}")
EMPTY = sha256(b"").hexdigest()
MOST_FILES = 1_000
MOST_BLOBS = 20_000
LONGEST_NAME = 1_000
"""Bytes of UTF-8 in a whole name; each part of it may have 255, which is what file systems take."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Immutable bytes known by their sha256."""

    sha256: str
    size: int

    def __post_init__(self) -> None:
        _check_bytes(self.sha256, self.size)
        if self.size == 0:
            raise refuse("size", "at least one byte in a blob", 0)


@dataclass(frozen=True, slots=True)
class File:
    """One file: its relative name, size in bytes, sha256, and the blobs that make it in order."""

    name: str
    size: int
    sha256: str
    blobs: tuple[Blob, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_bytes(self.sha256, self.size)
        if sum(blob.size for blob in self.blobs) != self.size:
            raise Usage(f"{self.name}: the sizes of its blobs do not add up to {self.size}.", hint="Push it again.")
        if (self.size == 0 and self.sha256 != EMPTY) or (len(self.blobs) == 1 and self.blobs[0].sha256 != self.sha256):
            raise Usage(f"{self.name}: its sha256 is not that of its bytes.", hint="Push it again.")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a model or an artifact, sorted by name."""

    files: tuple[File, ...]

    def __post_init__(self) -> None:
        names = sorted(file.name for file in self.files)
        if not 1 <= len(names) <= MOST_FILES:
            raise refuse("files", f"1 to {MOST_FILES} files", len(names))
        folders = {
            "/".join(parts[:end]) for name in names for parts in (name.split("/"),) for end in range(1, len(parts))
        }
        if len(set(names)) != len(names) or folders & set(names):
            raise refuse("files", "names that differ, none the folder of another", names[:5])
        if sum(len(file.blobs) for file in self.files) > MOST_BLOBS:
            raise refuse("files", f"at most {MOST_BLOBS} blobs", sum(len(file.blobs) for file in self.files))
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.name)))

    @classmethod
    def from_json(cls, document: object, where: str = "manifest") -> Manifest:
        """The manifest that a JSON object holds. Raises `Usage`."""
        written = decode(_Document, document, where)
        if written.v != 1:
            raise refuse(f"{where}.v", "manifest version 1", written.v)
        return cls(written.files)

    def to_json(self) -> dict[str, Any]:
        """`{"v":1,"files":[{"name","size","sha256","blobs":[{"sha256","size"}]}]}`."""
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
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    @property
    def sha256(self) -> str:
        """That of the file where there is one, else of the canonical list of names and sha256s."""
        if len(self.files) == 1:
            return self.files[0].sha256
        return sha256(canonical([[file.name, file.sha256] for file in self.files]).encode()).hexdigest()

    def blobs(self) -> Iterator[Blob]:
        """Each distinct blob once, in the order in which they appear."""
        seen: dict[str, int] = {}
        for file in self.files:
            for blob in file.blobs:
                if seen.setdefault(blob.sha256, blob.size) != blob.size:
                    raise refuse("blobs", f"one size for {blob.sha256}", blob.size)
        return (Blob(sha, size) for sha, size in seen.items())


@dataclass(frozen=True, slots=True)
class _Document:
    """A manifest as JSON spells it."""

    files: tuple[File, ...]
    v: int = 1


def artifact_id(digest: str, files: Iterable[File]) -> str:
    """The sha256 of the canonical `{"v":1,"digest","files":[[name,sha256]]}`: how the bytes are cut changes no id."""
    rows = sorted([file.name, file.sha256] for file in files)
    return sha256(canonical({"v": 1, "digest": digest, "files": rows}).encode()).hexdigest()


def check_name(name: str) -> str:
    """`name`, when it is a relative path that stays in its folder on every system. Raises `Usage`."""
    parts = name.split("/")
    bad = (
        not name
        or len(name.encode("utf-8", "replace")) > LONGEST_NAME
        or any(part in ("", ".", "..") or len(part.encode("utf-8", "replace")) > 255 for part in parts)
        or any(ord(letter) < 32 or letter in "\\\x7f" for letter in name)
        or name[1:2] == ":"
    )
    if bad:
        raise refuse("name", "a relative file name that stays in its folder", name)
    return text(name, "name")


def check_sha256(value: str, where: str = "sha256") -> str:
    """`value`, when it is 64 lower-case hex digits. Raises `Usage`."""
    if not SHA256.fullmatch(value):
        raise refuse(where, "64 lower-case hex digits", value)
    return value


def _check_bytes(sha: str, size: int) -> None:
    check_sha256(sha)
    if not 0 <= size <= HUGE:
        raise refuse("size", "a size in bytes", size)
