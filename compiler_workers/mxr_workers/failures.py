"""Classify a failed compile: retry elsewhere, never retry, suspect the model, or check the GPU first.

    permanent   MIGraphX rejects this model with these options, on every attempt
    transient   caused by the host, by timing, or unknown: another worker may succeed
    poison      the process crashed; if it happens again, the job is quarantined
    hang        the compile or the GPU did not finish: probe the device before any other job

A failure is permanent only if it is recognized as such. The signals and texts are taken from public reports:
ROCm/AMDMIGraphX issues 2243, 2983, 4164, 4319, immich-app/immich 28330 and 29560, ROCm/legacy-rocm-build 6512.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Literal

from mxr.known_failures.explainer import Explanation, find_failures
from mxr_workers.sandbox import ChildResult

Kind = Literal["permanent", "transient", "poison", "hang"]

HOST_FAULTS = frozenset(
    {"dynamic-loading", "no-device", "no-target", "no-target-library", "library-without-arch", "wrong-context"}
    | {"hip-no-device", "kfd-permission", "no-migraphx", "save-failed", "wrong-format-argument", "device-kernel"}
    | {"module-wrong-arch", "module-load", "hip-no-binary", "hip-isa", "hip-bundle", "hip-failure"}
)
"""Known failures (`mxr explain`) that this host causes, not the model: another worker may succeed."""

_THROWN = re.compile(r"[\w./+-]{1,300}\.[ch]pp:\d+: \w+: ")
"""The beginning of MIGraphX's exception texts. Source: ROCm/AMDMIGraphX, errors.hpp, make_exception."""

_DECISIVE_LEVELS = ("cause", "symptom")
_MAX_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class CompileFailure:
    """`kind` decides what happens to the job, `name` is a short code for statistics, `message` one line for people."""

    kind: Kind
    name: str
    message: str


def classify(ending: ChildResult, log: bytes, *, stage: str = "compile", memory: int | None = None) -> CompileFailure:
    """Classify how a child failed. `log` is its output, `memory` its limit in bytes.

    `stage` is `compile` or `verify`: MIGraphX rejecting a model can be permanent, rejecting its own program cannot.
    """
    return (
        _stopped(ending, memory)
        or _hang(ending, log)
        or (_reported(ending, stage) if ending.failed is not None else None)
        or _unreported(ending, log, stage)
    )


def _stopped(ending: ChildResult, memory: int | None) -> CompileFailure | None:
    """A child that the worker or its supervisor ended."""
    if ending.stuck:
        return CompileFailure("hang", "unkillable", "A process cannot be killed: it is blocked in the GPU driver.")
    if ending.why == "deadline":
        message = f"Timed out after {ending.seconds:.0f} s (last phase: {ending.phase})."
        return CompileFailure("hang", "deadline", message)
    if ending.why == "memory":
        limit = f" of {memory / 2**30:.1f} GiB" if memory else ""
        return CompileFailure("transient", "memory", f"Exceeded the memory limit{limit} (phase: {ending.phase}).")
    if ending.why == "processes":
        return CompileFailure("poison", "processes", f"Started too many processes (phase: {ending.phase}).")
    if ending.why == "disk":
        message = f"Exceeded its space on the disk (worker.disk), or made too many files (phase: {ending.phase})."
        return CompileFailure("transient", "disk", message)
    if ending.why == "full":
        return CompileFailure("transient", "worker", f"The disk of the worker is full (phase: {ending.phase}).")
    if ending.why == "stopped":
        return CompileFailure("transient", "stopped", "Stopped by the worker.")
    if ending.why == "lost":
        # Nobody but the child, or who kills at random, ends its guardian.
        return CompileFailure("poison", "lost", "The supervisor process was killed.")
    return None


def _hang(ending: ChildResult, log: bytes) -> CompileFailure | None:
    """A GPU hang. It ends processes in many ways, so that its texts take precedence over how the child ended."""
    texts = (str((ending.failed or {}).get("message", "")).encode(), log)
    hits = [hit for text in texts for hit in find_failures(text) if hit.failure.kind == "hang"]
    return CompileFailure("hang", hits[0].failure.name, _line(hits[0].text)) if hits else None


