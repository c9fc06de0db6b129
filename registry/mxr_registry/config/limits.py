"""Limits on connections, requests and inspections, read once in `main` from the registry's configuration file.

    [limits]
    header_seconds = 20             # every field of `RequestLimits`
    connections = 4096

Limits of the documents in a request are in `mxr.artifact.limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mxr.util.codec import decode, refuse

from .job_rules import read_config


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one registry process, in bytes, seconds and counts.

    `body` limits a JSON body, `blob` an uploaded blob. `body_memory` limits what all larger JSON bodies take in memory,
    `reply_memory` all large JSON replies that wait for their clients, `download_memory` the chunks of all downloads.
    `connections` is the maximum number of open connections. A connection is closed if the header of a request does not
    arrive within `header_seconds`, or if no data moves for `idle_seconds` while a body or a response is incomplete.

    At most `inspections` requests that read whole programs or models run at once; up to `inspections_waiting` wait.
    `inspect_memory` (bytes), `inspect_cpu` and `inspect_wall` (seconds) limit the child process that reads a published
    program.
    """

    body: int = 8 * 2**20
    blob: int = 5 * 2**30
    body_memory: int = 256 * 2**20
    reply_memory: int = 128 * 2**20
    download_memory: int = 64 * 2**20
    connections: int = 4096
    header_seconds: float = 20.0
    idle_seconds: float = 60.0
    inspections: int = 4
    inspections_waiting: int = 64
    inspect_memory: int = 2**30
    inspect_cpu: int = 60
    inspect_wall: float = 120.0

    def __post_init__(self) -> None:
        for name in (
            "body",
            "blob",
            "body_memory",
            "reply_memory",
            "download_memory",
            "connections",
            "inspections",
            "inspect_memory",
        ):
            if getattr(self, name) < 1:
                raise refuse(f"limits.{name}", "an integer of 1 or more", getattr(self, name))
        for name in ("inspections_waiting", "inspect_cpu"):
            if getattr(self, name) < 0:
                raise refuse(f"limits.{name}", "an integer of 0 or more", getattr(self, name))
        for name in ("header_seconds", "idle_seconds", "inspect_wall"):
            if not 0 < getattr(self, name) <= 86400:
                raise refuse(f"limits.{name}", "seconds, more than 0 and at most 86400", getattr(self, name))

    @classmethod
    def read(cls, environ: Mapping[str, str], file: Path | None = None) -> RequestLimits:
        """Read the limits from `file`, or from the file that MXR_REGISTRY_CONFIG names, or use the defaults.

        Raises `UsageError`.
        """
        return decode(cls, dict(read_config(environ, file).limits), "limits")
