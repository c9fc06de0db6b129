"""The documents of an OCI image layout: writes and reads descriptors, manifests and indexes.

    oci-layout                     {"imageLayoutVersion": "1.0.0"}
    index.json                     lists one index, under the tag by which `oras` copies it
    blobs/sha256/<digest>          that index; a manifest for each artifact and one for the lock; their blobs

Source: opencontainers/image-spec, image-layout.md, image-index.md, manifest.md (artifactType, the empty descriptor),
annotations.md (`org.opencontainers.image.ref.name`, `...image.title`, which oras uses as the name of a file).
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from mxr.artifact.manifest import check_sha256
from mxr.errors import UsageError
from mxr.util import codec
from mxr.util.frozen import dataclass

LAYOUT_FILE = "oci-layout"
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
INDEX_FILE = "index.json"
BLOBS = "blobs/sha256/"

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
EMPTY = b"{}"

BUNDLE = "application/vnd.mxr.bundle.v1"
ARTIFACT = "application/vnd.mxr.artifact.v1"
ARTIFACT_CONFIG = "application/vnd.mxr.artifact.config.v1+json"
BLOB = "application/vnd.mxr.blob.v1"
LOCK = "application/vnd.mxr.lock.v1"
LOCK_FILE = "application/vnd.mxr.lock.v1+json"
RECALLS = "application/vnd.mxr.recalls.v1"
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
STATEMENTS = "application/vnd.mxr.statements.v1"

TITLE = "org.opencontainers.image.title"
TAG = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A reference to a blob: its type, sha256 and size in bytes."""

    media_type: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        """The name of the blob in the layout."""
        return BLOBS + self.sha256


def descriptor(media_type: str, data: bytes, **more: object) -> dict[str, Any]:
    """The descriptor of this content."""
    return named(media_type, sha256(data).hexdigest(), len(data), **more)


def named(media_type: str, digest: str, size: int, **more: object) -> dict[str, Any]:
    """The descriptor of a blob with this sha256."""
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size, **more}


def manifest(kind: str, config: dict[str, Any], layers: list[dict[str, Any]], **annotations: str) -> bytes:
    """A manifest for an OCI artifact of this type."""
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind, "config": config, "layers": layers}
    return codec.canonical(document | ({"annotations": annotations} if annotations else {})).encode()


def index(manifests: list[dict[str, Any]], kind: str | None = None) -> bytes:
    """An index that lists these descriptors."""
    document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    return codec.canonical(document | ({"artifactType": kind} if kind else {})).encode()


def read_descriptor(document: object, where: str) -> Descriptor:
    """Read a descriptor; fields other than type, digest and size are ignored. Raises `UsageError`."""
    found = dict(codec.fields(document, where))
    media_type, digest, size = found.get("mediaType"), found.get("digest"), found.get("size")
    if not (isinstance(media_type, str) and isinstance(digest, str) and digest.startswith("sha256:")):
        raise codec.refuse(where, "a descriptor with mediaType and a sha256 digest", document)
    if type(size) is not int or not 0 <= size <= codec.HUGE:
        raise codec.refuse(f"{where}.size", "a size in bytes", size)
    return Descriptor(media_type, check_sha256(digest.removeprefix("sha256:"), f"{where}.digest"), size)


def read_index(data: bytes) -> list[Descriptor]:
    """Read the descriptors of an index. Raises `UsageError`."""
    document = dict(codec.fields(codec.parse(data, "An index"), "index"))
    rows = document.get("manifests")
    if document.get("schemaVersion") != 2 or not isinstance(rows, list):
        raise codec.refuse("index", "an OCI image index", sorted(document))
    return [read_descriptor(row, f"manifests[{at}]") for at, row in enumerate(rows)]


def read_manifest(data: bytes) -> tuple[str, Descriptor, list[Descriptor]]:
    """Read a manifest: its artifact type, its config and its layers. Raises `UsageError`."""
    document = dict(codec.fields(codec.parse(data, "A manifest"), "manifest"))
    kind, rows = document.get("artifactType"), document.get("layers")
    if document.get("schemaVersion") != 2 or not isinstance(kind, str) or not isinstance(rows, list):
        raise UsageError("It contains a manifest that mxr did not write.", hint="Export it with `mxr export`.")
    config = read_descriptor(document.get("config"), "config")
    return kind, config, [read_descriptor(row, f"layers[{at}]") for at, row in enumerate(rows)]