def _reported(ending: ChildResult, stage: str) -> CompileFailure:
    """A failure that the child reported itself."""
    failed = ending.failed or {}
    message, kind = str(failed.get("message") or ""), failed.get("kind")
    if kind in ("permanent", "transient", "poison", "hang"):
        return CompileFailure(kind, str(failed.get("name") or "refused"), _line(message))
    if failed.get("type") == "MemoryError":
        return CompileFailure("transient", "host-memory", "The host ran out of memory: " + _line(message))
    return _recognized(message, stage) or CompileFailure(
        "transient", "unknown", f"{failed.get('type')} in phase {ending.phase}: {_line(message)}"
    )


def _recognized(text: str, stage: str) -> CompileFailure | None:
    """Classify a text of MIGraphX by the table of `mxr explain`, or else by the form of its exceptions."""
    hits = [
        hit for hit in find_failures(text) if hit.failure.level in _DECISIVE_LEVELS and hit.failure.kind != "warning"
    ]
    for hit in hits:
        return CompileFailure(_kind_of(hit, stage), hit.failure.name, _line(text))
    if _THROWN.search(text):
        return CompileFailure("permanent" if stage == "compile" else "transient", "refused", _line(text))
    return None


def _kind_of(hit: Explanation, stage: str) -> Kind:
    kind, name = hit.failure.kind, hit.failure.name
    if kind == "hang":
        return "hang"
    if kind == "transient" or name in HOST_FAULTS:
        return "transient"
    return "permanent" if stage == "compile" or kind == "permanent" else "transient"


def _unreported(ending: ChildResult, log: bytes, stage: str) -> CompileFailure:
    """A child that ended without a report: by a signal, or with an exit code that is not Python's."""
    if ending.signal == signal.SIGKILL:
        if ending.oom_kills > 0:
            message = "Killed by the kernel: the host or its container ran out of memory."
            return CompileFailure("transient", "oom-killed", message)
        return CompileFailure("transient", "killed", "Killed by another process (SIGKILL).")
    if ending.signal in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        message = f"Terminated by another process ({_signal_name(ending.signal)})."
        return CompileFailure("transient", "killed", message)
    if ending.signal == signal.SIGABRT:
        return _aborted(ending, log, stage)
    if ending.signal is not None:
        message = f"Crashed ({_signal_name(ending.signal)}) in phase {ending.phase}."
        return CompileFailure("poison", "crashed", message)
    if ending.code == 0:
        return CompileFailure("transient", "no-result", "Exited with code 0, but reported no result.")
    message = f"Exited with code {ending.code} in phase {ending.phase}: {_last_line(log)}"
    return CompileFailure("transient", "unknown", message)


def _aborted(ending: ChildResult, log: bytes, stage: str) -> CompileFailure:
    """An uncaught C++ exception, or heap corruption that glibc detected."""
    text = log[-(1 << 16) :].decode("utf-8", "replace")
    thrown = [line for line in text.splitlines() if "what():" in line or "terminate called" in line]
    # An exception in a thread of a pool has no handler, and the abort prints the exception's text.
    found = _recognized("\n".join(thrown), stage) if thrown else None
    if found is not None:
        return CompileFailure(found.kind, found.name, _line(thrown[-1]))
    message = f"Aborted (SIGABRT) in phase {ending.phase}: {_line(thrown[-1] if thrown else _last_line(log))}"
    return CompileFailure("poison", "aborted", message)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(log: bytes) -> str:
    lines = log[-(1 << 14) :].decode("utf-8", "replace").strip().splitlines()
    return _line(lines[-1]) if lines else "no output"


def _line(text: str) -> str:
    """One line of limited length, without control characters, which could manipulate a terminal."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(printable.split())[:_MAX_MESSAGE]
