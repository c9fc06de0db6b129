"""Statements: what a registry signs of an artifact when it accepts it. Source: in-toto Attestation Framework, v1.

    subject         every file of the artifact by its sha256, which the registry has anyway
    predicateType   ACCEPTED
    predicate       registry, namespace, artifact, digest, key, attributes, sources (who found each fact), origin,
                    model, created_by, job, worker, log (sha256 of what is kept of the compile's log), accepted_at

A statement never changes. Where facts of an artifact are replaced, the registry adds another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

from mxr.artifact.attributes import Attributes
from mxr.artifact.records import Artifact
from mxr.errors import Json, OtherRecordError
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from .envelope import Envelope

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
ACCEPTED = "urn:mxr:accepted:v1"

MAX_SUBJECTS = 10_000


@dataclass(frozen=True, slots=True)
class StoredStatement:
    """A statement about an artifact as a registry keeps it: the signed envelope, and when it was added."""

    kind: Annotated[str, Doc("The type of what it says.", examples=[ACCEPTED])]
    created_at: Annotated[Timestamp, Doc("When it was added.")]
    envelope: Annotated[Envelope, Doc("The signed statement.")]


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
        kind = (document.get("_type"), document.get("predicateType"))
        if kind != (STATEMENT, ACCEPTED):
            raise OtherRecordError(f"The record is of another type: {str(kind[1])[:100]}.")
        predicate = codec.decode(Mapping[str, Any], document.get("predicate"), "predicate")  # type: ignore[type-abstract]
        said = {row.name: predicate.get(row.name) for row in fields(cls) if row.name != "files"}
        return codec.decode(cls, {"files": _subjects(document.get("subject")), **said}, "predicate")

    def refuse_other(self, artifact: Artifact) -> None:
        """Raise `OtherRecordError` if it does not say exactly this of the artifact, whose manifest is known."""
        assert artifact.manifest is not None
        pairs = {
            "artifact": (self.artifact, artifact.id),
            "digest": (self.digest, artifact.digest),
            "files": (dict(self.files), {file.name: file.sha256 for file in artifact.manifest.files}),
            "key": (dict(self.key), artifact.key.to_json()),
            "attributes": (codec.decode(Attributes, dict(self.attributes), lenient=True), artifact.attributes),
        }
        for name, (said, found) in pairs.items():
            if said != found:
                raise OtherRecordError(
                    f"The record is about artifact {self.artifact[:12]} and does not say the same {name} as artifact "
                    f"{artifact.id[:12]} has.",
                    context={"id": artifact.id, "field": name},
                )


def accepted(files: Mapping[str, str], predicate: Json) -> Json:
    """Return the document of a statement that the registry accepted an artifact. `files`: sha256 by name."""
    subjects = [{"name": name, "digest": {"sha256": sha}} for name, sha in files.items()]
    return {"_type": STATEMENT, "subject": subjects, "predicateType": ACCEPTED, "predicate": predicate}


def _subjects(rows: object) -> dict[str, str]:
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
