"""The static form of a registry: its artifacts as files, for any web server, bucket or disk.

    mxr.json                 StaticRegistry: whose it is, its keys, and which recall list counts
    index/<model>.json       ModelIndex: all artifacts of a model; `<model>`: the 64 digits of its identity
    artifacts/<id>.json      an artifact with what is said of its compile, as `GET /v1/artifacts/{id}` gives it
    statements/<sha256>.json what was signed of an artifact: `Statements`
    recalls/<sha256>.json    a recall list: `RecallList`
    blobs/<2>/<sha256>       bytes
    blobs/<2>/<sha256>.zst   the same in zstd, beside the plain ones, where it is much smaller

Files with a sha256 in their name never change. The others are replaced as a whole, each after what it names.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from mxr.artifact.key import MODEL_PREFIX
from mxr.artifact.matching import SERVE_RULES
from mxr.artifact.records import Artifact, ModelClaim
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from .statements import RegistryKey

FORMAT = "mxr-static"
VERSION = 1
ROOT = "mxr.json"

IMMUTABLE = ("blobs", "statements", "recalls")
FOLDERS = (*IMMUTABLE, "artifacts")
"""The folders whose files something else names."""

INDEXES = "index"

MAX_INDEX = 64 << 20
"""Bytes of an index, and of any other document."""

MAX_ARTIFACTS = 100_000
"""Artifacts of one model."""


@dataclass(frozen=True, slots=True)
class StaticArtifact:
    """An artifact in an index, without what is said of its compile. `statements`: the sha256 of what was signed.

    `packed`: the sha256s of the blobs that are there packed, too (`mxr.artifact.packed`).
    """

    artifact: Artifact
    statements: str | None = None
    packed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelIndex:
    """All artifacts of a model. `recalls`: the number of the recall list when it was written."""

    registry: Annotated[str, Doc("The UUID of the registry.")]
    namespace: str
    model: str
    serve: Annotated[str, Doc("Which artifacts answer requests.", enum=SERVE_RULES)]
    recalls: int
    written_at: Timestamp
    claim: ModelClaim | None
    artifacts: tuple[StaticArtifact, ...]
    v: int = VERSION

    def __post_init__(self) -> None:
        _check_version(self.v)
        if len(self.artifacts) > MAX_ARTIFACTS:
            raise codec.refuse("artifacts", f"at most {MAX_ARTIFACTS}", len(self.artifacts))


@dataclass(frozen=True, slots=True)
class StaticRegistry:
    """What a folder is: the static form of a registry. `recall_list`: the sha256 of the list with the number."""

    registry: Annotated[str, Doc("The UUID of the registry.")]
    namespace: str
    recalls: int
    recall_list: str | None
    written_at: Timestamp
    keys: tuple[RegistryKey, ...] = field(default_factory=tuple)
    format: str = FORMAT
    v: int = VERSION

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise codec.refuse("format", FORMAT, self.format)
        _check_version(self.v)


def index_name(model: str) -> str:
    """Return the name of the index of a model by its whole identity."""
    return f"{INDEXES}/{model.removeprefix(MODEL_PREFIX)}.json"


def is_immutable(name: str) -> bool:
    """Whether a file of this name never changes."""
    return name.startswith(tuple(f"{folder}/" for folder in IMMUTABLE))


def artifact_name(id: str) -> str:
    """Return the name of the file of an artifact by its whole id."""
    return f"artifacts/{id}.json"


def blob_name(sha256: str, *, packed: bool = False) -> str:
    """Return the name of a blob, or of its packed form."""
    return f"blobs/{sha256[:2]}/{sha256}{'.zst' if packed else ''}"


def _check_version(version: int) -> None:
    if version != VERSION:
        raise codec.refuse("v", f"version {VERSION} of the static form", version)
