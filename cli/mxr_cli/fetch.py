"""`mxr fetch`: the right program for a model and a target, from the cache or the registry."""

from __future__ import annotations

from typing import Any

import click

from mxr.asking import Options
from mxr.errors import MxrError, NoSuchArtifact, Usage

from .options import Session, common, matching, request
from .words import document, note, say, watch

ON_MISS = ("fail", "continue")


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
    metavar="|".join(ON_MISS),
    help="fail: exit 3 (default). continue: warn, write nothing, exit 0.",
)
@request
@matching
@common
def fetch(
    session: Session,
    options: Options,
    model: str,
    output: str | None,
    link: bool,
    offline: bool,
    refresh: bool,
    on_miss: str,
) -> None:
    """Get the right program for MODEL (an ONNX file, or xxh3:... of one that is known), and print its path.

    What is not said is taken from this host (`mxr host`). The cache answers first, then the registry; what comes is
    checked byte for byte. A program that does not fit is never handed out: a miss says what comes nearest and why.

    \b
    mxr fetch model.onnx                                      on a GPU host: everything from the host
    mxr fetch model.onnx --arch gfx908 --rocm 7.2 --migraphx 2.15 --batch 8 -o model.mxr
    mxr fetch model.onnx --for amdinfer -o /models/           under the name that amdinfer looks for
    """
    if on_miss not in ON_MISS:
        raise Usage(f"--on-miss {on_miss} is not known.", hint="Choose one of: " + ", ".join(ON_MISS) + ".")
    if link and output is None:
        raise Usage("--link goes with -o.", hint="Give -o PATH.")
    try:
        document_ = _fetch(session, options, model, output, link, offline, refresh)
    except NoSuchArtifact as problem:
        if on_miss == "fail":
            raise
        _go_on(session, problem)
        return
    if session.as_json:
        document(document_)
    else:
        say(document_["path"])


def _fetch(
    session: Session, options: Options, model: str, output: str | None, link: bool, offline: bool, refresh: bool
) -> dict[str, Any]:
    from mxr import fetching
    from mxr.library import prepare

    cache = session.cache()
    connect = None if offline else session.client
    subject, asked = prepare(options, model, cache, connect, session.host(options))
    for line in asked.notes:
        note(f"mxr: {line}")
    if output is not None:
        fetching.output_name(asked, subject, output)
    found = fetching.fetch(asked.request, cache, connect, refresh=refresh, watch=watch("fetching"))
    if not found.answer.match.exact:
        note(f"mxr: not an exact match: {fetching.shortfall(asked.request, found.answer)}")
    placed = fetching.place(found, cache, asked, subject, output, link=link) if output is not None else found.path
    return found.to_json() | {"path": str(placed)}


def _go_on(session: Session, problem: MxrError) -> None:
    note(f"mxr: warning: {problem.message} Nothing was written (--on-miss continue).")
    if session.as_json:
        document({"path": None, "source": None, **problem.to_json()})
