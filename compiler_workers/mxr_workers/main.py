"""The program `mxr-worker`, with the commands `run`, `host`, `key` and `config`. The environment is read only here."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click

from mxr.configuration.commands import Command, config_commands, file_options, print_error
from mxr.configuration.reading import DEFAULT, ServiceValues, SetValue, assignments, read_service
from mxr.display import logs, streams
from mxr.entry_point import run_program
from mxr.errors import MxrError, UsageError
from mxr.request.defaults import this_host
from mxr.sandbox.walls import hide_process
from mxr.version import __version__

from .settings import (
    CLIENT_OPTIONS,
    KINDS,
    SCHEMA,
    WorkerSettings,
    check_archs,
    check_trust,
    client_settings,
    effective,
    settings_of,
)
from .slots import host_document
from .worker import WorkerProcess

_kind = click.option(
    "--kind",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="Compile only for targets of this kind; repeatable [MXR_WORKER_KINDS]. Default: every kind that works here.",
)
_python = click.option(
    "--python",
    metavar="PATH",
    help="Python interpreter that has migraphx, and optionally onnxruntime-migraphx [MXR_WORKER_PYTHON].",
)


def _checked(check: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Callable[..., tuple[str, ...]]:
    """A callback that refuses what the setting of an option refuses. A single text has commas between its words."""

    def call(_context: click.Context, _option: click.Parameter, given: tuple[str, ...] | str | None) -> tuple[str, ...]:
        words = tuple(filter(None, given.split(","))) if isinstance(given, str) else given or ()
        try:
            return check(words)
        except ValueError as problem:
            raise click.BadParameter(f"expected {problem}") from problem

    return call


_trust = click.option(
    "--trust",
    metavar="PRINCIPAL",
    multiple=True,
    callback=_checked(check_trust),
    help="While a wall around compiles is open, take the jobs of this principal, too; repeatable, * is everybody "
    "[MXR_WORKER_TRUST].",
)
_cross = click.option(
    "--cross",
    metavar="ARCHS",
    callback=_checked(check_archs),
    help="Compile for GPUs of these archs also without having one, such as gfx942,gfx1100 [MXR_WORKER_CROSS].",
)
_registry = click.option("--registry", metavar="URL", help="URL of the registry [MXR_REGISTRY].")
_plaintext = click.option(
    "--plaintext",
    is_flag=True,
    default=None,
    help="Send the token also over plain http to another machine [MXR_PLAINTEXT].",
)
_files = file_options(SCHEMA, "worker.seconds=2h")


def settings_options(function: Command) -> Command:
    """Add the options of the settings, which `read_values` takes."""
    for option in (_plaintext, _registry, _trust, _cross, _python, _kind):
        function = option(function)
    return _files(function)


def read_values(**given: Any) -> ServiceValues:
    """Return the values of all settings, from the options of a command. Raises `UsageError`."""
    options: dict[str, Any] = dict(assignments(SCHEMA, given["words"]))
    options |= {f"worker.{name}": given[name] for name in ("kinds", "python", "trust", "cross") if given[name]}
    options |= {name: given[name] for name in ("registry", "plaintext") if given[name] is not None}
    return read_service(SCHEMA, os.environ, options, given["config"])


def main() -> None:
    """Run the program. An error prints its message and its hint, and sets the exit code."""
    run_program(
        "mxr-worker",
        lambda: program.main(standalone_mode=False),
        _report,
        click,
        extra="workers",
    )


def _report(error: MxrError) -> None:
    if "--debug" in sys.argv:
        streams.write_traceback()
    print_error(SCHEMA, error)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mxr-worker")
def program(debug: bool) -> None:
    """Compile queued jobs of a registry, for the GPUs of this host or MIGraphX's CPU reference target.

    Each physical GPU runs one compile at a time, in a process of its own. If the interpreter also has a working
    onnxruntime-migraphx, the worker records the files that ONNX Runtime writes for models whose file names cannot be
    predicted.

    Every setting is in one configuration file, and in an environment variable of the same name: see `mxr-worker config
    sample`.
    """
    logs.configure("mxr-worker", debug=debug)
    logging.getLogger("urllib3").setLevel(logging.ERROR)


@program.command()
@click.option("--once", is_flag=True, help="Run one job in each slot, waiting for it if necessary, then exit.")
@click.option("--drain", is_flag=True, help="Exit when the queue has no job for this worker.")
@click.option("--job", metavar="ID", help="Run only this job, then exit.")
@click.option("--require-sandbox", is_flag=True, help="Refuse to run unless all walls around compiles hold.")
@settings_options
def run(once: bool, drain: bool, job: str | None, require_sandbox: bool, **given: Any) -> None:
    """Claim and compile jobs until the worker is stopped.

    Where a wall around compiles is open (`mxr-worker host` tells), it takes only jobs that its own principal asked for,
    and those that `--trust` names.

    After SIGTERM a running compile may continue for the time `worker.grace` (20 seconds); then it is stopped and its
    job returns to the queue. SIGINT, or a second signal, stops the compile immediately.
    """
    # The children have the same user, and models may be hostile.
    hide_process()
    if job and (once or drain):
        raise UsageError("--job cannot be combined with --once or --drain.", hint="Use only one of these options.")
    values = read_values(**given)
    for line in values.notes:
        logging.getLogger("mxr_workers").warning("%s", line)
    settings = settings_of(values, os.environ, once=once, drain=drain, job=job)
    if require_sandbox:
        settings = replace(settings, sandbox="require")
    worker = _worker(settings)
    for number, grace in ((signal.SIGTERM, settings.grace), (signal.SIGINT, 0.0)):
        signal.signal(number, lambda *_, grace=grace: worker.stop.begin(grace))
    worker.run()


@program.command()
@settings_options
def host(**given: Any) -> None:
    """Print what this host can compile, as a JSON document: its slots, and what its interpreter supports.

    `ort` is the ONNX Runtime whose files the worker can record; `refusals` explain what does not work; `sandbox` is
    what a child could do that tried what a hostile model would.
    """
    worker = _worker(settings_of(read_values(**given), os.environ))
    info = worker.describe_interpreter()
    walls = worker.close_walls(info)
    sandbox = {
        "whole": not walls.problem,
        "way": walls.way or None,
        "problem": walls.problem or None,
        "open": list(walls.open),
    }
    streams.write_json({**host_document(worker.slots(info), info), "sandbox": sandbox})


@program.command()
@settings_options
def key(**given: Any) -> None:
    """Print the public key of this worker, which is made if there is none, for an operator who enrolls it.

    From then on, the worker signs what it builds. Workers with the same file of worker.key_file have the same key.

    \b
    mxr-worker key > worker.pem
    mxr-registry key enroll worker.pem --name gpu-1        on the host of the registry
    """
    from mxr.trust.keys import SigningKey

    from .signing import find_key
    from .spool import Spool

    settings = settings_of(read_values(**given), os.environ)
    path = settings.signing_key
    found = find_key(path, named=False)
    if found is None:
        if settings.key_file is None:
            Spool(settings.spool)
        found = SigningKey.create(path)
        streams.write_line(f"Made {path}.", err=True)
    for line in found.public.pem.splitlines():
        streams.write_line(line)
    streams.write_line(f"Its fingerprint is {found.public.id}.", err=True)


def _worker(settings: WorkerSettings) -> WorkerProcess:
    for line in settings.registry.unused:
        logging.getLogger("mxr_workers").warning("%s", line)
    return WorkerProcess(settings, this_host(settings.registry))


def _in_force(values: ServiceValues) -> tuple[ServiceValues, Mapping[str, Any]]:
    """What is set here, else what `mxr` uses on this host. What `mxr` is told here is not one of its own options."""
    if not values.problems:
        client = client_settings(values, os.environ)
        found = {name: SetValue(getattr(client, name), client.sources.get(name, DEFAULT)) for name in CLIENT_OPTIONS}
        found |= {name: each for name, each in values.found.items() if each.source != DEFAULT or name not in found}
        values = replace(values, found={name: found[name] for name in values.found})
    return values, effective(values, os.environ)


program.add_command(
    config_commands(SCHEMA, settings_options, read_values, lambda values: settings_of(values, os.environ), _in_force)
)


if __name__ == "__main__":
    main()
