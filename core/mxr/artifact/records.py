"""Records of the registry that hosts keep: an artifact, and a model with its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxr.util.frozen import dataclass

from .key import Key
from .manifest import Manifest, artifact_id
from .qualities import Qualities


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input as declared in the ONNX file: element type, and dims that are sizes, symbols, or None (open)."""

    name: str
    type: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Model:
    """A registered model. `complete`: the registry has its bytes and has verified them."""

    model: str
    sha256: str
    name: str
    inputs: tuple[ModelInput, ...]
    complete: bool = False
    onnx: str | None = None
    manifest: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A published artifact. `stated` lists the facts that only the publisher stated: they cannot be read from the file.

    `sha256` and `size` (bytes) are those of the file, or of the canonical list of several files. Times are seconds
    since 1970 by the clock of the registry's database. `promoted_at` is None for an artifact that was never promoted.
    """

    id: str
    digest: str
    sha256: str
    size: int
    key: Key
    qualities: Qualities
    provenance: Mapping[str, Any]
    published_at: float
    promoted_at: float | None = None
    stated: tuple[str, ...] = ()
    description: Mapping[str, Any] | None = None
    manifest: Manifest | None = None

    @property
    def sound(self) -> bool:
        """True if the manifest is present, and digest, id and sha256 match the key and the manifest."""
        return (
            self.manifest is not None
            and self.key.digest == self.digest
            and artifact_id(self.digest, self.manifest.files) == self.id
            and self.manifest.sha256 == self.sha256
        )
