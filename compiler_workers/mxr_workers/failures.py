"""What a failed compile means for its job: try again elsewhere, never again, beware, or look at the GPU first.

    permanent        MIGraphX refuses this model with these options, and will again
    transient        the host, the hour or something unknown: another worker may do it
    poison-suspect   it took the process down with it; once more, then it is quarantined
    hang             it did not come to an end, or the GPU did: probe the device before anything else

Only what is recognised is permanent. Signals and texts are those of public reports: ROCm/AMDMIGraphX issues 2243,
2983, 4164, 4319, immich-app/immich 28330 and 29560, ROCm/legacy-rocm-build 6512.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Literal

from mxr.known_failures.explainer import Explanation, explain
from mxr_workers.sandbox import ChildResult

Kind = Literal["permanent", "transient", "poison-suspect", "hang"]

UNFIT = frozenset(
    {"dynamic-loading", "no-device", "no-target", "no-target-library", "library-without-arch", "wrong-context"}
    | {"hip-no-device", "kfd-permission", "no-migraphx", "save-failed", "wrong-format-argument", "device-kernel"}
    | {"module-wrong-arch", "module-load", "hip-no-binary", "hip-isa", "hip-bundle", "hip-failure"}
)
"""What `mxr explain` knows and is the fault of this worker, not of the model: another one may do it."""

_THROWN = re.compile(r"[\w./+-]+\.[ch]pp:\d+: \w+: ")
"""How MIGraphX begins the text of its own exceptions. Source: ROCm/AMDMIGraphX, errors.hpp, make_exception."""

_LOUD = ("cause", "symptom")
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class CompileFailure:
    """`kind` tells the registry what to do, `name` is a word for statistics, `message` one line for a person."""

    kind: Kind
    name: str
    message: str


def classify(ending: ChildResult, log: bytes, *, stage: str = "compile", memory: int | None = None) -> CompileFailure:
    """What the ending of a child that failed means. `log` is what it printed, `memory` the limit in bytes.

    `stage` is `compile` or `verify`: MIGraphX refusing a model may be permanent, refusing its own program is not.
    """
    return (
        _stopped(ending, memory)
        or _hang(ending, log)
        or (_told(ending, stage) if ending.failed is not None else None)
        or _died(ending, log, stage)
    )


def _stopped(ending: ChildResult, memory: int | None) -> CompileFailure | None:
    """What the worker itself, or its guardian, put an end to."""
    if ending.stuck:
        return CompileFailure(
            "hang", "unkillable", "A process of the compile cannot be killed: the GPU's driver holds it."
        )
    if ending.why == "deadline":
        words = f"It had not come to an end after {ending.seconds:.0f} s (last phase: {ending.phase})."
        return CompileFailure("hang", "deadline", words)
    if ending.why == "memory":
        most = f" of {memory / 2**30:.1f} GiB" if memory else ""
        return CompileFailure(
            "transient", "memory", f"It used more memory than the limit{most} (phase: {ending.phase})."
        )
    if ending.why == "stopped":
        return CompileFailure("transient", "stopped", "The worker stopped it.")
    if ending.why == "lost":
        return CompileFailure("transient", "lost", "The process that guards the compile was killed.")
    return None


def _hang(ending: ChildResult, log: bytes) -> CompileFailure | None:
    """A GPU that hangs takes processes down in many ways, so that its own words go before how the child ended."""
    texts = (str((ending.failed or {}).get("message", "")).encode(), log)
    hits = [hit for text in texts for hit in explain(text) if hit.failure.kind == "hang"]
    return CompileFailure("hang", hits[0].failure.name, _line(hits[0].text)) if hits else None


def _told(ending: ChildResult, stage: str) -> CompileFailure:
    """A child that could still say what happened."""
    failed = ending.failed or {}
    message, kind = str(failed.get("message") or ""), failed.get("kind")
    if kind in ("permanent", "transient", "poison-suspect", "hang"):
        return CompileFailure(kind, str(failed.get("name") or "refused"), _line(message))
    if failed.get("type") == "MemoryError":
        return CompileFailure("transient", "host-memory", "The host has no memory left: " + _line(message))
    return _recognised(message, stage) or CompileFailure(
        "transient", "unknown", f"{failed.get('type')} in phase {ending.phase}: {_line(message)}"
    )


def _recognised(text: str, stage: str) -> CompileFailure | None:
    """A text of MIGraphX, by the table of `mxr explain`, else by the form of its exceptions."""
    hits = [hit for hit in explain(text) if hit.failure.level in _LOUD and hit.failure.kind != "warning"]
    for hit in hits:
        return CompileFailure(_kind_of(hit, stage), hit.failure.name, _line(text))
    if _THROWN.search(text):
        return CompileFailure("permanent" if stage == "compile" else "transient", "refused", _line(text))
    return None


def _kind_of(hit: Explanation, stage: str) -> Kind:
    kind, name = hit.failure.kind, hit.failure.name
    if kind == "hang":
        return "hang"
    if kind == "transient" or name in UNFIT:
        return "transient"
    return "permanent" if stage == "compile" or kind == "permanent" else "transient"


def _died(ending: ChildResult, log: bytes, stage: str) -> CompileFailure:
    """A child that died without a word: by a signal, or of an exit that is not Python's."""
    if ending.signal == signal.SIGKILL:
        if ending.oom_kills > 0:
            return CompileFailure(
                "transient", "oom-killed", "The kernel killed it: the host, or the container, has no memory."
            )
        return CompileFailure("transient", "killed", "Someone killed it (SIGKILL).")
    if ending.signal in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return CompileFailure("transient", "killed", f"Someone ended it ({_name(ending.signal)}).")
    if ending.signal == signal.SIGABRT:
        return _aborted(ending, log, stage)
    if ending.signal is not None:
        words = f"It crashed ({_name(ending.signal)}) in phase {ending.phase}."
        return CompileFailure("poison-suspect", "crashed", words)
    if ending.code == 0:
        return CompileFailure("transient", "no-result", "It ended well and left no result.")
    return CompileFailure(
        "transient", "unknown", f"It ended with {ending.code} in phase {ending.phase}: {_last_line(log)}"
    )


def _aborted(ending: ChildResult, log: bytes, stage: str) -> CompileFailure:
    """An exception that nobody caught, in C++; or a heap that glibc found broken."""
    text = log[-(1 << 16) :].decode("utf-8", "replace")
    thrown = [line for line in text.splitlines() if "what():" in line or "terminate called" in line]
    # A pool thread's exception has no handler: the words of the abort are those of the exception.
    found = _recognised("\n".join(thrown), stage) if thrown else None
    if found is not None:
        return CompileFailure(found.kind, found.name, _line(thrown[-1]))
    words = f"It aborted (SIGABRT) in phase {ending.phase}: {_line(thrown[-1] if thrown else _last_line(log))}"
    return CompileFailure("poison-suspect", "aborted", words)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(log: bytes) -> str:
    lines = log[-(1 << 14) :].decode("utf-8", "replace").strip().splitlines()
    return _line(lines[-1]) if lines else "it printed nothing"


def _line(text: str) -> str:
    """One line that cannot steer a terminal."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(shown.split())[:_LONGEST]
