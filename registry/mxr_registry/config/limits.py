"""Limits on connections, requests and inspections. Those of the documents in a request are in `mxr.artifact.limits`."""

from __future__ import annotations

from dataclasses import dataclass

from mxr.configuration.schema import BYTES, SECONDS, setting


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one registry process, so that one client cannot take all of it."""

    connections: int = setting(
        4096,
        "Open connections. Beyond it, the connection closes whose client has been silent longest during a request. "
        "`serve` raises its limit of open files to the hard limit, and needs two files for each connection.",
        least=1,
        most=10**6,
    )
    header_seconds: float = setting(
        20.0, "Time for the header of a request; a TLS handshake has half of it.", unit=SECONDS, least=0.05, most=86_400
    )
    idle_seconds: float = setting(
        60.0,
        "Pause in a body or in taking a response after which the connection is closed; nothing is kept of such an "
        "upload.",
        unit=SECONDS,
        least=0.05,
        most=86_400,
    )
    body: int = setting(8 * 2**20, "One JSON body.", unit=BYTES, least=1)
    body_memory: int = setting(
        256 * 2**20,
        "Memory that all JSON bodies above 64 KiB or 2,000 values take at one time (5 for each byte, 256 for each "
        "value); beyond it 503. Smaller bodies are always taken.",
        unit=BYTES,
        least=1,
    )
    reply_memory: int = setting(
        128 * 2**20,
        "All JSON replies above 64 KiB that wait for their clients; beyond it 503.",
        unit=BYTES,
        least=1,
    )
    download_memory: int = setting(
        64 * 2**20,
        "The chunks of all downloads. The more downloads wait for their clients, the smaller their chunks, down to "
        "32 KiB each.",
        unit=BYTES,
        least=1,
    )
    upload_seconds: float = setting(
        600.0,
        "Time for the upload of a blob, in addition to a second for each MiB; beyond it nothing is kept of it.",
        unit=SECONDS,
        least=0.05,
        most=86_400,
    )
    reserve: int = setting(
        64 << 20,
        "Bytes of a local disk that are kept free, for removals, sweeps and revoked tokens when all else is full; 0: "
        "none.",
        unit=BYTES,
        least=0,
    )
    blob: int = setting(5 * 2**30, "One blob; S3 takes no more in one PUT.", unit=BYTES, least=1)
    inspections: int = setting(
        4,
        "Publications, finished jobs and registrations of models that are checked at one time. They have their own "
        "threads, so that other requests are answered meanwhile.",
        least=1,
        most=1000,
    )
    inspections_waiting: int = setting(64, "Further ones that wait; beyond it 503.", least=0, most=10**6)
    inspect_memory: int = setting(2**30, "Memory of the process that reads a published program.", unit=BYTES, least=1)
    inspect_cpu: int = setting(60, "CPU time of this process.", unit=SECONDS, least=0, most=86_400)
    inspect_wall: float = setting(120.0, "Time until this process is ended.", unit=SECONDS, least=0.05, most=86_400)
