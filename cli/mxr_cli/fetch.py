"""`mxr fetch`: the right program for a model and a target, from the cache or the registry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from mxr.errors import MxrError, NoSuchArtifact, Usage
from mxr.request.builder import Options

from .call import FetchCall, fetch_one
from .options import Session, common, matching, request
from .ort import ort_options
from .output import document, note, say


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
    call = FetchCall(options, batches, model, output, on_miss, locked, flags)
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


def fetched(session: Session, call: FetchCall) -> dict[str, Any]:
    """What a call gets: one program, a set, what a lock or a configuration names; the document."""
    if call.model is None and call.flags["genai_config"] is not None:
        from .genai import fetch_genai

        return fetch_genai(session, call, fetched)
    if call.locked is not None:
        from .locked import fetch_locked

        return fetch_locked(session, call)
    if call.batches:
        from .sets import fetch_set

        return fetch_set(session, call)
    return fetch_one(session, call)


def _check_way(on_miss: str) -> None:
    """Finds out before anything else whether this way on a miss is known. Raises `Usage`."""
    if on_miss not in ("fail", "continue"):
        from .compiling import OnMiss

        OnMiss.read(on_miss, retry=False, verbose=False)


def _go_on(session: Session, problem: MxrError) -> None:
    note(f"mxr: warning: {problem.message} Nothing was written (--on-miss continue).")
    if session.as_json:
        document({"path": None, "source": None, **problem.to_json()})
