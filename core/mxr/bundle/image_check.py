"""Reads container images in an OCI image layout, and judges the programs in them on a host without their GPU.

Nothing of an image is trusted: each layer must have its sha256, and only plain files below `/models` are taken out.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from mxr.artifact.manifest import Blob, check_name
from mxr.artifact.target import split_version
from mxr.cache.store import Cache
from mxr.errors import DamagedError, MxrError, UntrustedError, UsageError
from mxr.install import verification
from mxr.install.file_names import SUFFIX
from mxr.install.verification import WORDS, has_record, placed_slots, verify_folder
from mxr.util import codec, disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import CHUNK, sha256_chunks

from . import image_layout, oci
from .contents import BundleRecord
from .image_layout import FolderLayout, TarLayout
from .images import GFX, MAX_LAYERS, ROCM, ROOT, referrer_tag
from .oci import Descriptor


@dataclass(frozen=True, slots=True)
class ImageInLayout:
    """An image with a tag. `layers`: as its manifest lists them."""

    tag: str
    digest: str
    labels: Mapping[str, str]
    layers: tuple[Descriptor, ...]

    @property
    def gfx(self) -> str | None:
        """The GPU that it names."""
        return self.labels.get(GFX)


def open_images(path: Path) -> tuple[FolderLayout, tuple[ImageInLayout, ...]]:
    """Return the layout in a folder, and its images in the order of their tags.

    Raises `UsageError` where there is none, `DamagedError`.
    """
    if not (path / oci.INDEX_FILE).is_file():
        raise UsageError(f"{path} is no OCI image layout.", hint="Give the folder that `mxr export --oci` wrote.")
    layout, found = FolderLayout(path), []
    with image_layout.damage_to(layout):
        for row in _rows(layout):
            descriptor, tag = oci.read_descriptor(row, "manifests"), _text(row.get("annotations"), oci.TAG)
            if descriptor.media_type == oci.MANIFEST and tag is not None and not tag.startswith("sha256-"):
                found.append(_image(layout, descriptor, tag))
    if not found:
        raise UsageError(f"{path} has no image with a tag.", hint="Write one: `mxr export --oci`.")
    return layout, tuple(sorted(found, key=lambda image: image.tag))


def _image(layout: FolderLayout, descriptor: Descriptor, tag: str) -> ImageInLayout:
    document = _object(layout, descriptor)
    config = _object(layout, oci.read_descriptor(document.get("config"), "config")).get("config")
    labels = config.get("Labels") if isinstance(config, dict) else None
    listed = document.get("layers")
    if not isinstance(listed, list) or len(listed) > MAX_LAYERS:
        raise image_layout.wrong(layout, f"{tag[:80]} has no list of at most {MAX_LAYERS} layers")
    layers = tuple(oci.read_descriptor(layer, f"layers[{at}]") for at, layer in enumerate(listed))
    pairs = labels.items() if isinstance(labels, dict) else ()
    return ImageInLayout(tag, descriptor.sha256, {k: v for k, v in pairs if isinstance(v, str)}, layers)


@contextmanager
def unpacked(layout: FolderLayout, image: ImageInLayout) -> Iterator[Path]:
    """Yield a temporary folder with the files of an image below `/models`. Raises `DamagedError`, and disk faults."""
    with tempfile.TemporaryDirectory(prefix="mxr-image-") as home:
        Path(home, ROOT).mkdir()
        for layer in image.layers:
            if layer.media_type != oci.LAYER:
                raise DamagedError(
                    f"{layout.path}: a layer of {image.tag} is no plain tar ({layer.media_type[:80]}).",
                    hint="Copy the image as it is: `skopeo copy --preserve-digests`.",
                )
            if layout.sizes().get(layer.name) != layer.size:
                raise image_layout.wrong(layout, f"layer {layer.sha256} is missing or has another size")
            blob = Blob(layer.sha256, layer.size)
            if sha256_chunks(image_layout.chunks(layout, blob)) != layer.sha256:
                raise image_layout.wrong(layout, f"the content of layer {layer.sha256} does not match its sha256")
            with closing(TarLayout(layout.path / layer.name)) as tar:
                _take_out(tar, Path(home))
        yield Path(home, ROOT)


def _take_out(tar: TarLayout, home: Path) -> None:
    for name, size in tar.sizes().items():
        if not name.startswith(f"{ROOT}/") or Path(name).name.startswith(".wh."):
            raise image_layout.wrong(tar, f"{name[:80]!r} is no file below {ROOT}/")
        with image_layout.damage_to(tar):
            path = home / check_name(name)
        with disk.faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for at in range(0, size, CHUNK):
                    file.write(tar.read_at(name, at, min(CHUNK, size - at)))
                os.fchmod(file.fileno(), 0o600)


def records_of(layout: FolderLayout, image: ImageInLayout) -> dict[str, BundleRecord]:
    """Return what lies beside an image of its artifacts, by id; nothing of it is verified. Raises `DamagedError`."""
    found: dict[str, BundleRecord] = {}
    with image_layout.damage_to(layout):
        for row in _rows(layout):
            tag = _text(row.get("annotations"), oci.TAG)
            if row.get("artifactType") != oci.STATEMENTS and tag != referrer_tag(f"sha256:{image.digest}"):
                continue
            document = _object(layout, oci.read_descriptor(row, "manifests"))
            subject, layers = document.get("subject"), document.get("layers")
            if not isinstance(subject, dict) or subject.get("digest") != f"sha256:{image.digest}":
                continue
            for layer in layers if isinstance(layers, list) else ():
                descriptor = oci.read_descriptor(layer, "layers")
                if descriptor.media_type == oci.ARTIFACT_CONFIG:
                    record = codec.decode(BundleRecord, _object(layout, descriptor), "artifact")
                    found[record.id] = record
    return found


def other_rocm(image: ImageInLayout, rocm: str | None) -> Sequence[str]:
    """Return why an image is not for this release of ROCm, which no program names itself; nothing for None."""
    made = image.labels.get(ROCM, "")
    if not (rocm and made) or {*made.split(",")} == {split_version(rocm, "rocm")[0]}:
        return []
    return [f"rocm needs {made}, found {rocm}"]


def problems_of(folder: Path, records: Mapping[str, BundleRecord], cache: Cache) -> Sequence[str]:
    """Return what is wrong with the programs that were placed in an image, other than that they do not fit a GPU.

    Their files are no longer as they were placed, they were quarantined, or nothing proves them to a user who requires
    signatures.
    """
    if not has_record(folder):
        return ["mxr did not write it, and nothing is signed of its programs"] if cache.requires_proof else []
    report = verify_folder(folder, cache.memo)
    found = [f"{change.path.name} was {WORDS[change.kind]}" for change in report.findings]
    if cache.requires_proof:
        found += [f"nothing is signed of {name}, which mxr did not place" for name in report.foreign]
    placed: dict[str, set[str]] = defaultdict(set)
    for slot in placed_slots(folder):
        placed[slot.id] |= {file.sha256 for file in slot.files if file.name.endswith(SUFFIX)}
    for identity, programs in sorted(placed.items()):
        record = records.get(identity)
        if record is None:
            found += [f"nothing is signed of {identity[:12]}"] if cache.requires_proof else []
            continue
        if not programs <= {file.sha256 for file in record.manifest.files}:
            found.append(f"its files are not those of {identity[:12]}")
        with suppress(MxrError):
            cache.imported.store_statements(identity, record.statements)
        try:
            cache.require_proof(record.artifact())
        except UntrustedError as problem:
            found.append(problem.message)
    found += [f"{identity[:12]} is {recall.word}: {recall.reason}" for identity, recall in _recalled(folder, cache)]
    return found


def _recalled(folder: Path, cache: Cache) -> Iterator[tuple[str, Any]]:
    return ((identity, recall) for identity, recall in verification.recalled(folder, cache) if recall.refuses)


def _rows(layout: FolderLayout) -> list[dict[str, Any]]:
    document = codec.parse(image_layout.read_document(layout, oci.INDEX_FILE), oci.INDEX_FILE)
    rows = document.get("manifests") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise image_layout.wrong(layout, f"{oci.INDEX_FILE} lists no manifests")
    return rows


def _object(layout: FolderLayout, descriptor: Descriptor) -> dict[str, Any]:
    found = codec.parse(image_layout.read_document(layout, descriptor), descriptor.name)
    if not isinstance(found, dict):
        raise image_layout.wrong(layout, f"{descriptor.name} is no JSON object")
    return found


def _text(document: object, name: str) -> str | None:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, str) else None
