"""Records of the registry that hosts keep: an artifact, and a model with its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from mxr.util.codec import Timestamp, encode, refuse
from mxr.util.frozen import dataclass

from . import limits
from .attributes import Attributes, RelatedKey
from .key import Key
from .manifest import Manifest, artifact_id, check_name
from .matching import ORIGINS, PUBLISHER, SERVE_RULES, Candidate, allows


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input as declared in the ONNX file: element type, and dims that are sizes, symbols, or None (open)."""

    name: str
    type: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class ModelClaim:
    """What a publisher says about the model of a program: the name of its ONNX file, and its inputs."""

    name: str
    inputs: tuple[ModelInput, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        limits.check_count(self.inputs, limits.MAX_MODEL_INPUTS, "inputs", "inputs")
        limits.check_document(encode(self.inputs), limits.MAX_MODEL_TEXT, limits.MAX_PROVENANCE_DEPTH, "inputs")


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a registry knows. `complete`: the registry has its bytes.

    `claimed`: it never had them, and name and inputs are what the publishers of programs say.
    """

    model: str
    name: str
    inputs: tuple[ModelInput, ...]
    complete: bool = False
    claimed: bool = False
    onnx: str | None = None
    manifest: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A published artifact.

    `model`: "verified" if a worker compiled the program from the bytes of the model in the key, otherwise "claimed".
    `model_name`: what the publisher calls the model, a label that identifies nothing; None if nobody named it.
    `sha256` and `size` (bytes) are those of the file, or of the canonical list of several files. Times are by the
    clock of the registry's database.

    The registry itself records `origin`, `created_by` (who published it), `job` and `worker` (of a built artifact),
    `published_at` (first), `changed_at` (the last time when its facts were replaced, or None), `restored_at` and
    `restored_by` (the last return after a removal, or None) and `promoted_at` (None
    for an artifact that was never promoted). `serve` is the rule of its namespace. `sources` tells for each fact of key
    and attributes who states it: reader, worker or publisher. `provenance` is what the publisher or the worker says;
    nobody verified it.
    """

    id: str
    digest: str
    sha256: str
    size: int
    key: Key
    attributes: Attributes
    provenance: Mapping[str, Any]
    published_at: Timestamp
    origin: str
    serve: str
    promoted_at: Timestamp | None = None
    changed_at: Timestamp | None = None
    restored_at: Timestamp | None = None
    restored_by: str | None = None
    created_by: str | None = None
    job: str | None = None
    worker: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    model: str = "claimed"
    model_name: str | None = None
    description: Mapping[str, Any] | None = None
    manifest: Manifest | None = None

    def __post_init__(self) -> None:
        if self.origin not in ORIGINS:
            raise refuse("origin", " or ".join(ORIGINS), self.origin)
        if self.serve not in SERVE_RULES:
            raise refuse("serve", " or ".join(SERVE_RULES), self.serve)

    @property
    def answers_requests(self) -> bool:
        """True if the rule of its namespace lets it answer requests; by its id, it is served in any case."""
        return allows(self.serve, self.origin, promoted=self.promoted_at is not None)

    def candidate(self, related: RelatedKey | None = None) -> Candidate:
        """Return it as a candidate for a request: for its own key, or for one that it can serve, too."""
        promoted, order = self.promoted_at or 0, round(self.published_at * 1000)
        return Candidate(self.id, self.attributes, promoted, order, related, self.origin, self.found)

    @property
    def claimed(self) -> tuple[str, ...]:
        """The facts that only the publisher states."""
        return tuple(sorted(name for name, source in self.sources.items() if source == PUBLISHER))

    @property
    def found(self) -> frozenset[str]:
        """The facts that the reader or a worker found."""
        return frozenset(self.sources) - {*self.claimed}

    @property
    def sound(self) -> bool:
        """True if the manifest is present, and digest, id and sha256 match the key and the manifest."""
        return (
            self.manifest is not None
            and self.key.digest == self.digest
            and artifact_id(self.digest, self.manifest.files) == self.id
            and self.manifest.sha256 == self.sha256
        )
