"""The program `mxr-worker`, with the commands `run` and `host`. The environment is read only here."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

import click

from mxr.api import this_host
from mxr.display import logs, streams
from mxr.entry_point import run_program
from mxr.errors import MxrError, UsageError

from .settings import WorkerSettings, read_settings
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
    streams.write_error("mxr-worker", error.message, error.hint)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mxr-cache", prog_name="mxr-worker")
def program(debug: bool) -> None:
    """Compile queued jobs of a registry, for the GPUs of this host or MIGraphX's CPU reference target.

    Each physical GPU runs one compile at a time, in a process of its own. If the interpreter also has a working
    onnxruntime-migraphx, the worker records the files that ONNX Runtime writes for models whose file names cannot be
    predicted.

    Environment variables in addition to the options: MXR_WORKER_NAME (default: the host name), MXR_WORKER_SPOOL (a
    folder), MXR_WORKER_SECONDS and MXR_WORKER_TUNING_SECONDS (time limits of one compile), MXR_WORKER_MEMORY (bytes),
    MXR_WORKER_GRACE (seconds).
    """
    logs.configure("mxr-worker", debug=debug)
    logging.getLogger("urllib3").setLevel(logging.ERROR)


_registry = click.option("--registry", metavar="URL", help="URL of the registry [MXR_REGISTRY].")
_token = click.option("--token", metavar="TOKEN", help="Token for the registry [MXR_TOKEN].")
_plaintext = click.option(
    "--plaintext",
    is_flag=True,
    default=None,
    help="Send the token also over plain http to another machine [MXR_PLAINTEXT].",
)
_python = click.option(
    "--python",
    metavar="PATH",
    help="Python interpreter that has migraphx, and optionally onnxruntime-migraphx [MXR_WORKER_PYTHON].",
)
_kinds = click.option(
    "--kind",
    "kinds",
    type=click.Choice(["gpu", "ref"]),
    multiple=True,
    help="Compile only for targets of this kind; may be repeated. Default: every kind that works on this host.",
)


@program.command()
@click.option("--once", is_flag=True, help="Run one job in each slot, waiting for it if necessary, then exit.")
@click.option("--drain", is_flag=True, help="Exit when the queue has no job for this worker.")
@click.option("--job", metavar="ID", help="Run only this job, then exit.")
@_kinds
@_python
@_registry
@_token
@_plaintext
def run(**given: Any) -> None:
    """Claim and compile jobs until the worker is stopped.

    After SIGTERM a running compile may continue for MXR_WORKER_GRACE seconds; then it is stopped and its job returns to
    the queue. SIGINT, or a second signal, stops the compile immediately.
    """
    if given["job"] and (given["once"] or given["drain"]):
        raise UsageError("--job cannot be combined with --once or --drain.", hint="Use only one of these options.")
    settings = read_settings(os.environ, given)
    worker = _worker(settings)
    for number, grace in ((signal.SIGTERM, settings.grace), (signal.SIGINT, 0.0)):
        signal.signal(number, lambda *_, grace=grace: worker.stop.begin(grace))
    worker.run()


@program.command()
@_kinds
@_python
def host(**given: Any) -> None:
    """Print what this host can compile, as a JSON document: its slots, and what its interpreter supports.

    `ort` is the ONNX Runtime whose files the worker can record; `refusals` explain what does not work.
    """
    worker = _worker(read_settings(os.environ, given))
    info = worker.describe_interpreter()
    streams.write_json(host_document(worker.slots(info), info))


def _worker(settings: WorkerSettings) -> WorkerProcess:
    for line in settings.registry.unused:
        logging.getLogger("mxr_workers").warning("%s", line)
    return WorkerProcess(settings, this_host(settings.registry))


if __name__ == "__main__":
    main()
