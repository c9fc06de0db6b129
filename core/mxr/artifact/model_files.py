"""The files of a model as pieces of 64 MiB, and the identity that follows from them.

    model = "sha256:" + hex of sha256("mxr-model-v2\\n" + canonical JSON of the files)
    files = {"external": [[name, size, [sha256 of each piece, ...]], ...], "onnx": [size, [sha256 of each piece, ...]]}

A piece has exactly 64 MiB, the last one of a file has the rest; an empty file has none. `external` is sorted by the
UTF-8 bytes of its names. A name is an external-data location, exactly as the ONNX file spells it, listed once. The name
of the ONNX file itself is not part of the identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from typing import Any

from mxr.util.codec import HUGE, canonical, refuse, text
from mxr.util.frozen import dataclass

from .key import MODEL_PREFIX
from .limits import MAX_BLOBS, MAX_FILES
from .manifest import Blob, File, Manifest, check_sha256

PIECE = 64 << 20
"""Bytes of a piece. Model files are hashed, uploaded and stored in these pieces."""

DOMAIN = b"mxr-model-v2\n"


@dataclass(frozen=True, slots=True)
class PiecedFile:
    """A file of a model: its size in bytes, and the sha256 of each piece in order."""

    size: int
    pieces: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.size <= HUGE:
            raise refuse("size", "a size in bytes", self.size)
        if len(self.pieces) != -(-self.size // PIECE):
            raise refuse("blobs", f"{-(-self.size // PIECE)} pieces of {PIECE >> 20} MiB", len(self.pieces))
        for piece in self.pieces:
            check_sha256(piece, "blobs")

    def blobs(self) -> tuple[Blob, ...]:
        """Return the pieces as blobs, in order; a piece that occurs twice is returned twice."""
        return tuple(Blob(sha, min(PIECE, self.size - at * PIECE)) for at, sha in enumerate(self.pieces))


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """All files of a model: the ONNX file, and the external files by their locations, in any order.

    Raises `UsageError` for a location that occurs twice or is empty, and for too many files or pieces.
    """

    onnx: PiecedFile
    external: tuple[tuple[str, PiecedFile], ...] = ()

    def __post_init__(self) -> None:
        if len(self.external) >= MAX_FILES:
            raise refuse("external", f"at most {MAX_FILES - 1} external files", len(self.external))
        ordered = sorted(self.external, key=lambda row: text(row[0], "external").encode())
        for (left, _), (right, _) in pairwise(ordered):
            if left == right:
                raise refuse("external", "unique locations", left)
        if any(not name for name, _ in ordered):
            raise refuse("external", "a location", "")
        if sum(len(file.pieces) for file in self._files()) > MAX_BLOBS:
            raise refuse("blobs", f"at most {MAX_BLOBS} pieces", "more")
        object.__setattr__(self, "external", tuple(ordered))

    def _files(self) -> Iterator[PiecedFile]:
        yield self.onnx
        for _, file in self.external:
            yield file

    @classmethod
    def of(cls, manifest: Manifest, onnx: str) -> ModelFiles:
        """Return the files in a manifest, whose ONNX file has the name `onnx`.

        Raises `UsageError` for other pieces.
        """
        files = {file.name: _cut(file) for file in manifest.files}
        return cls(files.pop(onnx), tuple(files.items()))

    def to_json(self) -> dict[str, Any]:
        """Return `{"external":[[name,size,[sha256,...]],...],"onnx":[size,[sha256,...]]}`."""
        return {
            "external": [[name, file.size, list(file.pieces)] for name, file in self.external],
            "onnx": [self.onnx.size, list(self.onnx.pieces)],
        }

    @property
    def model(self) -> str:
        """The identity of the model: "sha256:" and 64 hex digits."""
        return MODEL_PREFIX + sha256(DOMAIN + canonical(self.to_json()).encode()).hexdigest()


def _cut(file: File) -> PiecedFile:
    found = PiecedFile(file.size, tuple(blob.sha256 for blob in file.blobs))
    if found.blobs() != file.blobs:
        raise refuse("blobs", f"pieces of {PIECE >> 20} MiB", [blob.size for blob in file.blobs])
    return found
