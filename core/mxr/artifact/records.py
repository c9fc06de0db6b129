"""Records of the registry that hosts keep: an artifact, and a model with its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from mxr.util.codec import Timestamp, encode
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from . import field_docs, limits
from .attributes import Attributes, RelatedKey
from .field_docs import SHA256
from .key import MODEL_DOC, Key
from .manifest import Manifest, artifact_id, check_name
from .matching import ORIGINS, PUBLISHER, SERVE_RULES, Candidate, allows
from .recall import Recall

INTACT, LOST = STATES = ("intact", "lost")
"""Whether the registry has the bytes of an artifact."""

UNKNOWN_MODEL = "unknown_model"
REASONS = (
    *("toolchain", "shapes", "arch", "hardware", "precision", "options", "promotion"),
    *("recalled", "lost", "no_program", UNKNOWN_MODEL, "other"),
)
"""Why a request found no artifact: what differs first in the nearest one, or why there is none."""

EVIDENCE = ("verified", "claimed")
"""How the model of an artifact is known."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input as declared in the ONNX file: element type, and dims that are sizes, symbols, or None (open)."""

    name: Annotated[str, Doc("The name of the input.")]
    type: Annotated[str, Doc("The element type.")]
    dims: Annotated[
        tuple[int | str | None, ...] | None,
        Doc("Sizes, symbols, or null for an open dim; null if not even their number is declared."),
    ]


@dataclass(frozen=True, slots=True)
class ModelClaim:
    """What a publisher says about the model of a program: the name of its ONNX file, and its inputs."""

    name: Annotated[str, Doc("The name of the ONNX file.", minLength=1, maxLength=limits.MAX_NAME_LENGTH)]
    inputs: Annotated[tuple[ModelInput, ...], Doc("The declared inputs.", maxItems=limits.MAX_MODEL_INPUTS)]

    def __post_init__(self) -> None:
        check_name(self.name)
        limits.check_count(self.inputs, limits.MAX_MODEL_INPUTS, "inputs", "inputs")
        limits.check_document(encode(self.inputs), limits.MAX_MODEL_TEXT, limits.MAX_PROVENANCE_DEPTH, "inputs")


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a registry knows."""

    model: Annotated[str, MODEL_DOC]
    name: Annotated[str, Doc("What the model is called: a label.")]
    inputs: Annotated[tuple[ModelInput, ...], Doc("The declared inputs.", maxItems=limits.MAX_MODEL_INPUTS)]
    complete: Annotated[bool, Doc("The registry has the bytes of the model.")] = False
    claimed: Annotated[
        bool, Doc("The registry never had the bytes: name and inputs are what publishers of programs say.")
    ] = False
    onnx: Annotated[str | None, field_docs.ONNX] = None
    manifest: Annotated[Manifest | None, field_docs.MANIFEST] = None


@dataclass(frozen=True, slots=True)
class ListedArtifact:
    """A published artifact, as in lists. Times are by the clock of the registry's database.

    The registry itself records `origin`, `created_by`, `job`, `worker` and the times.
    """

    id: Annotated[str, field_docs.ARTIFACT_ID]
    digest: Annotated[str, field_docs.DIGEST]
    sha256: Annotated[str, Doc("The sha256 of the file, or of the canonical list of several.", pattern=SHA256)]
    size: Annotated[int, Doc("The size in bytes.", minimum=0, examples=[102400])]
    key: Annotated[Key, field_docs.KEY]
    attributes: Annotated[Attributes, field_docs.ATTRIBUTES]
    provenance: Annotated[Mapping[str, Any], field_docs.PROVENANCE]
    published_at: Annotated[Timestamp, Doc("When it was published first.")]
    origin: Annotated[
        str, Doc("`built`: a worker of the registry compiled it. `pushed`: a client published it.", enum=ORIGINS)
    ]
    serve: Annotated[str, Doc("Which artifacts the namespace lets answer requests.", enum=SERVE_RULES)]
    promoted_at: Annotated[Timestamp | None, Doc("When it was promoted last; null if it never was.")] = None
    changed_at: Annotated[Timestamp | None, Doc("The last time when facts of the artifact were replaced.")] = None
    restored_at: Annotated[
        Timestamp | None, Doc("The last time when the artifact was published again after somebody removed it.")
    ] = None
    restored_by: Annotated[str | None, Doc("Who published it again then.")] = None
    created_by: Annotated[str | None, Doc("Who published it.")] = None
    job: Annotated[str | None, Doc("The job that compiled it; null for a pushed artifact.", pattern=field_docs.ID)] = (
        None
    )
    worker: Annotated[str | None, field_docs.WORKER] = None
    sources: Annotated[
        Mapping[str, str], Doc("Who states each fact of key and attributes: reader, worker or publisher.")
    ] = field(default_factory=dict)
    model: Annotated[
        str,
        Doc(
            "`verified`: a worker compiled the program from the bytes of the model. `claimed`: its publisher says so.",
            enum=EVIDENCE,
        ),
    ] = "claimed"
    model_name: Annotated[str | None, field_docs.MODEL_NAME] = None
    state: Annotated[
        str, Doc("`lost`: the registry's store lacks bytes of it, so it answers no request.", enum=STATES)
    ] = INTACT
    recall: Annotated[Recall | None, Doc("What the registry says, if it must no longer be used.")] = None

    @property
    def answers_requests(self) -> bool:
        """True if it is not recalled, and the rule of its namespace lets it answer requests.

        By its id it is served in any case, unless it is quarantined.
        """
        return self.recall is None and allows(self.serve, self.origin, promoted=self.promoted_at is not None)

    def candidate(self, related: RelatedKey | None = None) -> Candidate:
        """Return it as a candidate for a request: for its own key, or for one that it can serve, too."""
        promoted, order = self.promoted_at or 0, round(self.published_at * 1000)
        return Candidate(self.id, self.attributes, promoted, order, related, self.origin, self.found)

    def refuse_quarantined(self) -> None:
        """Raise `RecalledError` if nobody may get it."""
        if self.recall is not None and self.recall.refuses:
            raise self.recall.error(self.id)

    @property
    def claimed(self) -> tuple[str, ...]:
        """The facts that only the publisher states."""
        return tuple(sorted(name for name, source in self.sources.items() if source == PUBLISHER))

    @property
    def found(self) -> frozenset[str]:
        """The facts that the reader or a worker found."""
        return frozenset(self.sources) - {*self.claimed}


@dataclass(frozen=True, slots=True)
class Artifact(ListedArtifact):
    """A published artifact."""

    description: Annotated[Mapping[str, Any] | None, Doc("What the registry read from the programs themselves.")] = None
    manifest: Annotated[Manifest | None, Doc("The files and their blobs.", stated=True)] = None

    @property
    def sound(self) -> bool:
        """True if the manifest is present, and digest, id and sha256 match the key and the manifest."""
        return (
            self.manifest is not None
            and self.key.digest == self.digest
            and artifact_id(self.digest, self.manifest.files) == self.id
            and self.manifest.sha256 == self.sha256
        )
