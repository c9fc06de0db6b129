"""Verifies a folder after a run: ONNX Runtime compiles silently if it finds no file with the name it requests.

The result lists every program that the provider added or rewrote. For an added program it has the fields in which its
name differs from the nearest placed program, and the likely reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mxr.consumers.file_change import FileChange
from mxr.errors import DamagedError, UsageError
from mxr.util import disk
from mxr.util.codec import parse
from mxr.util.hashing import sha256_file

from .hashes import FIELDS, hashed
from .layout import RECORDS

MAX_RECORD_BYTES = 1 << 20
ARCHS = (
    *(f"{base}:sramecc{ecc}:xnack{nack}" for base in ("gfx90a", "gfx942", "gfx950") for ecc in "+-" for nack in "+-"),
    *(f"{base}:sramecc{ecc}:xnack{nack}" for base in ("gfx906", "gfx908") for ecc in "+-" for nack in "+-"),
    *("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1031", "gfx1032", "gfx1100", "gfx1101"),
    *("gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201"),
)


def verify_ort_folders(folder: Path) -> tuple[FileChange, ...]:
    """The changes in the folders for ONNX Runtime in `folder`, or in `folder` itself. Empty: the provider loaded the
    placed programs, or did not run.

    Raises `UsageError` if nothing was placed for ONNX Runtime, `DamagedError` for an unreadable record.
    """
    with disk.faults(folder, "read"):
        homes = [home for home in (folder, *sorted(folder.iterdir())) if (home / RECORDS).is_dir()]
        if not homes:
            raise UsageError(
                f"{folder} contains nothing that mxr placed for ONNX Runtime.", hint="Give the folder of -o."
            )
        return tuple(finding for home in homes for finding in _findings(home))


def _findings(home: Path) -> Iterator[FileChange]:
    records = [_read(path) for path in sorted((home / RECORDS).glob("*.json"))]
    placed = {row["file"]: row for row in records}
    for name, row in placed.items():
        path = home / name
        if not path.exists():
            yield FileChange("missing", path, "The file was removed: fetch again.")
        elif sha256_file(path) != row["sha256"]:
            yield FileChange("rewritten", path, _REWRITTEN)
    for path in sorted(home.glob("*.mxr")):
        if path.name not in placed:
            yield _added(path, records)


_REWRITTEN = (
    "The provider could not load the placed program, so it compiled and overwrote it: its MIGraphX reads another "
    "version of the file format, or the file was damaged. Run `mxr check FILE` on that host."
)


def _read(path: Path) -> Mapping[str, Any]:
    data = path.read_bytes()[:MAX_RECORD_BYTES]
    try:
        found = parse(data, str(path))
    except UsageError:
        found = None
    if not isinstance(found, dict) or not {"file", "sha256", "fields", "meant"} <= found.keys():
        raise DamagedError(f"{path} is not a valid record of mxr.", hint="Fetch into this folder again.")
    return found


def _added(path: Path, records: list[Mapping[str, Any]]) -> FileChange:
    parts = path.name.removesuffix(".mxr").split("-")
    if len(parts) != len(FIELDS) or not records:
        return FileChange("added", path, "Its name has an unknown format: another generation of ONNX Runtime wrote it.")
    found = dict(zip(FIELDS, parts, strict=True))
    nearest = max(records, key=lambda row: sum(row["fields"].get(field) == found[field] for field in FIELDS))
    differing = [field for field in FIELDS if nearest["fields"].get(field) != found[field]]
    why = " ".join(_why(field, found[field], nearest) for field in differing)
    rows = tuple((field, str(nearest["fields"].get(field)), found[field]) for field in differing)
    return FileChange("added", path, why, rows)


def _why(field: str, found: str, nearest: Mapping[str, Any]) -> str:
    meant = nearest["meant"].get(field)
    if field == "version":
        return f"version: the provider was built with MIGraphX {_version(found)}, not {meant}; use --ort-migraphx."
    if field == "arch":
        known = next((arch for arch in ARCHS if f"{hashed(arch.encode()):x}" == found), "another GPU")
        return f"arch: it ran on {known}, but the name is for {meant}."
    if field == "shape":
        other = "a model with open dims" if found == "0" else "inputs of other dims"
        return f"shape: it is for {other}, not for {meant}."
    return (
        f"graph: the graph is not the predicted one ({meant}): it has other dims, was opened under another name or "
        "from bytes, at another optimization level or by another ONNX Runtime, or it was partitioned."
    )


def _version(field: str) -> str:
    try:
        number = int(field, 16)
    except ValueError:
        return "of unknown version"
    return f"{number >> 16}.{number >> 8 & 255}.{number & 255}"
