"""The installer of a consumer: the one interface through which a fetch reaches the consumer's recorded artifacts,
checks, and placement.

`installer_for` chooses by consumer. The standard installer serves every consumer that loads exactly the artifact that
was requested. A consumer for which artifacts are also recorded (the files that the consumer itself wrote) has a
subclass, registered in `_SPECIAL`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from mxr.artifact.key import Key
from mxr.cache.store import Cache
from mxr.consumers.consumer import Consumer
from mxr.consumers.file_change import FileChange
from mxr.request.builder import PreparedRequest
from mxr.request.model import ModelReference
from mxr.util.frozen import dataclass
from mxr.workflows.fetch import Connect, Fetched

from . import placement
from .placement import Destination, Placement


@dataclass(frozen=True, slots=True)
class RecordingRequest:
    """What to request from a worker that runs the consumer and records the files it writes.

    `file_name` is the name under which the worker opens the model, None for a session from bytes. `reason` is one
    sentence for people: why a recording is necessary.
    """

    request: PreparedRequest
    file_name: str | None
    reason: str


class Installer:
    """The standard installer: no recorded artifacts, placement by the consumer's layout or as one plain file."""

    record_folder: str | None = None
    """The name of the folder beside the programs in which the installer keeps records of its own."""

    def check(self, prepared: PreparedRequest, output: Destination, *, offline: bool = False) -> None:
        """Check that the output can be written, before anything is downloaded. Raises `UsageError`."""
        placement.check_output(prepared, output, offline=offline)

    def find_recorded(
        self,
        prepared: PreparedRequest,
        output: Destination,
        cache: Cache,
        connect: Connect | None,
    ) -> Fetched | None:
        """The recorded artifact for this request, in the cache; None if there is none."""
        del prepared, output, cache, connect
        return None

    def recording_request(self, prepared: PreparedRequest, output: Destination) -> RecordingRequest | None:
        """What a worker has to record; None if the requested artifact itself can be placed, or none can be recorded.

        Raises `UsageError` for a model or a request that workers cannot record.
        """
        del prepared, output
        return None

    def lockable(self, prepared: PreparedRequest, options: Mapping[str, str], connect: Connect) -> PreparedRequest:
        """The request to lock: that for recorded artifacts if the registry has them and they are needed, or `prepared`.

        `options`: the consumer options by name. Raises `NoSuchArtifactError` for what nobody has recorded yet.
        """
        del options, connect
        return prepared

    def locked_form(self, model: ModelReference, name: str | None, options: Mapping[str, str]) -> str | None:
        """The form of the recorded artifacts that a lock can have for this model; None if there are none."""
        del model, name, options
        return None

    def options_in(self, key: Key) -> Mapping[str, str] | None:
        """The consumer options for which an artifact was recorded; None for an artifact that was not recorded."""
        del key
        return None

    def check_unrecorded(self, prepared: PreparedRequest, output: Destination) -> None:
        """Check that the artifact can be placed without a recording, before it is downloaded. Raises `UsageError`."""
        del prepared, output

    def deliver(
        self,
        fetched: Fetched,
        cache: Cache,
        prepared: PreparedRequest,
        output: Destination,
        connect: Connect | None = None,
    ) -> Placement:
        """Place a fetched artifact, recorded or not. Raises `UsageError`, `NotAllowedError`, or a disk fault."""
        return placement.place_artifact(fetched, cache, prepared, output, connect)

    def verify(self, folder: Path) -> tuple[FileChange, ...]:
        """The files in `folder` that differ from the installer's own records. Raises `DamagedError` or a disk fault."""
        del folder
        return ()


_STANDARD = Installer()

_SPECIAL = {"ort": ("ort_cache", "OrtInstaller")}
"""Module in this package and class, by consumer. They are imported on first use, since a fetch pays for each import."""


def installer_for(consumer: Consumer) -> Installer:
    """The installer of this consumer."""
    return _special(consumer.name) if consumer.name in _SPECIAL else _STANDARD


def installers_with_records() -> Iterator[Installer]:
    """The installers that keep records of their own beside the programs."""
    for name in _SPECIAL:
        installer = _special(name)
        if installer.record_folder is not None:
            yield installer


def _special(name: str) -> Installer:
    module, type_name = _SPECIAL[name]
    found: Installer = getattr(import_module(f"{__package__}.{module}"), type_name)()
    return found
