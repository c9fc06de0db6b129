"""`mxr fetch`: the compiled program for a model and a target, from the cache or the registry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from mxr.errors import MxrError, NoSuchArtifactError, UsageError, WouldOverwriteError
from mxr.plans.plan import OnMiss
from mxr.request.builder import RequestOptions
from mxr_cli.fetching.fetch_options import ORT, FetchOptions, OrtOptions, ort_options, with_defaults
from mxr_cli.help import command, completes
from mxr_cli.options import Session, common, matching, several_requests
from mxr_cli.output import echo, note, print_json

if TYPE_CHECKING:
    from mxr.settings import Settings


@command(
    usual=(
        "arch",
        "rocm",
        "migraphx",
        "batch",
        "precision",
        "consumer",
        "output",
        "locked",
        "tag",
        "on_miss",
        "offline",
    ),
    groups={
        "Where to": ("output", "per_arch", "name", "force", "link"),
        "On a miss": ("on_miss", "retry", "verbose"),
        "ONNX Runtime": ("genai_config", *ORT),
    },
)
@click.argument("model", metavar="[MODEL]", required=False, shell_complete=completes("model"))
@click.option(
    "--genai-config",
    metavar="FILE",
    help="Fetch the programs for all models that this genai_config.json runs with MIGraphX, instead of MODEL.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=str), metavar="PATH", help="Write a copy to this file or folder."
)
@click.option(
    "--per-arch",
    is_flag=True,
    help="With -o FOLDER: write to FOLDER/ARCH/, so that servers with different GPUs can share FOLDER.",
)
@click.option(
    "--force",
    is_flag=True,
    help="With -o: replace files that mxr did not write, or wrote for something else; never a model.",
)
@click.option(
    "--name",
    metavar="NAME",
    callback=lambda _context, _parameter, value: value and (value.removesuffix(".onnx") or value),
    help="With -o FOLDER: name of the model there, without .onnx [default: its file name].",
)
@click.option(
    "--link", is_flag=True, help="With -o: create a hard link into the cache instead of a copy. Do not write to it."
)
@click.option("--offline", is_flag=True, help="Use the cache only; never contact the registry.")
@click.option("--refresh", is_flag=True, help="Ask the registry even if the cache can answer.")
@click.option(
    "--locked",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Fetch exactly what the lock FILE (default: mxr.lock) names; without MODEL, all of its entries.",
)
@click.option(
    "--tag",
    metavar="NAME",
    help="Fetch exactly what the tag NAME (mxr tag) names; without MODEL, all for this host.",
)
@click.option(
    "--on-miss",
    default="fail",
    metavar="ACTION",
    help="What to do if there is no program. fail (default): exit with 3. ask: queue a compile, exit with 4. "
    "wait[=TIME]: queue a compile and wait (wait=90s, 10m, 2h). local: compile on this host and publish. "
    "continue: print a warning, write nothing, exit with 0; also if another program's file is in the way.",
)
@click.option("--retry", is_flag=True, help="With --on-miss ask, wait or local: compile despite a cached failure.")
@click.option(
    "--whole-node",
    is_flag=True,
    help="Also detect GPUs of the node that this container was not given (for init containers).",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the log of the compile while it runs.")
@ort_options
@several_requests
@matching
@common
def fetch(
    session: Session,
    options: RequestOptions,
    batches: tuple[int, ...],
    on_miss: str,
    ort: OrtOptions,
    **values: Any,
) -> None:
    """Fetch the compiled program for MODEL and print its path. MODEL is an ONNX file, the identity (sha256:...) of a
    model that the registry knows, or NAME:TAG, a model of the lock that a tag of the registry names.

    \b
    Fetch the program for an MI100, on any host:
      mxr fetch model.onnx --arch gfx908
    Detect everything on a GPU host, and write to a file:
      mxr fetch model.onnx -o model.mxr
    Write the layout that Triton expects (see mxr consumers):
      mxr fetch model.onnx --for triton -o /models/
    Wait up to two hours for a worker to compile it:
      mxr fetch model.onnx --on-miss wait=2h
    Fetch exactly what mxr.lock names:
      mxr fetch model.onnx --locked
    Fetch exactly what the tag prod names, without the ONNX file:
      mxr fetch model:prod -o model.mxr

    Facts that you do not give are detected on this host (see `mxr host`), come from defaults such as those in mxr.toml
    (see `mxr config`), or are taken from the only program that fits. If several fit, they are listed with the options
    that choose. Every byte is verified. If no program fits, the closest ones are listed with their differences.

    \f
    \b
    Leave nothing open:
      mxr fetch model.onnx --arch gfx908:sramecc+:xnack- --rocm 7.2 --migraphx 2.15 --batch 8 --for python
    Have ONNX Runtime on a worker write its cache files, if their names cannot be predicted:
      mxr fetch model.onnx --for ort --ort 1.27.1 --on-miss wait -o cache/
    Fetch several batch sizes, all or none, with an index file:
      mxr fetch model.onnx --batch 1,2,4,8,16 -o set/
    Fill a folder that AMD Inference Servers with different GPUs share:
      mxr fetch model.onnx --arch gfx90a --batch 8 --for amdinfer -o /models/ --per-arch
    """
    from mxr.request import model as models

    whole_node, retry, verbose = values.pop("whole_node"), values.pop("retry"), values.pop("verbose")
    session = replace(session, whole_node=whole_node)
    action = OnMiss.parse(on_miss, retry=retry, verbose=verbose)
    if values["tag"] is None and values["locked"] is None and (split := models.split_tag(values["model"] or "")):
        values["model"], values["tag"] = split
    wanted = FetchOptions(request=options, batches=batches, on_miss=action, ort=ort, **values)
    _check(wanted)
    try:
        document = _fetch_anywhere(session, wanted)
    except (NoSuchArtifactError, WouldOverwriteError) as error:
        error.message = models.with_name(error.message, wanted.model)
        if action.action != "continue":
            raise
        _warn(session, error)
        return
    if session.as_json:
        print_json(document)
    else:
        for row in document.get("entries", (document,)):
            echo(row["path"])


def _fetch_anywhere(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch from the first registry that has it; have it compiled by the first one where none has it."""

    def attempt(settings: Settings, options: FetchOptions) -> dict[str, Any]:
        own = session if settings == session.settings else replace(session, settings=settings, opened=[])
        # With an output, it does without a cache that cannot be used.
        with own.cache().staged_beside(options.output):
            return _fetch(own, options)

    if not session.settings.others:
        return attempt(session.settings, options)
    from mxr.workflows.several import MISSES, first_that_has

    asked = replace(options, on_miss=OnMiss.parse("fail")) if options.on_miss.compiles else options
    try:
        return first_that_has(
            session.settings, lambda each: attempt(each, asked), lambda line: note(f"mxr: warning: {line}")
        )
    except MISSES:
        if not options.on_miss.compiles:
            raise
        return attempt(session.settings.each_registry[0], options)


