"""`mxr.fetch` and `mxr.fetch_set`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.target import DynamicDim
from mxr.cache.store import Cache
from mxr.display.progress import Display, shown_by
from mxr.errors import NoSuchArtifactError, UsageError
from mxr.facts import stated
from mxr.plans.plan import Compile, OnMiss, PlannedProgram, fetch_plan
from mxr.request import model as models
from mxr.request.builder import RequestOptions
from mxr.settings import Settings
from mxr.workflows.fetch import Connect, Fetched
from mxr.workflows.preparation import prepare

from .calls import (
    configured_defaults,
    connection,
    host_of_this_program,
    library_call,
    library_settings,
    log_warnings,
    make_options,
    warned,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mxr.request.builder import OptionArguments

ON_MISS = ("fail", "ask", "wait")


@library_call
def fetch(  # noqa: PLR0913 - a parameter for each option
    model: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    locked: str | os.PathLike[str] | None = None,
    tag: str | None = None,
    on_miss: str = "fail",
    offline: bool = False,
    refresh: bool = False,
    force: bool = False,
    progress: Display | None = None,
    consumer_options: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None = None,
    **options: Unpack[OptionArguments],
) -> Fetched:
    """Return the right program for a model. `.path` is its file, in the cache or in `output`.

    `model`: an ONNX file, or "sha256:..." of a known model. `output`: a file, or a folder for the layout of the
    consumer. `locked`: a lock file; the program is the one that it names. `tag`: a tag of the registry, such as prod;
    the program is the one that its lock names. "model.onnx:prod" and, without the file, "model:prod" say the same.
    `on_miss`: "fail", "ask" (queue a compile and raise `NotCompiledError`), or "wait" or "wait=10m" (have it compiled).
    `offline`: use the cache only. `refresh`: ask the registry even if the cache has the answer. `force`: replace files
    in `output` that mxr did not write.
    `progress`: is called with what is done ("fetching model.onnx") and its bytes, and returns what is called with the
    bytes of each part, perhaps by other threads. `consumer_options`: the options of `mxr fetch` that apply to one
    consumer only, by name: `{"ort": "1.27.1"}`. `inputs`: the shapes of inputs with more open dims than the batch.

    `options` are the fields of `mxr.RequestOptions`, such as arch, rocm, migraphx, batch, precision, consumer, exact
    and allow. Facts that they do not give come from this host, from request defaults such as those in `mxr.toml`, or
    from the only program in the registry that has the others: `.match.assumed` has what was assumed. Several such
    programs are a `UsageError`.

    Raises `NoSuchArtifactError` (`context["nearest"]` lists the closest programs), `UnreachableError`, `DamagedError`,
    `UsageError`, or another `mxr.MxrError`; with `on_miss`, also `CompileFailedError` and `NoWorkerError`; with
    `locked` or `tag`, also `MismatchError` for what is not in the lock, and `NotFoundError` for an unknown tag.

        path = mxr.fetch("model.onnx", arch="gfx908").path
        path = mxr.fetch("model:prod").path
        path = mxr.fetch("model.onnx", arch="gfx908", rocm="7.2", migraphx="2.15", batch=8).path
    """
    settings = settings or library_settings()
    if settings.others:
        given: dict[str, Any] = {"output": output, "locked": locked, "tag": tag, "offline": offline}
        given |= {
            "refresh": refresh,
            "force": force,
            "progress": progress,
            "consumer_options": consumer_options,
            "inputs": inputs,
        }
        return _fetch_anywhere(model, settings, on_miss, {**given, **options})
    name, tag = _tagged(os.fspath(model), tag, locked)
    policy = _on_miss(on_miss, offline=offline, locked=tag if locked is None else locked)
    cache = Cache.of(settings)
    connect = None if offline else connection(settings)
    request = make_options(inputs, options, settings.consumer)
    defaults = configured_defaults(name, settings)
    host = host_of_this_program(settings, request)
    where = None
    with shown_by(progress), cache.staged_beside(output), _naming(name):
        if output is not None:
            from mxr.install.placement import Destination

            where = Destination(output, force=force, consumer_options=consumer_options or {})
        if locked is None and tag is None:
            takes_open = not policy.compiles
            prepared = prepare(request, name, cache, connect, host, defaults=defaults, takes_open=takes_open)
            planned = PlannedProgram(prepared, where)
        else:
            from mxr.plans import lockfile, pins

            if tag is not None:
                from mxr.plans import tags

                tagged = tags.find_tag(tag, cache, connect)
                log_warnings(tagged.warnings)
                lock, (name, stem) = tagged.lock, tags.model_in(tagged, name)
                where = where and replace(where, name=stem)
            else:
                lock = lockfile.load_lock(Path(locked or ""))
            known = pins.find_locked_model(lock, name, cache, connect, follow_links=request.follow_links)
            form = pins.recorded_form(known, request.consumer, where, None, consumer_options or {})
            prepared = pins.build_locked_request(lock, request, known, host, form)
            planned = PlannedProgram(prepared, where, pinned=pins.entries_for(lock, prepared.request))
        compile = _compile(policy, connect, request)
        (found,) = map(warned, fetch_plan([planned], cache, connect, refresh=refresh, compile=compile))
        if where is None:
            return found
        from mxr.install.installer import installer_for

        installer = installer_for(prepared.consumer)
        return replace(found, path=installer.deliver(found, cache, prepared, where, connect).path)


@library_call
def fetch_set(  # noqa: PLR0913 - a parameter for each option
    model: str | os.PathLike[str],
    batches: Sequence[int],
    *,
    output: str | os.PathLike[str] | None = None,
    on_miss: str = "fail",
    offline: bool = False,
    refresh: bool = False,
    progress: Display | None = None,
    settings: Settings | None = None,
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None = None,
    **options: Unpack[OptionArguments],
) -> dict[int, Fetched]:
    """Return the programs for several batch sizes by batch size: all of them or none.

    With `output`, writes them to that folder, with `mxr-set.json` that lists them. The other arguments are those of
    `fetch`. Raises what `fetch` raises; `NoSuchArtifactError` lists all missing programs.

        programs = mxr.fetch_set("model.onnx", [1, 2, 4], arch="gfx908", output="models/")
    """
    from mxr.install import variant_set

    settings = settings or library_settings()
    policy = _on_miss(on_miss, offline=offline)
    cache = Cache.of(settings)
    connect = None if offline else connection(settings)
    request = make_options(inputs, options, settings.consumer)
    host = host_of_this_program(settings, request)
    defaults = configured_defaults(os.fspath(model), settings)
    if not batches:
        raise UsageError("A set needs at least one batch size.", hint=f"Write {stated('batch', '1,2,4')}.")
    with shown_by(progress), cache.staged_beside(output):
        known = models.find_model(os.fspath(model), cache, connect, follow_links=request.follow_links)
        requests = {
            batch: prepare(replace(request, batch=batch), known, cache, connect, host, defaults=defaults)
            for batch in batches
        }
        if output is not None:
            variant_set.check_output(output)
            variant_set.file_names(requests, known.stem)
        plan = [PlannedProgram(prepared, batch=batch) for batch, prepared in requests.items()]
        compile = _compile(policy, connect, request)
        fetched = map(warned, fetch_plan(plan, cache, connect, refresh=refresh, compile=compile))
        found = dict(sorted(zip(requests, fetched, strict=True)))
        if output is None:
            return found
        files = variant_set.place_set(found, requests, output, cache).files
        return {batch: replace(each, path=files[batch]) for batch, each in found.items()}


def _fetch_anywhere(
    model: str | os.PathLike[str], settings: Settings, on_miss: str, given: Mapping[str, Any]
) -> Fetched:
    """Fetch from the first registry that has it; have it compiled by the first one where none has it."""
    from mxr.workflows.several import MISSES, first_that_has

    def attempt(each: Settings, action: str) -> Fetched:
        return fetch(model, settings=each, on_miss=action, **given)

    try:
        return first_that_has(settings, lambda each: attempt(each, "fail"), lambda line: log_warnings([line]))
    except MISSES:
        if on_miss == "fail":
            raise
        return attempt(settings.each_registry[0], on_miss)


def _tagged(model: str, tag: str | None, locked: object) -> tuple[str, str | None]:
    """The model and the tag of a call. Raises `UsageError` for a lock beside a tag."""
    if tag is None and locked is None and (split := models.split_tag(model)):
        return split
    if tag is not None and locked is not None:
        raise UsageError("locked= and tag= both say which programs.", hint="Omit one of the two.")
    return model, tag


@contextmanager
def _naming(model: str) -> Iterator[None]:
    try:
        yield
    except NoSuchArtifactError as error:
        error.message = models.with_name(error.message, model)
        error.args = (error.message,)
        raise


def _on_miss(text: str, *, offline: bool, locked: object = None) -> OnMiss:
    """Return what to do on a miss. Raises `UsageError` where nothing can be compiled."""
    found = OnMiss.parse(text, ON_MISS)
    if found.compiles and (offline or locked is not None):
        other = "offline" if offline else "locked"
        raise UsageError(f'on_miss="{found.action}" compiles, and with {other}= nothing is compiled.', hint="Omit one.")
    return found


def _compile(policy: OnMiss, connect: Connect | None, request: RequestOptions) -> Compile | None:
    if not policy.compiles or connect is None:
        return None
    from mxr.plans.compiling import compile_needed

    return partial(compile_needed, connect(), policy, request.calibration, say=lambda line: log_warnings([line]))
