"""Options shared by several commands, and the session built from them: settings, cache, client and host."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from mxr.artifact.compile_settings import VARIABLES
from mxr.artifact.target import parse_input
from mxr.errors import UsageError
from mxr.facts import BY_NAME, COUNT, FACTS, FLAG, LIST, NAMES, PATH, SHAPES, SIZES, SWITCH, Fact
from mxr.request.builder import RequestOptions
from mxr.settings import Settings, load_settings
from mxr.util.frozen import dataclass
from mxr_cli.help import PARAMETERS, completes

if TYPE_CHECKING:
    from mxr.artifact.request_defaults import RequestDefaults
    from mxr.cache.store import Cache
    from mxr.client.registry import Client
    from mxr.host_facts import Host
    from mxr.request.model import ModelReference
    from mxr.workflows.fetch import Connect

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command: its settings and its output format.

    `whole_node` also counts GPUs of the node that this container was not given, as needed by an init container.
    `takes_open`: unspecified facts may come from the only program that fits. `said`: notes that were printed.
    `opened`: the cache, once it was used.
    """

    settings: Settings
    as_json: bool
    whole_node: bool = False
    takes_open: bool = True
    said: set[str] = field(default_factory=set, repr=False)
    opened: list[Cache] = field(default_factory=list, repr=False)

    def cache(self) -> Cache:
        """The local cache, the same for each call."""
        if not self.opened:
            from mxr.cache.store import Cache

            self.opened.append(Cache.of(self.settings))
        return self.opened[0]

    def client(self) -> Client:
        """A client of the registry. It connects with its first request."""
        from mxr.workflows.connection import open_client

        return open_client(self.settings)

    def connect(self, *, offline: bool) -> Connect | None:
        """The function that creates a client when one is needed; None when the registry must not be used."""
        return None if offline else self.client

    def defaults(self, model: str) -> RequestDefaults:
        """The request defaults of the settings and of the project of a model. Names the files that are not used."""
        from mxr.request.defaults import of_project, of_settings

        project = of_project(model, self.settings)
        self.say_once(project.unused)
        return of_settings(self.settings).over(project.defaults)

    def default_batches(
        self, options: RequestOptions, defaults: RequestDefaults, model: ModelReference
    ) -> tuple[int, ...]:
        """Several batch sizes that the defaults set and the model takes, named in a note; else none."""
        from mxr.request.defaults import default_batches

        found = default_batches(options, defaults, model)
        if found:
            self.say_once([f"batch {','.join(map(str, found))} ({defaults.sources['batch']})"])
        return found

    def say_once(self, lines: Sequence[str]) -> None:
        """Print each of these notes that this run did not print before."""
        for line in lines:
            if line not in self.said:
                from mxr_cli.output import note

                note(f"mxr: {line}")
                self.said.add(line)

    def host(self, options: RequestOptions | None = None) -> Host:
        """The facts of this host, or of the recorded host in the settings. Facts that `options` give are not probed."""
        from mxr.request.defaults import this_host

        return this_host(self.settings, options, whole_node=self.whole_node)


@dataclass(frozen=True, slots=True)
class PipelineEnvironment:
    """What a CI pipeline passes in its environment.

    `variables` are substituted in a matrix, where it or `env_from` names them. `outside`: a matrix may name files
    outside of its folder. `github` is true under GitHub Actions, which shows the Markdown appended to
    `step_summary`.
    """

    variables: Mapping[str, str]
    env_from: tuple[str, ...] = ()
    outside: bool = False
    github: bool = False
    step_summary: Path | None = None


def pipeline_environment(env_from: tuple[str, ...] = (), allow_outside: bool = False) -> PipelineEnvironment:
    """The pipeline environment of this process, and what the command line allows to a matrix.

    Source: docs.github.com, "Variables reference", GITHUB_ACTIONS and GITHUB_STEP_SUMMARY.
    """
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    github = os.environ.get("GITHUB_ACTIONS") == "true"
    return PipelineEnvironment(dict(os.environ), env_from, allow_outside, github, Path(summary) if summary else None)


class BatchSizes(click.ParamType):  # type: ignore[type-arg]
    """A batch size such as `8`, or a list such as `1,2,4,8`: each size once, in ascending order."""

    name = "batch"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Parse the value. Raises `click.BadParameter`."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if any(not (part.isascii() and part.isdigit()) or not 1 <= int(part[:12]) < 2**31 for part in parts):
            self.fail(f"{value!r} is not a batch size: write 8, or 1,2,4,8.", param, ctx)
        return tuple(sorted({int(part) for part in parts}))


JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document; messages go to standard error.")
DEBUG = click.option("--debug", is_flag=True, help="Print a traceback when an error occurs.")
CACHE_DIR = click.option(
    "--cache-dir", metavar="DIR", help="Directory of the local cache [env: MXR_CACHE_DIR; default: ~/.cache/mxr]."
)
REGISTRY = (
    click.option(
        "--registry",
        metavar="URL",
        help="URL of the registry [env: MXR_REGISTRY; default: http://127.0.0.1:8765].",
    ),
    click.option(
        "--plaintext",
        is_flag=True,
        default=None,
        help="Send the token also over plain http to another machine [env: MXR_PLAINTEXT].",
    ),
)

HOST = click.option(
    "--host", "host_file", metavar="FILE", help="Use the host facts recorded by `mxr host --json` [env: MXR_HOST]."
)


