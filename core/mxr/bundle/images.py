"""Writes container images whose files are programs, to an OCI image layout: every runtime can mount them.

    /models/...    what `mxr fetch --locked -o` writes for one GPU, with its ledger

A layer is an uncompressed tar: one for each large file, and one for the small ones. The same files give the same bytes,
so that images share what they have in common, and a second export proves the first. What was signed of each program is
beside the image, as its referrer.

Source: opencontainers/image-spec v1.1, layer.md, config.md, manifest.md (`subject`). The labels are those of
redhat-et/GKM (mcv/docs/spec-compat.md) and of KServe's kernel caches.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from mxr.artifact.key import Key
from mxr.errors import MxrError, WouldOverwriteError
from mxr.util import codec, disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import CHUNK, Data

from . import image_layout, oci
from .contents import BundleRecord
from .image_layout import FolderLayout
from .oci import BLOBS, TAG

ROOT = "models"
"""The folder of the files in an image. Source: KServe, "Serve models with OCI images"."""

LARGE = 1 << 20
"""Bytes from which a file has a layer of its own."""

MAX_LAYERS = 100
"""Layers of an image. Overlay file systems of runtimes take some 120."""

LABELS = "mxr.dev/"
GFX, ROCM = f"{LABELS}gfx", f"{LABELS}rocm"
"""The labels with the GPU of an image, as that of a node (`mxr host --node-labels`), and its releases of ROCm."""

EPOCH = "1970-01-01T00:00:00Z"

CACHE_VARIABLE = re.compile(r"(ORT_MIGRAPHX_MODEL_CACHE_PATH|ORT_MIGRAPHX_CACHE_DIR)=(/\S+)")
"""The setting of ONNX Runtime that names a folder of programs."""


@dataclass(frozen=True, slots=True)
class ProgramImage:
    """What to write as one image: the files in `folder`, for one GPU.

    `settings`: what makes the consumers use them, with paths below `/models`. `records`: the artifacts.
    """

    tag: str
    folder: Path
    records: tuple[BundleRecord, ...]
    settings: tuple[str, ...] = ()

    def labels(self, size: int) -> dict[str, str]:
        """Return what tools for caches of GPU programs read of an image with so many bytes of files."""
        keys = [record.key for record in self.records]
        target = {"arch": self.tag, "backend": "hip", "warp_size": _wave_size(self.tag)}
        gpu = any(key.arch for key in keys)
        found = {
            "cache.migraphx.image/cache-size-bytes": str(size),
            "cache.migraphx.image/entry-count": str(len(self.records)),
            "cache.migraphx.image/summary": codec.canonical({"targets": [target] if gpu else []}),
            "io.kserve.km/cache-hash": ",".join(sorted(record.id[:12] for record in self.records)),
            "io.kserve.km/cache-type": "migraphx-program",
            "io.kserve.km/framework": "migraphx",
            "io.kserve.km/cache-mount-subpath": ROOT,
            GFX: self.tag if gpu else "",
            f"{LABELS}migraphx": _all(key.migraphx for key in keys),
            ROCM: _all(key.rocm for key in keys),
        }
        variables = {match.groups() for line in self.settings if (match := CACHE_VARIABLE.fullmatch(line))}
        if len(variables) == 1:
            ((name, path),) = variables
            found["io.kserve.km/framework"] = "onnxruntime"
            found["io.kserve.km/cache-root-env"] = f"{name}={path}"
            found["io.kserve.km/cache-mount-subpath"] = path.removeprefix("/")
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class WrittenImage:
    """An image in a layout. `size`: bytes of its layers."""

    tag: str
    digest: str
    layers: int
    size: int


class ImageWriter:
    """Adds images to a layout in a folder; they appear together, by `finish`.

    Raises `WouldOverwriteError` for a folder with other files.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, dict[str, Any]] = {}
        with disk.faults(path):
            path.mkdir(parents=True, exist_ok=True)
            others = {each.name for each in path.iterdir() if not each.name.startswith(disk.PARTIAL)}
            if others and oci.LAYOUT_FILE not in others and others - {"blobs"}:
                raise WouldOverwriteError(
                    f"{path} has other files, and no {oci.LAYOUT_FILE}.",
                    hint="Choose an empty folder, or one that `mxr export --oci` wrote.",
                )
            (path / BLOBS).mkdir(parents=True, exist_ok=True)

    def add(self, image: ProgramImage) -> WrittenImage:
        """Write the blobs of an image, which has its tag after `finish`. Raises disk faults."""
        files = sorted(path for path in image.folder.rglob("*") if path.is_file())
        layers = [self._write_layer(image.folder, group) for group in _groups(files)]
        labels = image.labels(sum(path.stat().st_size for path in files))
        config = {
            "architecture": "amd64",
            "os": "linux",
            "created": EPOCH,
            "config": {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }
        document = {"schemaVersion": 2, "mediaType": oci.MANIFEST, "layers": layers}
        document["config"] = self._write_json(oci.IMAGE_CONFIG, config)
        row = self._write_json(oci.MANIFEST, document | {"annotations": labels})
        self._rows[image.tag] = row | {"annotations": {TAG: image.tag}}
        if image.records:
            tag = referrer_tag(row["digest"])
            self._rows[tag] = self._write_records(image.records, row) | {"annotations": {TAG: tag}}
        return WrittenImage(image.tag, row["digest"], len(layers), sum(layer["size"] for layer in layers))

    def finish(self) -> None:
        """Give the images their tags. Others of the layout stay; what nothing names any more is removed."""
        known = _rows_of(self._path / oci.INDEX_FILE)
        replaced = [row for row in known if _tag(row) in self._rows]
        referrers = {referrer_tag(str(row.get("digest"))) for row in replaced}
        gone = [row for row in known if _tag(row) in self._rows.keys() | referrers]
        rows = [row for row in known if row not in gone] + [row for _, row in sorted(self._rows.items())]
        before = {*self._reachable(gone)}
        disk.write_whole(self._path / oci.LAYOUT_FILE, oci.LAYOUT)
        document = {"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": rows}
        disk.write_whole(self._path / oci.INDEX_FILE, codec.canonical(document).encode())
        for name in before - {*self._reachable(rows)}:
            with disk.faults(self._path / name):
                (self._path / name).unlink(missing_ok=True)

    def _write_json(self, media_type: str, document: Mapping[str, Any]) -> dict[str, Any]:
        data = codec.canonical(document).encode()
        self._write_data(data)
        more = {name: document[name] for name in ("artifactType",) if name in document}
        return oci.descriptor(media_type, data, **more)

    def _write_data(self, data: bytes) -> None:
        path = self._path / BLOBS / sha256(data).hexdigest()
        if not path.exists():
            disk.write_whole(path, data)

    def _write_records(self, records: Iterable[BundleRecord], subject: Mapping[str, Any]) -> dict[str, Any]:
        """Write what is known of the artifacts of an image, and what was signed of them, as its referrer."""
        layers = []
        for record in sorted(records, key=lambda each: each.id):
            parts = [(oci.ARTIFACT_CONFIG, f"{record.id[:12]}.json", codec.encode(record))]
            for at, envelope in enumerate(record.statements):
                parts.append((oci.ENVELOPE, f"{record.id[:12]}.{at}.dsse.json", codec.encode(envelope)))
            layers += [self._write_json(kind, part) | {"annotations": {oci.TITLE: name}} for kind, name, part in parts]
        document = {"schemaVersion": 2, "mediaType": oci.MANIFEST, "artifactType": oci.STATEMENTS, "layers": layers}
        document["config"] = self._write_json(oci.EMPTY_TYPE, {})
        return self._write_json(oci.MANIFEST, document | {"subject": dict(subject)})

    def _write_layer(self, folder: Path, files: Sequence[Path]) -> dict[str, Any]:
        home = self._path / BLOBS
        partial = disk.partial_name(home)
        try:
            with disk.faults(partial), partial.open("xb") as file:
                writer = _HashingWriter(file)
                with tarfile.open(mode="w", fileobj=cast(IO[bytes], writer), format=tarfile.PAX_FORMAT) as tar:
                    for path in _with_folders(folder, files):
                        _add(tar, path, str(PurePosixPath(ROOT, path.relative_to(folder))))
                file.flush()
                os.fsync(file.fileno())
            digest = writer.digest.hexdigest()
            with disk.faults(home):
                partial.chmod(0o644)
                partial.rename(home / digest)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return oci.named(oci.LAYER, digest, writer.size)

    def _reachable(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Yield the names of all blobs to which these descriptors lead, as far as they can be read."""
        layout = FolderLayout(self._path)
        left = [dict(row) for row in rows]
        while left:
            row = left.pop()
            with suppress(MxrError):
                found = oci.read_descriptor(row, "")
                yield found.name
                if found.media_type in (oci.MANIFEST, oci.INDEX):
                    inner = codec.parse(image_layout.read_document(layout, found), found.name)
                    if isinstance(inner, dict):
                        every = (inner.get("manifests"), inner.get("layers"), [inner.get("config")])
                        left += [each for some in every if isinstance(some, list) for each in some if each]


class _HashingWriter:
    """A file for `tarfile`, with the sha256 of what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size, self.digest = file, 0, sha256()

    def write(self, data: Data) -> int:
        self._file.write(data)
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size


def _rows_of(path: Path) -> list[dict[str, Any]]:
    """The descriptors in an index. Raises `DamagedError`."""
    if not path.exists():
        return []
    with disk.faults(path, "read"):
        data = path.read_bytes()
    with image_layout.damage_to(FolderLayout(path.parent)):
        oci.read_index(data)
    rows: list[dict[str, Any]] = json.loads(data)["manifests"]
    return rows


def _tag(row: Mapping[str, Any]) -> str | None:
    annotations = row.get("annotations")
    return annotations.get(TAG) if isinstance(annotations, dict) else None


def _groups(files: Sequence[Path]) -> Iterator[list[Path]]:
    """The files of each layer: the small ones, then large ones one by one, and the rest of them."""
    small = [path for path in files if path.stat().st_size < LARGE]
    large = [path for path in files if path.stat().st_size >= LARGE]
    alone, rest = large[: MAX_LAYERS - 2], large[MAX_LAYERS - 2 :]
    yield from filter(None, (small, *([path] for path in alone), rest))


def _with_folders(folder: Path, files: Sequence[Path]) -> Iterator[Path]:
    """The files with the folders above them, each folder first."""
    seen: set[Path] = set()
    for path in files:
        above = [each for each in reversed(path.parents) if each == folder or folder in each.parents]
        yield from (each for each in above if each not in seen)
        seen |= {*above}
        yield path


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    if path.is_dir():
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(info)
        return
    info.size, info.mode = path.stat().st_size, 0o644
    with path.open("rb", buffering=CHUNK) as file:
        tar.addfile(info, file)


def _all(values: Iterable[str | None]) -> str:
    return ",".join(sorted({value for value in values if value}))


def _wave_size(arch: str) -> int:
    """The lanes of a wavefront. Source: LLVM, AMDGPUUsage, "Processors" (wavefrontsize64)."""
    return 64 if re.match(r"gfx9", arch) else 32


def referrer_tag(digest: str) -> str:
    """Return the tag of what lies beside the image with this digest, for registries that list no referrers."""
    return f"{digest.replace(':', '-')}.mxr"


def archs_of(keys: Iterable[Key]) -> list[str | None]:
    """The GPUs for which there are keys, each of which gets an image; None alone if no key needs one."""
    found = sorted({key.arch for key in keys if key.arch})
    return [*found] or [None]
