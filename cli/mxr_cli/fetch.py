"""`mxr fetch`: the right program for a model and a target, from the cache or the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.asking import Asked, Options
from mxr.errors import MxrError, NoSuchArtifact, Usage
from mxr.value import dataclass

from .options import Session, common, matching, request
from .ort import SAID, ort_options
from .words import document, note, say, watch

if TYPE_CHECKING:
    from mxr.fetching import Connect, Fetched
    from mxr.placing import Placed, Wish
    from mxr.subject import Subject

    from .compiling import OnMiss


@click.command(short_help="Get the right program for a model and a target.")
@click.argument("model", metavar="MODEL", required=False)
@click.option(
    "--genai-config",
    metavar="FILE",
    help="Instead of MODEL: every model that this genai_config.json runs by MIGraphX, as it says.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=str), metavar="PATH", help="Put a copy here: a file, or a folder."
)
@click.option("--force", is_flag=True, help="With -o: replace files there that mxr did not place.")
@click.option("--name", metavar="NAME", help="With -o FOLDER: what the model is called there [its file name].")
@click.option("--link", is_flag=True, help="Make -o a hard link into the cache: no copy, and not to be written to.")
@click.option("--offline", is_flag=True, help="Take what the cache has; never ask the registry.")
@click.option("--refresh", is_flag=True, help="Ask the registry even where the cache has an exact answer.")
@click.option(
    "--locked",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Take exactly what the lock names (mxr.lock here); without MODEL all of it.",
)
@click.option(
    "--on-miss",
    default="fail",
    metavar="WAY",
    help="fail: exit 3 (default). ask: queue a compile, exit 4. wait[=TIME]: queue it and wait (wait=90s, 10m, 2h). "
    "local: this host compiles it, for everyone. continue: warn, write nothing, exit 0.",
)
@click.option("--retry", is_flag=True, help="With ask, wait or local: in spite of failures remembered.")
@click.option(
    "--whole-node", is_flag=True, help="Count GPUs of this node that this container was not given (init containers)."
)
@click.option("-v", "--verbose", is_flag=True, help="Show the log of the compile while it runs.")
@ort_options
@request
@matching
@common
def fetch(
    session: Session,
    options: Options,
    batches: tuple[int, ...],
    model: str | None,
    output: str | None,
    locked: str | None,
    on_miss: str,
    **flags: Any,
) -> None:
    """Get the right program for MODEL (an ONNX file, or xxh3:... of one that is known), and print its path.

    What is not said is taken from this host (`mxr host`). The cache answers first, then the registry; what comes is
    checked byte for byte. A program that does not fit is never handed out: a miss says what comes nearest and why.

    \b
    mxr fetch model.onnx                                      on a GPU host: everything from the host
    mxr fetch model.onnx --arch gfx908 --rocm 7.2 --migraphx 2.15 --batch 8 -o model.mxr
    mxr fetch model.onnx --for triton -o /models/             in the layout that Triton looks for (mxr consumers)
    mxr fetch model.onnx --on-miss wait=2h                    compiled by a worker, once for all who wait
    mxr fetch model.onnx --for ort --ort 1.27.1 --on-miss wait -o cache/    names that nobody can tell: a worker's
                                                              ONNX Runtime runs it, and its files are placed
    mxr fetch model.onnx --batch 1,2,4,8,16 -o set/           all of them or none, with a list of them beside
    mxr fetch model.onnx --locked                             exactly what mxr.lock names
    """
    session = replace(session, whole_node=flags["whole_node"])
    _check_way(on_miss)
    for name in ("link", "force", "name"):
        if flags[name] and output is None:
            raise Usage(f"--{name} goes with -o.", hint="Give -o PATH.")
    if flags["offline"] and on_miss not in ("fail", "continue"):
        raise Usage("--offline asks no registry, and so nobody to compile.", hint="Leave one of the two out.")
    if model is None and locked is None and flags["genai_config"] is None:
        raise Usage("No model is given.", hint="Write mxr fetch MODEL, --genai-config FILE, or --locked.")
    if model is not None and flags["genai_config"] is not None:
        raise Usage("MODEL and --genai-config FILE are two ways to say it.", hint="Leave one of them out.")
    call = Call(options, batches, model, output, on_miss, locked, flags)
    try:
        found = fetched(session, call)
    except NoSuchArtifact as problem:
        if on_miss != "continue":
            raise
        _go_on(session, problem)
        return
    if session.as_json:
        document(found)
    else:
        for row in found.get("entries", (found,)):
            say(row["path"])


@dataclass(frozen=True, slots=True)
class Call:
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

    def wish(self, asked: Asked, subject: Subject) -> Wish | None:
        """Where the program is to be put, checked before anything moves; None without `-o`. Raises `Usage`."""
        if self.output is None:
            return None
        from mxr import placing

        flags = self.flags
        said = {name: str(flags[name]) for name in SAID if flags[name]}
        wish = placing.Wish(self.output, flags["link"], flags["force"], flags["name"], said)
        placing.check(asked, subject, wish, offline=self.flags["offline"])
        return wish


def fetched(session: Session, call: Call) -> dict[str, Any]:
    """What a call gets: one program, a set, what a lock or a configuration names; the document."""
    if call.model is None and call.flags["genai_config"] is not None:
        from .genai import fetch_genai

        return fetch_genai(session, call)
    if call.locked is not None:
        from .locked import fetch_locked

        return fetch_locked(session, call)
    if call.batches:
        from .sets import fetch_set

        return fetch_set(session, call)
    return _fetch_one(session, call)


def _fetch_one(session: Session, call: Call) -> dict[str, Any]:
    from mxr import fetching
    from mxr.library import prepare

    assert call.model is not None
    cache = session.cache()
    connect = None if call.flags["offline"] else session.client
    subject, asked = prepare(call.options, call.model, cache, connect, session.host(call.options))
    for line in asked.notes:
        note(f"mxr: {line}")
    wish = call.wish(asked, subject)
    if asked.consumer.name == "ort" and wish is not None:
        from mxr.ort_recording import recorded

        set_ = recorded(asked, subject, wish, cache, connect)
        if set_ is None and call.compiles:
            set_ = _recorded_by_worker(session, call, subject, asked, wish)
        if set_ is not None:
            return told(session, asked, wish, *set_)
    try:
        found: Fetched = fetching.fetch(
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


def _how(call: Call) -> OnMiss:
    from .compiling import OnMiss

    return OnMiss.read(call.on_miss, retry=call.flags["retry"], verbose=call.flags["verbose"])


def _recorded_by_worker(
    session: Session, call: Call, subject: Subject, asked: Asked, wish: Wish
) -> tuple[Fetched, Placed] | None:
    """What a worker's ONNX Runtime writes, where mxr cannot tell its names; None where it can."""
    from mxr.ort_recording import place_recorded, to_record

    found = to_record(asked, subject, wish)
    if found is None:
        return None
    from .compiling import compiled

    wanted, file_name, reason = found
    note(f"mxr: no name can be told ({reason}): a worker's ONNX Runtime has to run it")
    fetched = compiled(session, _how(call), subject, wanted, call.options.calibration, file_name)
    return fetched, place_recorded(fetched, session.cache(), asked, subject, wish)


