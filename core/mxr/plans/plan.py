"""A plan: the programs that one call wants. All of them are fetched, or none.

Nothing is downloaded before every program exists. Bytes that several of them share are downloaded once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mxr.cache.store import Cache
from mxr.configuration.schema import SECONDS, Facts, Setting
from mxr.errors import MxrError, NoSuchArtifactError, NoSuchBlobError, UsageError
from mxr.request.builder import PreparedRequest
from mxr.util.frozen import dataclass
from mxr.workflows.fetch import (
    Connect,
    Fetched,
    FoundProgram,
    download_prepared,
    fetch_compiled,
    lookup_prepared,
)

if TYPE_CHECKING:
    from mxr.install.installer import RecordingRequest
    from mxr.install.placement import Destination

    from .lockfile import LockEntry
    from .pins import PinnedProgram


ACTIONS = ("fail", "ask", "wait", "local", "continue")
LIMIT = Setting("", "limit", float, None, Facts("", unit=SECONDS, least=0))


@dataclass(frozen=True, slots=True)
class OnMiss:
    """What to do on a miss.

    `action` is one of `ACTIONS`. `timeout` limits `wait`, in seconds; None waits without a limit. `retry` compiles
    again despite a cached failure. `verbose` shows the log of the compile.
    """

    action: str = "fail"
    timeout: float | None = None
    retry: bool = False
    verbose: bool = False

    @property
    def compiles(self) -> bool:
        """Whether a miss leads to a compile."""
        return self.action in ("ask", "wait", "local")

    @property
    def waits(self) -> bool:
        """Whether a worker of the registry compiles it, which is waited for."""
        return self.action == "wait"

    def deadline(self) -> float | None:
        """Return when a wait that begins now ends, by `time.monotonic()`; None: it has no limit."""
        return None if self.timeout is None else time.monotonic() + self.timeout

    @classmethod
    def parse(
        cls, text: str, actions: Sequence[str] = ACTIONS, *, retry: bool = False, verbose: bool = False
    ) -> OnMiss:
        """Parse an action, or `wait` with a time limit such as `wait=10m`. Raises `UsageError`."""
        action, equals, limit = text.partition("=")
        try:
            if action not in actions or (equals and action != "wait"):
                raise ValueError
            return cls(action, LIMIT.of_text(limit) if equals else None, retry, verbose)
        except ValueError:
            known = ", ".join("wait[=10m]" if action == "wait" else action for action in actions)
            raise UsageError(f"Invalid value for --on-miss: {text[:40]!r}.", hint=f"Use one of: {known}.") from None


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """One program of a plan. `output`: where it goes, by the installer of its consumer. `batch`: its batch size, where
    it is one of several. `pinned`: the entries of a lock that name it; without any, the registry resolves the request.
    """

    prepared: PreparedRequest
    output: Destination | None = None
    batch: int | None = None
    pinned: Sequence[LockEntry] = ()


@dataclass(frozen=True, slots=True)
class NeededProgram:
    """A program to compile; with `recording`, the files that its consumer writes on a worker."""

    planned: PlannedProgram
    recording: RecordingRequest | None = None

    @property
    def prepared(self) -> PreparedRequest:
        """The request of the job."""
        return self.planned.prepared if self.recording is None else self.recording.request


MAX_LOST = 4
"""Artifacts in a row that a registry may have lost before a fetch gives up."""

Compile = Callable[[Sequence[NeededProgram]], Sequence[str]]
"""Compiles programs, and returns the id of the artifact of each."""


def fetch_plan(
    plan: Sequence[PlannedProgram],
    cache: Cache,
    connect: Connect | None,
    *,
    refresh: bool = False,
    compile: Compile | None = None,
) -> list[Fetched]:
    """Fetch the programs into the cache, in order: what a lock names, or else for an output the recorded artifact of
    its consumer, if any.

    `compile` makes what the registry lacks; without it, a miss is an error. What the registry turns out to have lost is
    requested again: another artifact may serve. Raises `UsageError` for an output that
    cannot be written, before anything is downloaded; `NoSuchArtifactError`, which lists all that are missing; and what
    `fetch.lookup_prepared` and `pins.lookup_pinned` raise.
    """
    for _ in range(MAX_LOST):
        try:
            return _fetch_once(plan, cache, connect, refresh, compile)
        except NoSuchBlobError as problem:
            # What was downloaded before is in the cache.
            if not problem.context.get("lost"):
                raise
    return _fetch_once(plan, cache, connect, refresh, compile)


def _fetch_once(
    plan: Sequence[PlannedProgram], cache: Cache, connect: Connect | None, refresh: bool, compile: Compile | None
) -> list[Fetched]:
    fetched: dict[int, Fetched] = {}
    found: dict[int, FoundProgram] = {}
    pinned: dict[int, PinnedProgram] = {}
    needed: dict[int, NeededProgram] = {}
    missing: dict[int, NoSuchArtifactError] = {}
    for at, each in enumerate(plan):
        if each.pinned:
            pinned[at] = _pinned(each, cache, connect)
            continue
        recorded, recording = _recorded(each, cache, connect, compiles=compile is not None)
        if recorded is not None:
            fetched[at] = recorded
        elif recording is not None:
            needed[at] = NeededProgram(each, recording)
        else:
            try:
                found[at] = lookup_prepared(each.prepared, cache, connect, refresh=refresh)
            except NoSuchArtifactError as miss:
                missing[at], needed[at] = miss, NeededProgram(each)
    if missing and (compile is None or connect is None):
        raise _missing_error({plan[at].batch: miss for at, miss in missing.items()}, len(plan))
    compiled = compile(list(needed.values())) if needed and compile else ()
    for at, locked in pinned.items():
        from .pins import download_pinned

        fetched[at] = download_pinned(locked, cache, connect)
    for at, program in found.items():
        fetched[at] = download_prepared(plan[at].prepared, program, cache)
    for (at, each_needed), identity in zip(needed.items(), compiled, strict=True):
        assert connect is not None
        fetched[at] = fetch_compiled(identity, each_needed.prepared.request, cache, connect())
    return [fetched[at] for at in range(len(plan))]


def _pinned(planned: PlannedProgram, cache: Cache, connect: Connect | None) -> PinnedProgram:
    from .pins import lookup_pinned

    if planned.output is not None:
        from mxr.install.installer import installer_for

        installer_for(planned.prepared.consumer).check(planned.prepared, planned.output, offline=connect is None)
    return lookup_pinned(planned.prepared.request, planned.pinned, cache, connect)


def _recorded(
    planned: PlannedProgram, cache: Cache, connect: Connect | None, *, compiles: bool
) -> tuple[Fetched | None, RecordingRequest | None]:
    """Return the recorded artifact for an output, or what a worker has to record for it."""
    prepared, output = planned.prepared, planned.output
    if output is None:
        return None, None
    from mxr.install.installer import installer_for

    installer = installer_for(prepared.consumer)
    installer.check(prepared, output, offline=connect is None)
    if recorded := installer.find_recorded(prepared, output, cache, connect):
        return recorded, None
    if compiles and (recording := installer.recording_request(prepared, output)):
        return None, recording
    installer.check_unrecorded(prepared, output)
    return None, None


def _missing_error(missing: Mapping[int | None, NoSuchArtifactError], of: int) -> NoSuchArtifactError:
    first = next(iter(missing.values()))
    if of == 1:
        return first
    rows = [{"batch": batch, "message": each.message, **each.context} for batch, each in missing.items()]
    return NoSuchArtifactError(
        f"{len(missing)} of the {of} variants are missing (batch {', '.join(map(str, missing))}), so none is "
        f"delivered. {first.message}",
        hint="Compile the missing variants with --on-miss wait, or request only the available ones.",
        context={"missing": rows, "nearest": first.context.get("nearest", [])},
    )


def decisive_error(problems: Sequence[MxrError]) -> MxrError:
    """Return the failure that determines the exit code: 5 before 8 before 75 before 4, then the first of the others."""
    order = {exit: at for at, exit in enumerate((5, 8, 75, 4))}
    return min(problems, key=lambda each: order.get(each.exit, len(order)))
