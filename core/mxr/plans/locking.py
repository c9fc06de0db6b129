"""Lock requests: the entries for a lock file, or one error that lists everything that is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.key import key_words
from mxr.display.text import counted
from mxr.errors import NoSuchArtifactError
from mxr.install.installer import installer_for
from mxr.request.builder import PreparedRequest

from .lockfile import LockEntry
from .pins import pin_request

if TYPE_CHECKING:
    from mxr.client.registry import Client

NamedRequest = tuple[str, PreparedRequest]
"""A model as its user names it, and the request for it."""


def lock_requests(
    requests: Iterable[NamedRequest], folder: Path, connect: Callable[[], Client], ort: Mapping[str, str]
) -> list[LockEntry]:
    """Return an entry for each request; `folder` is that of the lock, `ort` describes an ONNX Runtime.

    Raises `NoSuchArtifactError` with all requests that have no artifact.
    """
    client = connect()
    entries: list[LockEntry] = []
    missing: list[tuple[NamedRequest, NoSuchArtifactError]] = []
    for name, wanted in requests:
        try:
            prepared = installer_for(wanted.consumer).lockable(wanted, ort, connect)
            entries.append(pin_request(prepared, client, folder))
        except NoSuchArtifactError as error:
            missing.append(((name, wanted), error))
    if missing:
        raise _incomplete(missing, len(entries))
    return entries


def _incomplete(missing: list[tuple[NamedRequest, NoSuchArtifactError]], found: int) -> NoSuchArtifactError:
    keys = [(name, prepared.request.key, error) for (name, prepared), error in missing]
    shown = "; ".join(f"{name} ({', '.join(key_words(key))})" for name, key, _ in keys[:5])
    rows = [{"model": name, "digest": key.digest, "key": key.to_json(), **error.context} for name, key, error in keys]
    more = f"; and {len(missing) - 5} more" if len(missing) > 5 else ""
    unrecorded = next((error for _, error in missing if "unrecorded" in error.context), None)
    return NoSuchArtifactError(
        f"No program for {len(missing)} of {counted(len(missing) + found, 'request')}; no lock was written. Missing: "
        f"{shown}{more}.{f' {unrecorded.message}' if unrecorded else ''}",
        hint=unrecorded.hint
        if unrecorded
        else "Compile them first: `mxr precompile MATRIX.yaml`, or `mxr fetch MODEL --on-miss wait`.",
        context={"missing": rows, "nearest": rows[0].get("nearest", []) if len(rows) == 1 else []},
    )
