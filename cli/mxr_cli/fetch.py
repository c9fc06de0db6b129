"""`mxr fetch`: the right program for a model and a target, from the cache or the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mxr.asking import Options
from mxr.errors import MxrError, NoSuchArtifact, Usage

from .options import Session, common, matching, request
from .words import document, note, say, watch

if TYPE_CHECKING:
    from mxr.fetching import Fetched


@click.command(short_help="Get the right program for a model and a target.")
@click.argument("model", metavar="MODEL")
@click.option(
    "-o", "--output", type=click.Path(path_type=str), metavar="PATH", help="Put a copy here: a file, or a folder."
)
@click.option("--link", is_flag=True, help="Make -o a hard link into the cache: no copy, and not to be written to.")
@click.option("--offline", is_flag=True, help="Take what the cache has; never ask the registry.")
@click.option("--refresh", is_flag=True, help="Ask the registry even where the cache has an exact answer.")
@click.option(
    "--on-miss",
    default="fail",
    metavar="WAY",
    help="fail: exit 3 (default). ask: queue a compile, exit 4. wait[=TIME]: queue it and wait (wait=90s, 10m, 2h). "
    "local: this host compiles it, for everyone. continue: warn, write nothing, exit 0.",
)
@click.option("--retry", is_flag=True, help="With ask, wait or local: in spite of failures remembered.")
@click.option("-v", "--verbose", is_flag=True, help="Show the log of the compile while it runs.")
@request
@matching
@common
def fetch(session: Session, options: Options, model: str, output: str | None, on_miss: str, **flags: bool) -> None:
    """Get the right program for MODEL (an ONNX file, or xxh3:... of one that is known), and print its path.

    What is not said is taken from this host (`mxr host`). The cache answers first, then the registry; what comes is
    checked byte for byte. A program that does not fit is never handed out: a miss says what comes nearest and why.

    \b
    mxr fetch model.onnx                                      on a GPU host: everything from the host
    mxr fetch model.onnx --arch gfx908 --rocm 7.2 --migraphx 2.15 --batch 8 -o model.mxr
    mxr fetch model.onnx --for amdinfer -o /models/           under the name that amdinfer looks for
    mxr fetch model.onnx --on-miss wait=2h                    compiled by a worker, once for all who wait
    """
    _check_way(on_miss)
    if flags["link"] and output is None:
        raise Usage("--link goes with -o.", hint="Give -o PATH.")
    if flags["offline"] and on_miss not in ("fail", "continue"):
        raise Usage("--offline asks no registry, and so nobody to compile.", hint="Leave one of the two out.")
    try:
        document_ = _fetch(session, options, model, output, on_miss, flags)
    except NoSuchArtifact as problem:
        if on_miss != "continue":
            raise
        _go_on(session, problem)
        return
    if session.as_json:
        document(document_)
    else:
        say(document_["path"])


def _fetch(
    session: Session, options: Options, model: str, output: str | None, on_miss: str, flags: dict[str, bool]
) -> dict[str, Any]:
    from mxr import fetching
    from mxr.library import prepare

    cache = session.cache()
    connect = None if flags["offline"] else session.client
    subject, asked = prepare(options, model, cache, connect, session.host(options))
    for line in asked.notes:
        note(f"mxr: {line}")
    if output is not None:
        fetching.output_name(asked, subject, output)
    try:
        found: Fetched = fetching.fetch(
            asked.request, cache, connect, refresh=flags["refresh"], watch=watch("fetching")
        )
    except NoSuchArtifact:
        if on_miss in ("fail", "continue"):
            raise
        from .compiling import OnMiss, compiled

        how = OnMiss.read(on_miss, retry=flags["retry"], verbose=flags["verbose"])
        found = compiled(session, how, subject, asked, options.calibration)
    if not found.answer.match.exact:
        note(f"mxr: not an exact match: {fetching.shortfall(asked.request, found.answer)}")
    if output is None:
        return found.to_json()
    return found.to_json() | {"path": str(fetching.place(found, cache, asked, subject, output, link=flags["link"]))}


def _check_way(on_miss: str) -> None:
    """Finds out before anything else whether this way on a miss is known. Raises `Usage`."""
    if on_miss not in ("fail", "continue"):
        from .compiling import OnMiss

        OnMiss.read(on_miss, retry=False, verbose=False)


def _go_on(session: Session, problem: MxrError) -> None:
    note(f"mxr: warning: {problem.message} Nothing was written (--on-miss continue).")
    if session.as_json:
        document({"path": None, "source": None, **problem.to_json()})
