"""What the functions of `import mxr` share: errors worded for programs, settings, options, warnings in the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import mxr.facts as facts
from mxr.artifact.request_defaults import RequestDefaults
from mxr.artifact.target import DynamicDim, Inputs
from mxr.consumers.python import PYTHON
from mxr.display.text import did_you_mean, printable
from mxr.errors import MxrError
from mxr.facts import BY_NAME
from mxr.host_facts import Host
from mxr.request.builder import OptionArguments, RequestOptions
from mxr.request.defaults import of_project, of_settings, this_host
from mxr.settings import Settings, load_settings
from mxr.workflows.fetch import Connect, Fetched

if TYPE_CHECKING:
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


def warned(fetched: Fetched) -> Fetched:
    """Log the warnings of a fetch, and return it."""
    log_warnings(fetched.warnings)
    return fetched


def log_warnings(lines: Sequence[str]) -> None:
    """Log what the user should know, as warnings of the logger `mxr`."""
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
        from mxr.workflows.connection import open_client

        return open_client(settings)

    return connect


@library_call
def read_settings(**given: str | os.PathLike[str]) -> Settings:
    """Return the settings of this process (environment, config.toml), with those that are given instead.

    Raises `UsageError` for an invalid value, and `TypeError` for a name that is no setting.

        staging = mxr.read_settings(registry="https://mxr.example.org", cache_dir="staging-cache")
    """
    known = {each.name for each in fields(Settings)}
    for name in given:
        if name not in known:
            raise TypeError(f"There is no setting {name!r}.{did_you_mean(name, known)}")
    return load_settings(os.environ, {name: os.fspath(value) for name, value in given.items()})


def library_settings() -> Settings:
    """Return the settings of this process, and logs why a configuration file is not used, if one is not."""
    settings = load_settings(os.environ)
    log_warnings(settings.unused)
    return settings


def configured_defaults(model: str, settings: Settings) -> RequestDefaults:
    """Return the request defaults of the settings and of the project of a model.

    Logs which files are not used. Raises `UsageError` for an invalid one.
    """
    project = of_project(model, settings)
    log_warnings(project.unused)
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
