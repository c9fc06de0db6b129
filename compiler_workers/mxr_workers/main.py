"""The program `mxr-worker`, with the commands `run` and `host`. The environment is read only here."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

import click

from mxr.display import logs, streams
from mxr.entry_point import run_program
from mxr.errors import MxrError, UsageError
from mxr.request.defaults import this_host

from .command_options import print_error, read_values, settings_options
from .config_command import config
from .settings import WorkerSettings, settings_of
from .slots import host_document
from .worker import WorkerProcess


def main() -> None:
    """Run the program. An error prints its message and its hint, and sets the exit code."""
    run_program(
        "mxr-worker",
        lambda: program.main(standalone_mode=False),
        _report,
        usage=click.ClickException,
        abort=click.Abort,
        extra="workers",
    )


def _report(error: MxrError) -> None:
    if "--debug" in sys.argv:
        streams.write_traceback()
    print_error(error)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mxr-cache", prog_name="mxr-worker")
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
@settings_options
def run(once: bool, drain: bool, job: str | None, **given: Any) -> None:
    """Claim and compile jobs until the worker is stopped.

    After SIGTERM a running compile may continue for the time `worker.grace` (20 seconds); then it is stopped and its
    job returns to the queue. SIGINT, or a second signal, stops the compile immediately.
    """
    if job and (once or drain):
        raise UsageError("--job cannot be combined with --once or --drain.", hint="Use only one of these options.")
    values = read_values(given)
    for line in values.notes:
        logging.getLogger("mxr_workers").warning("%s", line)
    settings = settings_of(values, os.environ, once=once, drain=drain, job=job)
    worker = _worker(settings)
    for number, grace in ((signal.SIGTERM, settings.grace), (signal.SIGINT, 0.0)):
        signal.signal(number, lambda *_, grace=grace: worker.stop.begin(grace))
    worker.run()


@program.command()
@settings_options
def host(**given: Any) -> None:
    """Print what this host can compile, as a JSON document: its slots, and what its interpreter supports.

    `ort` is the ONNX Runtime whose files the worker can record; `refusals` explain what does not work.
    """
    worker = _worker(settings_of(read_values(given), os.environ))
    info = worker.describe_interpreter()
    streams.write_json(host_document(worker.slots(info), info))


def _worker(settings: WorkerSettings) -> WorkerProcess:
    for line in settings.registry.unused:
        logging.getLogger("mxr_workers").warning("%s", line)
    return WorkerProcess(settings, this_host(settings.registry))


program.add_command(config)


if __name__ == "__main__":
    main()
