"""What the registry publishes, as hosts keep it: an artifact, and a model with its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxr.util.frozen import dataclass

from .key import Key
from .manifest import Manifest, artifact_id
from .qualities import Qualities


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input as the ONNX file declares it: element type, and dims that are sizes, symbols, or None (open)."""

    name: str
    type: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Model:
    """A model that the registry knows. `complete`: its bytes are here and were checked."""

    model: str
    sha256: str
    name: str
    inputs: tuple[ModelInput, ...]
    complete: bool = False
    onnx: str | None = None
    manifest: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A published artifact. `stated` names the facts that rest on the publisher's word, because no file tells them.

    `sha256` and `size` are those of the file, or of the canonical list of files where there are several. Times are
    seconds since 1970, by the registry's database; `promoted_at` is None where nobody promoted it.
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
        """Whether its manifest came with it, and its digest, id and sha256 are those of its key and manifest."""
        return (
            self.manifest is not None
            and self.key.digest == self.digest
            and artifact_id(self.digest, self.manifest.files) == self.id
            and self.manifest.sha256 == self.sha256
        )
