"""The messages of API v1 about artifacts, models, blobs, locks and uses.

`codec.decode` reads request bodies strictly. Replies are read with `lenient`, so that an old client works with a newer
registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from mxr.artifact import field_docs, limits
from mxr.artifact.attributes import Attributes, Request
from mxr.artifact.field_docs import SHA256
from mxr.artifact.key import MODEL, Key, check_model
from mxr.artifact.manifest import Blob, Manifest, check_name, check_sha256
from mxr.artifact.matching import Match
from mxr.artifact.model_files import ModelFiles
from mxr.artifact.records import REASONS, Artifact, ListedArtifact, Model, ModelClaim, ModelInput
from mxr.artifact.request_defaults import CommonDefaults, RequestDefaults
from mxr.errors import Json
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

API = "/v1"

FOLLOWS_HEADER = "MXR-Follows"
"""In the upload of a blob: what is before it in its file, separated by commas.

First a chain (`mxr.artifact.manifest.next_chain`), then the sha256 of each blob after those of the chain.
"""

MAX_FOLLOWED = 100
"""Entries of the header `MXR-Follows`, so that it fits into the 8 KiB that nginx takes of one field."""

REGISTRY_HEADER = "MXR-Registry"
"""The header of every reply: the UUID of the registry's database."""

VERSION_HEADER = "MXR-Version"
"""The header of every reply: the version of mxr at the registry. That of a client is in its `User-Agent`."""

RECALLS_HEADER = "MXR-Recalls"
"""The header of a reply about an artifact, or of a miss: the number of the recall list of its namespace."""

HOST_HEADER = "MXR-Host"
"""The header of a resolve: what the host of the client calls itself, for those who look why it got no program."""

MODEL_NAME_HEADER = "MXR-Model-Name"
"""The header of a resolve: what the host calls the model, as UTF-8 in percent encoding. The key has no name."""

__all__ = [
    "Artifact",
    "ArtifactUsage",
    "Artifacts",
    "ListedArtifact",
    "Locks",
    "Misses",
    "Missing",
    "MissingRequest",
    "Model",
    "ModelClaim",
    "ModelInput",
    "Models",
    "NamespaceDefaults",
    "Publish",
    "PutLock",
    "RecordedMiss",
    "RegisterModel",
    "RegisteredLock",
    "Request",
    "ResolveReply",
    "UsageReply",
    "Use",
    "Uses",
    "UsesAccepted",
    "check_model",
]


@dataclass(frozen=True, slots=True)
class RegisterModel:
    """Registers a model with its bytes, so that it can be compiled.

    `manifest` has the ONNX file under the name `onnx`, and the external files under their locations, in pieces of
    64 MiB that were uploaded before. The registry computes the identity from the pieces; it must be `model`, where that
    is stated. The registry reads the ONNX file: it must name exactly the other files of the manifest as its external
    data, and its inputs take the place of `inputs`.
    """

    name: Annotated[str, Doc("What to call the model: a label.", minLength=1, maxLength=limits.MAX_NAME_LENGTH)]
    onnx: Annotated[str, field_docs.ONNX]
    manifest: Annotated[Manifest, field_docs.MANIFEST]
    inputs: Annotated[
        tuple[ModelInput, ...],
        Doc("The inputs, as far as they are known; those in the ONNX file count.", maxItems=limits.MAX_MODEL_INPUTS),
    ] = ()
    model: Annotated[
        str | None, Doc("The identity that the files must have; without it, any. The reply has it.", pattern=MODEL)
    ] = None

    @property
    def identity(self) -> str:
        """The stated identity, or else that of the files. Raises `UsageError` for files in other pieces."""
        return self.model or ModelFiles.of(self.manifest, self.onnx).model

    def __post_init__(self) -> None:
        if self.model is not None:
            check_model(self.model)
        check_name(self.name)
        if self.onnx not in {file.name for file in self.manifest.files}:
            raise codec.refuse("onnx", "the name of the ONNX file in the manifest", self.onnx)
        if "/" in self.onnx:
            # External data is relative to the ONNX file, whose name is no part of the identity: the first one to
            # register a model must not decide where its other files are looked for.
            raise codec.refuse("onnx", "a file name without a folder", self.onnx)
        limits.check_count(self.inputs, limits.MAX_MODEL_INPUTS, "inputs", "inputs")
        limits.check_document(codec.encode(self.inputs), limits.MAX_MODEL_TEXT, limits.MAX_PROVENANCE_DEPTH, "inputs")


