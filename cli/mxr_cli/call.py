"""A call of `mxr fetch`: what it asks for, the way of one program, and what is said of it when it is placed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.errors import MxrError, NoSuchArtifact
from mxr.request.builder import BuiltRequest, Options
from mxr.util.frozen import dataclass

from .options import Session
from .ort import SAID
from .output import note, watch

if TYPE_CHECKING:
    from mxr.install.placement import OutputRequest, Placement
    from mxr.request.model import ModelReference
    from mxr.workflows.fetch import Connect, Fetched

    from .compiling import OnMiss


@dataclass(frozen=True, slots=True)
class FetchCall:
    """What a call of `mxr fetch` asks for."""

    options: Options
    batches: tuple[int, ...]
    model: str | None
    output: str | None
    on_miss: str
    locked: str | None
    flags: Mapping[str, Any]

    @property
    def compiles(self) -> bool:
        """Whether a miss is to be compiled."""
        return self.on_miss not in ("fail", "continue")

    def wish(self, asked: BuiltRequest, subject: ModelReference) -> OutputRequest | None:
        """Where the program is to be put, checked before anything moves; None without `-o`. Raises `Usage`."""
        if self.output is None:
            return None
        from mxr.install import placement

        flags = self.flags
        said = {name: str(flags[name]) for name in SAID if flags[name]}
        wish = placement.OutputRequest(self.output, flags["link"], flags["force"], flags["name"], said)
        placement.check(asked, subject, wish, offline=self.flags["offline"])
        return wish


def fetch_one(session: Session, call: FetchCall) -> dict[str, Any]:
    """One program, or what was recorded of ONNX Runtime, put where `-o` says; the document."""
    from mxr.api import prepare
    from mxr.workflows import fetch as fetch_workflow

    assert call.model is not None
    cache = session.cache()
    connect = None if call.flags["offline"] else session.client
    subject, asked = prepare(call.options, call.model, cache, connect, session.host(call.options))
    for line in asked.notes:
        note(f"mxr: {line}")
    wish = call.wish(asked, subject)
    if asked.consumer.name == "ort" and wish is not None:
        from mxr.install.ort_cache import recorded

        set_ = recorded(asked, subject, wish, cache, connect)
        if set_ is None and call.compiles:
            set_ = _recorded_by_worker(session, call, subject, asked, wish)
        if set_ is not None:
            return told(session, asked, wish, *set_)
    try:
        found: Fetched = fetch_workflow.fetch(
            asked.request, cache, connect, refresh=call.flags["refresh"], watch=watch("fetching")
        )
    except NoSuchArtifact as problem:
        from .compiling import advise, compiled

        if call.on_miss == "fail" and connect is not None and subject.path is not None:
            advise(session, problem, _for_worker(asked, subject, wish))
        if not call.compiles:
            raise
        found = compiled(session, _how(call), subject, asked, call.options.calibration)
    return handed_out(session, wish, found, asked, subject, connect)


def _how(call: FetchCall) -> OnMiss:
    from .compiling import OnMiss

    return OnMiss.read(call.on_miss, retry=call.flags["retry"], verbose=call.flags["verbose"])


def _recorded_by_worker(
    session: Session, call: FetchCall, subject: ModelReference, asked: BuiltRequest, wish: OutputRequest
) -> tuple[Fetched, Placement] | None:
    """What a worker's ONNX Runtime writes, where mxr cannot tell its names; None where it can."""
    from mxr.install.ort_cache import place_recorded, to_record

    found = to_record(asked, subject, wish)
    if found is None:
        return None
    from .compiling import compiled

    wanted, file_name, reason = found
    note(f"mxr: no name can be told ({reason}): a worker's ONNX Runtime has to run it")
    fetched = compiled(session, _how(call), subject, wanted, call.options.calibration, file_name)
    return fetched, place_recorded(fetched, session.cache(), asked, subject, wish)


def _for_worker(asked: BuiltRequest, subject: ModelReference, wish: OutputRequest | None) -> BuiltRequest:
    """What a worker would be asked for on a miss, for the hint."""
    if wish is None or asked.consumer.name != "ort":
        return asked
    from mxr.install.ort_cache import to_record

    try:
        found = to_record(asked, subject, wish)
    except MxrError:
        return asked
    return asked if found is None else found[0]


def handed_out(
    session: Session,
    wish: OutputRequest | None,
    found: Fetched,
    asked: BuiltRequest,
    subject: ModelReference,
    connect: Connect | None,
) -> dict[str, Any]:
    """Says what was let pass, puts the program where `-o` says, and gives the document."""
    from mxr.workflows import fetch as fetch_workflow

    if not found.answer.match.exact:
        note(f"mxr: not an exact match: {fetch_workflow.shortfall(asked.request, found.answer)}")
    if wish is None:
        return found.to_json()
    from mxr.install import placement

    return told(session, asked, wish, found, placement.deliver(found, session.cache(), asked, subject, wish, connect))


def told(
    session: Session, asked: BuiltRequest, wish: OutputRequest, found: Fetched, placed: Placement
) -> dict[str, Any]:
    """The document of what was placed; the settings that make the consumer use it are said beside the answer."""
    for line in placed.notes:
        note(f"mxr: {line}")
    # A file that was named needs no settings.
    if placed.settings and not session.as_json and placed.path != Path(wish.output):
        note(f"mxr: {asked.consumer.name} is told by:")
        for line in placed.settings:
            note(f"  {line}")
    return found.to_json() | {
        "path": str(placed.path),
        "consumer": asked.consumer.name,
        "files": [str(path) for path in placed.files],
        "settings": list(placed.settings),
    }
