"""Statements: what is signed of an artifact. Source: in-toto Attestation Framework, v1.

    subject         every file of the artifact by its sha256, which is known anyway
    predicateType   ACCEPTED: of the registry, when it accepts it; BUILT: of the worker that compiled it
    predicate       registry, artifact, digest, key, attributes, job, worker; and
                    accepted: namespace, sources (who found each fact), origin, model, created_by, log (sha256 of what
                    is kept of the compile's log), accepted_at
                    built: provenance (what the worker says of the compile, such as its trial), built_at

A statement never changes. Where facts of an artifact are replaced, another one is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, TypeVar

from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Key
from mxr.artifact.manifest import Manifest
from mxr.artifact.records import Artifact
from mxr.errors import Json, OtherRecordError
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from .envelope import Envelope

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
ACCEPTED, BUILT = "urn:mxr:accepted:v1", "urn:mxr:built:v1"

MAX_SUBJECTS = 10_000

T = TypeVar("T", "Accepted", "Built")


@dataclass(frozen=True, slots=True)
class StoredStatement:
    """A statement about an artifact as a registry keeps it: the signed envelope, and when it was added."""

    kind: Annotated[str, Doc("The type of what it says.", examples=[ACCEPTED])]
    created_at: Annotated[Timestamp, Doc("When it was added.")]
    envelope: Annotated[Envelope, Doc("The signed statement.")]
    imported: Annotated[bool, Doc("Somebody brought it. The registry has not verified it.")] = False
    bundle: Annotated[
        Mapping[str, Any] | None, Doc("The whole bundle of sigstore, if somebody brought one; `envelope` is in it.")
    ] = None

    @property
    def document(self) -> Json:
        """The statement as it was signed or brought."""
        return dict(self.bundle) if self.bundle is not None else codec.encode(self.envelope)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a registry said of an artifact when it accepted it. `files`: the sha256 of each file by its name."""

    files: Mapping[str, str]
    registry: str
    namespace: str
    artifact: str
    digest: str
    key: Mapping[str, Any]
    attributes: Mapping[str, Any]
    origin: str
    accepted_at: Timestamp

    @classmethod
    def read(cls, document: Json) -> Accepted:
        """Read a signed document. Raises `OtherRecordError` for one of another type, and `UsageError`."""
        return _read(cls, ACCEPTED, document)

    def refuse_other(self, artifact: Artifact) -> None:
        """Raise `OtherRecordError` if it does not say exactly this of the artifact, whose manifest is known."""
        assert artifact.manifest is not None
        _refuse_other(self, artifact.id, artifact.digest, artifact.key, artifact.manifest, artifact.attributes)


@dataclass(frozen=True, slots=True)
class Built:
    """What a worker said of an artifact that it compiled. `files`: the sha256 of each file by its name."""

    files: Mapping[str, str]
    registry: str
    artifact: str
    digest: str
    key: Mapping[str, Any]
    attributes: Mapping[str, Any]
    job: str
    worker: str
    built_at: Timestamp

    @classmethod
    def read(cls, document: Json) -> Built:
        """Read a signed document. Raises `OtherRecordError` for one of another type, and `UsageError`."""
        return _read(cls, BUILT, document)

    def refuse_other(self, id: str, key: Key, manifest: Manifest, attributes: Attributes) -> None:
        """Raise `OtherRecordError` if it says anything else of an artifact than is known of it.

        The registry may know attributes of which the worker says nothing: those of its job, and what its reader found.
        """
        said, nothing = codec.decode(Attributes, dict(self.attributes), lenient=True), Attributes()
        unsaid = {row.name: getattr(nothing, row.name) for row in fields(said)}
        unsaid = {name: value for name, value in unsaid.items() if getattr(said, name) == value}
        if set(said.libraries) <= set(attributes.libraries):
            unsaid["libraries"] = said.libraries
        _refuse_other(self, id, key.digest, key, manifest, replace(attributes, **unsaid))


def statement(kind: str, files: Mapping[str, str], predicate: Json) -> Json:
    """Return the document of a statement. `kind`: ACCEPTED or BUILT; `files`: sha256 by name."""
    subjects = [{"name": name, "digest": {"sha256": sha}} for name, sha in files.items()]
    return {"_type": STATEMENT, "subject": subjects, "predicateType": kind, "predicate": predicate}


def _read(cls: type[T], kind: str, document: Json) -> T:
    found = (document.get("_type"), document.get("predicateType"))
    if found != (STATEMENT, kind):
        raise OtherRecordError(f"The record is of another type: {str(found[1])[:100]}.")
    predicate = codec.decode(Mapping[str, Any], document.get("predicate"), "predicate")  # type: ignore[type-abstract]
    said = {row.name: predicate.get(row.name) for row in fields(cls) if row.name != "files"}
    return codec.decode(cls, {"files": subjects_of(document), **said}, "predicate")


def _refuse_other(
    said: Accepted | Built, id: str, digest: str, key: Key, manifest: Manifest, attributes: Attributes
) -> None:
    """Raise `OtherRecordError` for a record of another artifact. `attributes`: what it may say of them."""
    pairs = {
        "artifact": (said.artifact, id),
        "digest": (said.digest, digest),
        "files": (dict(said.files), {file.name: file.sha256 for file in manifest.files}),
        "key": (dict(said.key), key.to_json()),
        "attributes": (codec.decode(Attributes, dict(said.attributes), lenient=True), attributes),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            raise OtherRecordError(
                f"The record is about artifact {said.artifact[:12]} and does not say the same {name} as artifact "
                f"{id[:12]} has.",
                context={"id": id, "field": name},
            )


def subjects_of(document: Json) -> dict[str, str]:
    """Return the sha256 of each subject by its name. Raises `UsageError`."""
    rows = document.get("subject")
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_SUBJECTS:
        raise codec.refuse("subject", f"1 to {MAX_SUBJECTS} files", type(rows).__name__)
    found: dict[str, str] = {}
    for row in rows:
        try:
            name, sha = row["name"], row["digest"]["sha256"]
        except (KeyError, TypeError):
            raise codec.refuse("subject", "a file with its sha256", row) from None
        if not isinstance(name, str) or not isinstance(sha, str) or name in found:
            raise codec.refuse("subject", "files with distinct names and a sha256", row)
        found[name] = sha
    return found