@dataclass(frozen=True, slots=True)
class Models:
    """The reply of `GET /v1/models`: a page, and where the next page begins."""

    items: Annotated[tuple[Model, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


@dataclass(frozen=True, slots=True)
class PublicationIntent:
    """What a publisher says is meant, where a registry would otherwise refuse."""

    amend: Annotated[
        bool, Doc("Replace attributes and provenance of an artifact with these bytes that the caller pushed.")
    ] = False
    also_for: Annotated[bool, Doc("These bytes are published for another model, and are right for this one, too.")] = (
        False
    )
    restore: Annotated[bool, Doc("The artifact was removed, and is published again all the same.")] = False


@dataclass(frozen=True, slots=True)
class Publish:
    """An artifact to publish: its key, its attributes, its provenance, and its files by their blobs.

    `key.model` is the publisher's claim: no bytes of the model are needed. `model` says more about it, for requests
    that name the model by its identity. It is part of the artifact and creates no model.
    """

    key: Annotated[Key, field_docs.KEY]
    manifest: Annotated[Manifest, field_docs.MANIFEST]
    attributes: Annotated[Attributes, field_docs.ATTRIBUTES] = field(default_factory=Attributes)
    provenance: Annotated[Mapping[str, Any], field_docs.PROVENANCE] = field(default_factory=dict)
    model: Annotated[ModelClaim | None, Doc("What the publisher says about the model.")] = None
    intent: Annotated[PublicationIntent, Doc("What is meant, where the registry would otherwise refuse.")] = field(
        default_factory=PublicationIntent
    )

    def __post_init__(self) -> None:
        self.attributes.check(self.key)
        limits.check_document(self.provenance, limits.MAX_PROVENANCE_BYTES, limits.MAX_PROVENANCE_DEPTH, "provenance")


@dataclass(frozen=True, slots=True)
class Artifacts:
    """The reply of `GET /v1/artifacts`: a page, and where the next page begins."""

    items: Annotated[tuple[ListedArtifact, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


@dataclass(frozen=True, slots=True)
class ResolveReply:
    """The reply of `POST /v1/resolve`: the chosen artifact, how well it matches, and the URLs of its files by name.

    A URL that begins with `/` is a path on the registry. `etag` is the entity tag of the artifact: with it,
    `GET /v1/artifacts/{id}` confirms later that the artifact is still there and unchanged.
    """

    artifact: Annotated[Artifact, Doc("The artifact.")]
    match: Annotated[Match, field_docs.MATCH]
    urls: Annotated[
        Mapping[str, str],
        Doc(
            "The URL of each file by its name. One that begins with `/` is a path on the registry.",
            examples=[{"model.mxr": f"/v1/artifacts/{field_docs.SHA}/files/model.mxr"}],
        ),
    ]
    etag: Annotated[str, Doc("The entity tag, for `If-None-Match` of `GET /v1/artifacts/{id}`.")] = ""
    recalls: Annotated[int, Doc("The number of the recall list of the namespace (`GET /v1/recalls`).", minimum=0)] = 0


@dataclass(frozen=True, slots=True)
class NamespaceDefaults(CommonDefaults):
    """The reply of `GET /v1/defaults`: request defaults of the namespace. Null: there is none."""

    batch: Annotated[int | None, Doc("A batch size.", minimum=1, maximum=2**31 - 1)] = None

    def __post_init__(self) -> None:
        if self.batch is not None and not isinstance(self.batch, int):
            raise codec.refuse("batch", "a batch size", self.batch)
        self.as_defaults("")

    def as_defaults(self, source: str) -> RequestDefaults:
        """Return them as request defaults with this source. Raises `UsageError` for an invalid value."""
        return RequestDefaults.of(
            {name: value for name, value in message_document(self).items() if value is not None}, source
        )


@dataclass(frozen=True, slots=True)
class MissingRequest:
    """The body of `POST /v1/blobs/missing`: which of these blobs does the registry not have?"""

    blobs: Annotated[tuple[Blob, ...], Doc("The blobs to look for.", maxItems=limits.MAX_ASKED)]

    def __post_init__(self) -> None:
        limits.check_count(self.blobs, limits.MAX_ASKED, "blobs", "blobs")


@dataclass(frozen=True, slots=True)
class Missing:
    """The blobs to upload, by sha256. The registry keeps all other blobs for at least `grace` seconds."""

    missing: Annotated[tuple[str, ...], Doc("The sha256 of each blob to upload.", items={"pattern": SHA256})]
    grace: Annotated[float, Doc("How long the registry keeps the other blobs at least. In seconds.", minimum=0)] = 0


@dataclass(frozen=True, slots=True)
class PutLock:
    """The full ids of the artifacts that a lock pins from now on."""

    artifacts: Annotated[tuple[str, ...], field_docs.PINNED]

    def __post_init__(self) -> None:
        limits.check_count(self.artifacts, limits.MAX_PINNED, "artifacts", "artifacts")
        for id in self.artifacts:
            check_sha256(id, "artifacts")


@dataclass(frozen=True, slots=True)
class RegisteredLock:
    """A registered lock. While it exists, its artifacts are neither removed nor swept."""

    name: Annotated[str, field_docs.NAME]
    artifacts: Annotated[tuple[str, ...], field_docs.PINNED]
    created_by: Annotated[str, Doc("The principal that it belongs to.")]
    created_at: Annotated[Timestamp, field_docs.CREATED_AT]
    updated_at: Annotated[Timestamp, field_docs.UPDATED_AT]


@dataclass(frozen=True, slots=True)
class Locks:
    """The reply of `GET /v1/locks`, sorted by name."""

    items: Annotated[tuple[RegisteredLock, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


MAX_ASKED_BY = 5


@dataclass(frozen=True, slots=True)
class MissAsker:
    """A host that asked, with a token of this principal. `host` is empty where the client does not tell its name."""

    principal: Annotated[str, Doc("The principal of the token.")]
    host: Annotated[str, Doc("What the host calls itself.")]
    count: Annotated[int, Doc("How often.", minimum=1)]
    last_at: Annotated[Timestamp, Doc("When it asked last.")]


@dataclass(frozen=True, slots=True)
class RecordedMiss:
    """A request without a matching artifact: how often, when, by whom, and the nearest artifacts at that time."""

    id: Annotated[str, Doc("The sha256 of the request, by which it is told.", pattern=SHA256)]
    digest: Annotated[str, Doc("The digest of its key; the sha256 of the request where it is partial.", pattern=SHA256)]
    request: Annotated[Mapping[str, Any], Doc("The request: complete, or partial.")]
    count: Annotated[int, Doc("How often.", minimum=1)]
    first_at: Annotated[Timestamp, Doc("When it was requested first.")]
    last_at: Annotated[Timestamp, Doc("When it was requested last.")]
    nearest: Annotated[
        tuple[Mapping[str, Any], ...],
        Doc("The artifacts with the fewest differences at that time.", items=field_docs.DIFFERENCES),
    ] = ()
    reason: Annotated[str | None, Doc("What kind of difference the nearest artifact has first.", enum=REASONS)] = None
    accept: Annotated[
        Mapping[str, Any] | None, Doc("The change of the constraints with which the artifact `id` satisfies it.")
    ] = None
    open: Annotated[tuple[str, ...], Doc("The facts that the request left open.")] = ()
    model_name: Annotated[str | None, field_docs.MODEL_NAME] = None
    hosts: Annotated[int, Doc("How many hosts asked, of those that tell their names.", minimum=0)] = 0
    asked_by: Annotated[
        tuple[MissAsker, ...],
        Doc("Who asked last: all for an administrator, else the caller's own principal.", maxItems=MAX_ASKED_BY),
    ] = ()


@dataclass(frozen=True, slots=True)
class Misses:
    """The reply of `GET /v1/misses`, latest first."""

    items: Annotated[tuple[RecordedMiss, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


@dataclass(frozen=True, slots=True)
class Use:
    """Uses of an artifact from a local cache: their number, and the age of the last one in seconds."""

    id: Annotated[str, field_docs.ARTIFACT_ID]
    count: Annotated[int, Doc("How often it was used.", minimum=1, maximum=10**9)]
    ago: Annotated[float, Doc("The age of the last use. In seconds.", minimum=0)] = 0

    def __post_init__(self) -> None:
        check_sha256(self.id)
        if not 1 <= self.count <= 10**9:
            raise codec.refuse("count", "a count from 1 to 1000000000", self.count)
        if not self.ago >= 0:
            raise codec.refuse("ago", "seconds, 0 or more", self.ago)


@dataclass(frozen=True, slots=True)
class Uses:
    """The body of `POST /v1/uses`: what a host used from its cache."""

    uses: Annotated[tuple[Use, ...], Doc("What was used.", maxItems=limits.MAX_USES)]

    def __post_init__(self) -> None:
        limits.check_count(self.uses, limits.MAX_USES, "uses", "artifacts")


@dataclass(frozen=True, slots=True)
class UsesAccepted:
    """The reply to a report of uses: the number of artifacts recorded. The registry no longer has the others."""

    noted: Annotated[
        int, Doc("How many artifacts were recorded; the registry no longer has the others.", minimum=0)
    ] = 0


@dataclass(frozen=True, slots=True)
class ArtifactUsage:
    """An artifact with the number of its uses in the requested period, and the time of the last one."""

    artifact: Annotated[ListedArtifact, Doc("The artifact.")]
    count: Annotated[int, Doc("How often.", minimum=1)]
    used_at: Annotated[Timestamp, field_docs.USED_AT]


@dataclass(frozen=True, slots=True)
class UsageReply:
    """The reply of `GET /v1/uses`, most used first."""

    items: Annotated[tuple[ArtifactUsage, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


def message_document(value: object) -> Json:
    """Return the JSON object of a message."""
    found = codec.encode(value)
    assert isinstance(found, dict)
    return found