def _fetch(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch the models of a genai_config, the entries of a lock, a set of batch sizes, or one program."""
    if options.genai_config is not None:
        from mxr_cli.fetching.genai import fetch_genai_models

        return fetch_genai_models(session, options)
    if options.tag is not None:
        from mxr_cli.fetching.locked import fetch_tagged

        return fetch_tagged(session, options, options.tag)
    if options.locked is not None:
        from mxr_cli.fetching.locked import fetch_locked

        return fetch_locked(session, options)
    from mxr_cli.fetching.programs import fetch_programs

    return fetch_programs(session, with_defaults(session, options))


def _check(options: FetchOptions) -> None:
    """Raise `UsageError` for options that are missing or exclude each other."""
    if options.output is None:
        flags = {"link": options.link, "force": options.force, "name": options.name, "per-arch": options.per_arch}
        for name, given in flags.items():
            if given:
                raise UsageError(f"--{name} needs -o.", hint="Add -o PATH.")
    if options.offline and options.on_miss.compiles:
        raise UsageError("--offline contacts no registry, so nothing can be compiled.", hint="Omit one of the two.")
    if options.tag is not None and (options.locked is not None or options.genai_config is not None):
        raise UsageError("A tag, --locked and --genai-config exclude each other.", hint="Use one of them.")
    if options.model is None and options.tag is None and options.locked is None and options.genai_config is None:
        raise UsageError("No model is given.", hint="Use mxr fetch MODEL, --genai-config FILE, --tag or --locked.")
    if options.model is not None and options.genai_config is not None:
        raise UsageError("MODEL and --genai-config exclude each other.", hint="Omit one of the two.")


def _warn(session: Session, error: MxrError) -> None:
    note(f"mxr: warning: {error.message} Nothing was placed; --on-miss continue ends with exit code 0.")
    if session.as_json:
        print_json({"path": None, "source": None, "error": error.to_json()})
