"""The contents of a bundle: artifacts with the metadata that a registry or a cache needs, and the lock of the export.

The contents depend on neither the time nor the host of the export, so one lock and one registry always produce the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from mxr.artifact import matching
from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, Manifest, artifact_id
from mxr.artifact.records import Artifact
from mxr.plans.lockfile import FILE_NAME, LockFile, lock_text
from mxr.protocol.artifacts import ModelClaim, PublicationIntent, Publish
from mxr.trust.envelope import Envelope
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr.util.frozen import dataclass

from . import oci

VERSION = 1
TAG = "mxr"


@dataclass(frozen=True, slots=True)
class BundleRecord:
    """An artifact in a bundle: what was published, when first, and the publisher's description of its model.

    Origin and promotion are not included: whoever imports it knows only the bundle, and what was signed: `statements`,
    and `sigstore`, the bundles of sigstore that somebody brought. Raises `UsageError` for what no registry would
    accept.
    """

    key: Key
    manifest: Manifest
    attributes: Attributes
    provenance: Mapping[str, Any]
    published_at: Timestamp
    model: ModelClaim | None = None
    statements: tuple[Envelope, ...] = ()
    sigstore: tuple[Mapping[str, Any], ...] = ()
    v: int = VERSION

    def __post_init__(self) -> None:
        if self.v != VERSION:
            raise codec.refuse("v", f"version {VERSION} of the record", self.v)
        self.publication()

    @classmethod
    def of(
        cls,
        artifact: Artifact,
        model: ModelClaim | None,
        statements: tuple[Envelope, ...],
        sigstore: tuple[Mapping[str, Any], ...] = (),
    ) -> BundleRecord:
        """The record of an artifact, which must have its manifest."""
        assert artifact.manifest is not None
        return cls(
            artifact.key,
            artifact.manifest,
            artifact.attributes,
            artifact.provenance,
            artifact.published_at,
            model,
            statements,
            sigstore,
        )

    @property
    def id(self) -> str:
        """The id of the artifact, computed from its key and files."""
        return artifact_id(self.key.digest, self.manifest.files)

    def publication(self, *, restore: bool = False) -> Publish:
        """The request that publishes it to a registry. Another one decided that these bytes are for this model."""
        intent = PublicationIntent(also_for=True, restore=restore)
        return Publish(self.key, self.manifest, self.attributes, self.provenance, self.model, intent)

    def artifact(self) -> Artifact:
        """The record that a cache stores for it: a pushed artifact, which whoever imported the bundle wants served."""
        return Artifact(
            id=self.id,
            digest=self.key.digest,
            sha256=self.manifest.sha256,
            size=self.manifest.size,
            key=self.key,
            attributes=self.attributes,
            provenance=self.provenance,
            published_at=self.published_at,
            origin=matching.PUSHED,
            serve=matching.ANY,
            manifest=self.manifest,
        )


@dataclass(frozen=True, slots=True)
class BundleLayout:
    """The files of a bundle in order: small documents with their content, then blobs, named by their sha256."""

    documents: Mapping[str, bytes] = field(default_factory=dict)
    blobs: tuple[Blob, ...] = ()


def lay_out(records: list[BundleRecord], lock: LockFile | None, recalls: Envelope | None = None) -> BundleLayout:
    """The OCI image layout of these artifacts; each blob occurs once. The order of `records` does not matter.

    `recalls`: the recall list of their registry.
    """
    ordered = sorted(records, key=lambda record: record.id)
    documents: dict[str, bytes] = {}
    rows = []
    if lock is not None:
        rows.append(_document_row(oci.LOCK, oci.LOCK_FILE, lock_text(lock).encode(), FILE_NAME, documents))
    if recalls is not None:
        text = codec.canonical(codec.encode(recalls)).encode()
        rows.append(_document_row(oci.RECALLS, oci.ENVELOPE, text, "recalls.json", documents))
    rows += [_record_row(record, documents) for record in ordered]
    inner = oci.index(rows, oci.BUNDLE)
    top = oci.index([oci.descriptor(oci.INDEX, inner, artifactType=oci.BUNDLE, annotations={oci.TAG: TAG})])
    first = {oci.LAYOUT_FILE: oci.LAYOUT, oci.INDEX_FILE: top, **_stored(inner)}
    blobs = {blob.sha256: blob for record in ordered for blob in record.manifest.blobs()}
    rest = tuple(blob for sha, blob in blobs.items() if oci.BLOBS + sha not in documents)
    return BundleLayout(first | documents, rest)


def _stored(data: bytes) -> dict[str, bytes]:
    return {oci.read_descriptor(oci.descriptor("", data), "").name: data}


def _document_row(kind: str, media_type: str, text: bytes, title: str, documents: dict[str, bytes]) -> dict[str, Any]:
    layer = oci.descriptor(media_type, text, annotations={oci.TITLE: title})
    data = oci.manifest(kind, oci.descriptor(oci.EMPTY_TYPE, oci.EMPTY), [layer])
    documents |= _stored(data) | _stored(oci.EMPTY) | _stored(text)
    return oci.descriptor(oci.MANIFEST, data, artifactType=kind)


def _record_row(record: BundleRecord, documents: dict[str, bytes]) -> dict[str, Any]:
    config = codec.canonical(codec.encode(record)).encode()
    layers = [
        oci.named(oci.BLOB, blob.sha256, blob.size, annotations={oci.TITLE: title})
        for title, blob in titled(record.manifest)
    ]
    annotations = {"mxr.id": record.id, "mxr.digest": record.key.digest}
    data = oci.manifest(oci.ARTIFACT, oci.descriptor(oci.ARTIFACT_CONFIG, config), layers, **annotations)
    documents |= _stored(data) | _stored(config)
    return oci.descriptor(oci.MANIFEST, data, artifactType=oci.ARTIFACT, annotations={"mxr.id": record.id})


def titled(manifest: Manifest) -> Iterator[tuple[str, Blob]]:
    """Each blob of each file in order, with the file name that oras uses: that of the file, or of a numbered part."""
    for file in manifest.files:
        for at, blob in enumerate(file.blobs):
            yield (file.name if len(file.blobs) == 1 else f"{file.name}.part-{at:05}"), blob