def _for_worker(asked: Asked, subject: Subject, wish: Wish | None) -> Asked:
    """What a worker would be asked for on a miss, for the hint."""
    if wish is None or asked.consumer.name != "ort":
        return asked
    from mxr.ort_recording import to_record

    try:
        found = to_record(asked, subject, wish)
    except MxrError:
        return asked
    return asked if found is None else found[0]


def handed_out(
    session: Session, wish: Wish | None, found: Fetched, asked: Asked, subject: Subject, connect: Connect | None
) -> dict[str, Any]:
    """Says what was let pass, puts the program where `-o` says, and gives the document."""
    from mxr import fetching

    if not found.answer.match.exact:
        note(f"mxr: not an exact match: {fetching.shortfall(asked.request, found.answer)}")
    if wish is None:
        return found.to_json()
    from mxr import placing

    return told(session, asked, wish, found, placing.deliver(found, session.cache(), asked, subject, wish, connect))


def told(session: Session, asked: Asked, wish: Wish, found: Fetched, placed: Placed) -> dict[str, Any]:
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


def _check_way(on_miss: str) -> None:
    """Finds out before anything else whether this way on a miss is known. Raises `Usage`."""
    if on_miss not in ("fail", "continue"):
        from .compiling import OnMiss

        OnMiss.read(on_miss, retry=False, verbose=False)


def _go_on(session: Session, problem: MxrError) -> None:
    note(f"mxr: warning: {problem.message} Nothing was written (--on-miss continue).")
    if session.as_json:
        document({"path": None, "source": None, **problem.to_json()})
