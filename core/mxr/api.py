"""The functions of `import mxr`: the operations of the `mxr` command for use in programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import mxr.facts as facts
from mxr.artifact.request_defaults import RequestDefaults
from mxr.artifact.target import DynamicDim, Inputs
from mxr.cache.store import Cache
from mxr.consumers.python import PYTHON
from mxr.display.text import did_you_mean, printable
from mxr.request.builder import OptionArguments, RequestOptions
from mxr.request.defaults import of_project, of_settings, this_host
from mxr.workflows.fetch import Connect, Fetched, fetch_prepared
from mxr.workflows.preparation import prepare

from .errors import MxrError, UsageError
from .facts import BY_NAME, stated
from .host_facts import Host
from .request import model as models
from .settings import Settings, load_settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mxr.client.registry import Client


P = ParamSpec("P")
R = TypeVar("R")


def library_call(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function of the library word its errors for programs: arguments instead of options.

    A traceback shows the hint as a note (Python 3.11 and later).
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = facts.dialect.set(facts.PYTHON)
        try:
            return function(*args, **kwargs)
        except MxrError as error:
            if error.hint and hasattr(error, "add_note") and not getattr(error, "__notes__", None):
                error.add_note(printable(error.hint))
            raise
        finally:
            facts.dialect.reset(token)

    return call


@library_call
def fetch(
    model: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    offline: bool = False,
    refresh: bool = False,
    force: bool = False,
    consumer_options: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None = None,
    **options: Unpack[OptionArguments],
) -> Fetched:
    """Return the right program for a model. `.path` is its file, in the cache or in `output`.

    `model`: an ONNX file, or "sha256:..." of a known model. `output`: a file, or a folder for the layout of the
    consumer.
    `offline`: use the cache only. `refresh`: ask the registry even if the cache has the answer. `force`: replace files
    in `output` that mxr did not write. `consumer_options`: the options of `mxr fetch` that apply to one consumer only,
    by name: `{"ort": "1.27.1"}`. `inputs`: the shapes of inputs with dims other than the batch left open.

    `options` are the fields of `mxr.RequestOptions`, such as arch, rocm, migraphx, batch, precision, consumer, exact
    and allow. Facts that they do not give come from this host, from request defaults such as those in `mxr.toml`, or
    from the only program in the registry that has the others: `.match.assumed` has what was assumed. Several such
    programs are a `UsageError`.

    Raises `NoSuchArtifactError` (`context["nearest"]` lists the closest programs), `UnreachableError`, `DamagedError`,
    `UsageError`, or another `mxr.MxrError`.

        path = mxr.fetch("model.onnx", arch="gfx908").path
        path = mxr.fetch("model.onnx", arch="gfx908", rocm="7.2", migraphx="2.15", batch=8).path
    """
    settings = settings or library_settings()
    cache = Cache.of(settings)
    connect = None if offline else connection(settings)
    stated = make_options(inputs, options, settings.consumer)
    defaults = configured_defaults(os.fspath(model), settings)
    host = host_of_this_program(settings, stated)
    with cache.staged_beside(output):
        name = os.fspath(model)
        prepared = prepare(stated, name, cache, connect, host, defaults=defaults, takes_open=True)
        if output is None:
            return warned(fetch_prepared(prepared, cache, connect, refresh=refresh))
        from .install.installer import installer_for
        from .install.placement import Destination
        from .plans.plan import PlannedProgram, fetch_plan

        where = Destination(output, force=force, consumer_options=consumer_options or {})
        (found,) = map(warned, fetch_plan([PlannedProgram(prepared, where)], cache, connect, refresh=refresh))
        installer = installer_for(prepared.consumer)
        return replace(found, path=installer.deliver(found, cache, prepared, where, connect).path)


@library_call
def fetch_set(
    model: str | os.PathLike[str],
    batches: Sequence[int],
    *,
    output: str | os.PathLike[str] | None = None,
    offline: bool = False,
    refresh: bool = False,
    settings: Settings | None = None,
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None = None,
    **options: Unpack[OptionArguments],
) -> dict[int, Fetched]:
    """Return the programs for several batch sizes by batch size: all of them or none.

    With `output`, writes them to that folder, with `mxr-set.json` that lists them. The other arguments are those of
    `fetch`. Raises what `fetch` raises; `NoSuchArtifactError` lists all missing programs.
    """
    from .install import variant_set
    from .plans.plan import PlannedProgram, fetch_plan

    settings = settings or library_settings()
    cache = Cache.of(settings)
    connect = None if offline else connection(settings)
    all_options = make_options(inputs, options, settings.consumer)
    host = host_of_this_program(settings, all_options)
    defaults = configured_defaults(os.fspath(model), settings)
    if not batches:
        raise UsageError("A set needs at least one batch size.", hint=f"Write {stated('batch', '1,2,4')}.")
    with cache.staged_beside(output):
        known = models.find_model(os.fspath(model), cache, connect, follow_links=all_options.follow_links)
        requests = {
            batch: prepare(replace(all_options, batch=batch), known, cache, connect, host, defaults=defaults)
            for batch in batches
        }
        if output is not None:
            variant_set.check_output(output)
            variant_set.file_names(requests, known.stem)
        plan = [PlannedProgram(prepared, batch=batch) for batch, prepared in requests.items()]
        fetched = map(warned, fetch_plan(plan, cache, connect, refresh=refresh))
        found = dict(sorted(zip(requests, fetched, strict=True)))
        if output is None:
            return found
        files = variant_set.place_set(found, requests, output, cache).files
        return {batch: replace(each, path=files[batch]) for batch, each in found.items()}


def warned(fetched: Fetched) -> Fetched:
    """Log the warnings of a fetch, and return it."""
    _log_warnings(fetched.warnings)
    return fetched


def _log_warnings(lines: Sequence[str]) -> None:
    if lines:
        import logging

        for line in lines:
            logging.getLogger("mxr").warning("%s", line)


def make_options(
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None, given: OptionArguments, consumer: str | None
) -> RequestOptions:
    """Return `RequestOptions` from the keyword arguments of `fetch` and its like. `consumer` is the default consumer.

    Raises `TypeError` for an argument that does not exist, with the nearest one.
    """
    for name in given:
        if name not in BY_NAME:
            raise TypeError(f"There is no argument {name!r}.{did_you_mean(name, BY_NAME)}")
    fields: dict[str, Any] = {"consumer": consumer, **given}
    if fields.get("calibration") is not None:
        fields["calibration"] = Path(fields["calibration"])
    if "allow" in fields:
        fields["allow"] = tuple(fields["allow"])
    return RequestOptions(inputs=as_inputs(inputs), **fields)


def connection(settings: Settings) -> Connect:
    """Return a function that creates the client of the registry. A fetch that the cache answers does not call it."""

    def connect() -> Client:
        from mxr.client.registry import Client

        return Client(settings)

    return connect


def library_settings() -> Settings:
    """Return the settings of this process, and logs why a configuration file is not used, if one is not."""
    settings = load_settings(os.environ)
    _log_warnings(settings.unused)
    return settings


def configured_defaults(model: str, settings: Settings) -> RequestDefaults:
    """Return the request defaults of the settings and of the project of a model.

    Logs which files are not used. Raises `UsageError` for an invalid one.
    """
    project = of_project(model, settings)
    _log_warnings(project.unused)
    return of_settings(settings).over(project.defaults)


def host_of_this_program(settings: Settings, options: RequestOptions) -> Host:
    """Return the facts of this host for a Python program: the MIGraphX of its environment counts, if there is one.

    For another consumer it is `this_host`.
    """
    host = this_host(settings, options)
    own = tuple(installation for installation in host.installations if installation.python)
    if not own or options.consumer not in (None, PYTHON.name):
        return host
    return replace(host, toolchain=own[0].toolchain, installations=own)


def as_inputs(inputs: Mapping[str, Sequence[int | DynamicDim]] | None) -> Inputs:
    """Return input shapes from a mapping of names to dims."""
    return tuple((name, tuple(shape)) for name, shape in (inputs or {}).items())