def fact_option(fact: Fact, *, several: bool = False) -> Callable[[F], F]:
    """The option that states a fact. `several`: --batch takes a list of sizes, one request for each."""
    about, metavar = fact.about, fact.metavar or None
    if fact.kind == FLAG:
        return click.option(f"{fact.flag}/--no-{fact.word}", fact.name, default=None, help=about)
    if fact.kind == SWITCH:
        return click.option(fact.flag, fact.name, is_flag=True, help=about)
    if fact.kind in (NAMES, SHAPES):
        # Not `options`: that is the name of the whole request in the functions of commands.
        name = PARAMETERS.get(fact.name, fact.name)
        return click.option(fact.flag, name, multiple=True, metavar=metavar, help=f"{about} Repeatable.")
    complete = None if fact.kind == PATH else completes(fact.name)
    if fact.kind == SIZES and several:
        metavar, about = "N[,N...]", f"{about[:-1]}, or a list of sizes: one request for each."
    kind = TYPES.get(fact.kind)
    return click.option(fact.flag, fact.name, type=kind, metavar=metavar, help=about, shell_complete=complete)


TYPES = {COUNT: click.IntRange(1), SIZES: BatchSizes(), PATH: click.Path(path_type=Path)}

FOLLOW_LINKS = fact_option(BY_NAME["follow_links"])
DESCRIBING = tuple(fact for fact in FACTS if fact.name not in ("exact", "allow"))
MATCHING = tuple(fact_option(BY_NAME[name]) for name in ("exact", "allow"))


SETTINGS = ("registry", "token", "plaintext", "cache_dir", "host_file")
"""The command line options that are settings."""


def common(command: F) -> F:
    """Add the options of a command that uses the registry. The function receives them as one `session`.

    A function with a parameter `options` also receives those of `request` and `matching`, as one `RequestOptions`. With
    a parameter `batches` it accepts several batch sizes and receives them there; one size alone is `options.batch`.
    """
    return _with_session(command, (JSON, *REGISTRY, CACHE_DIR, DEBUG))


def cached(command: F) -> F:
    """Add the options of a command that uses the cache and no registry, as `common` does."""
    return _with_session(command, (JSON, CACHE_DIR, DEBUG))


def local(command: F) -> F:
    """Add the options of a command that uses neither registry nor cache, as `common` does."""
    return _with_session(command, (JSON, DEBUG))


def _with_session(command: F, options: Sequence[Callable[[F], F]]) -> F:
    parameters = command.__code__.co_varnames[: command.__code__.co_argcount]

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        values.pop("debug")
        as_json = values.pop("as_json")
        given = {name: values.pop(name, None) for name in SETTINGS}
        session = _inherited(given, as_json) or Session(load_settings(os.environ, given), as_json)
        session.say_once(session.settings.unused)
        if "options" in parameters:
            # Only for a request that is matched: a publisher states the consumer of its file.
            default_consumer = session.settings.consumer if "exact" in values else None
            if "batches" in parameters:
                values["batches"] = values["batch"] if len(values["batch"] or ()) > 1 else ()
            values["options"] = _pop_options(values, default_consumer, several="batches" in parameters)
            _note_ignored(os.environ, values["options"])
        return command(session, **values)

    return _decorate(cast(F, run), options)


def _inherited(given: Mapping[str, Any], as_json: bool) -> Session | None:
    """The session of the command that called this one in its process, with the options given to this one."""
    context = click.get_current_context(silent=True)
    session = context.find_object(Session) if context else None
    if session is None:
        return None
    own = load_settings({}, given)
    changed = {name: getattr(own, name) for name, value in given.items() if value is not None}
    return replace(session, settings=replace(session.settings, **changed), as_json=as_json or session.as_json)


def request(command: F) -> F:
    """Add the options that describe a request."""
    return _decorate(command, (*(fact_option(fact) for fact in DESCRIBING), HOST))


def several_requests(command: F) -> F:
    """Add the options that describe one request for each of several batch sizes."""
    return _decorate(command, (*(fact_option(fact, several=True) for fact in DESCRIBING), HOST))


def matching(command: F) -> F:
    """Add the options that relax or tighten matching."""
    return _decorate(command, MATCHING)


def _decorate(command: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def _pop_options(values: dict[str, Any], default_consumer: str | None, *, several: bool) -> RequestOptions:
    """Remove the options of a request from `values` and return them as one value. Raises `UsageError`."""
    found: dict[str, Any] = {}
    for fact in FACTS:
        given = values.pop(PARAMETERS.get(fact.name, fact.name), None)
        if fact.kind == SIZES:
            if len(given or ()) > 1 and not several:
                raise UsageError("This command accepts only one batch size.", hint="Write --batch 8.")
            given = given[0] if len(given or ()) == 1 else None
        elif fact.kind == SHAPES:
            given = tuple(parse_input(text) for text in given)
            if len({name for name, _ in given}) != len(given):
                raise UsageError("An input is given twice.", hint="Give --input once for each input.")
        elif fact.kind == NAMES:
            given = _parse_settings(fact, given)
        elif fact.kind == LIST:
            given = tuple(part.strip() for part in (given or "").split(",") if part.strip())
        elif fact.kind == SWITCH:
            given = bool(given)
        found[fact.name] = given
    found["consumer"] = found["consumer"] or default_consumer
    return RequestOptions(**found)


def _note_ignored(environ: Mapping[str, str], options: RequestOptions) -> None:
    """Say that a variable of this environment is not part of the request, if it would change the program."""
    for name in sorted(set(VARIABLES) & environ.keys() - options.env.keys()):
        from mxr_cli.output import note

        note(f"mxr: {name} is set in this environment and ignored: only --env makes it part of the request")


def _parse_settings(fact: Fact, given: Sequence[str]) -> dict[str, str]:
    """The settings of a compile, as names and values. Raises `UsageError`."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} is not a NAME=VALUE pair.", hint=f"Write {fact.flag} {fact.metavar}.")
        if name in found:
            raise UsageError(f"{fact.flag} {name} is given twice.", hint="Give each name once.")
        found[name] = value
    return found
