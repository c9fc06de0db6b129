"""The program `mxr-worker`: run, host. Reads the environment, once."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import Any

import click

from mxr.api import this_host
from mxr.errors import Interrupted, MxrError, Usage

from .settings import WorkerSettings, read
from .slots import shown
from .worker import WorkerProcess


def main() -> None:
    """Run the program, print what went wrong in two lines, and end with the error's number."""
    debug = "--debug" in sys.argv
    try:
        sys.exit(program.main(standalone_mode=False) or 0)
    except click.ClickException as problem:
        failed: MxrError = Usage(problem.format_message(), hint="See mxr-worker --help.")
    except (click.Abort, KeyboardInterrupt):
        failed = Interrupted()
    except MxrError as problem:
        if debug:
            raise
        failed = problem
    except Exception as problem:
        if debug:
            raise
        failed = MxrError(f"A fault of mxr-worker: {type(problem).__name__}: {problem}".splitlines()[0])
    click.echo(f"mxr-worker: {failed.message}\n     {failed.hint}", err=True)
    sys.exit(failed.exit)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mxr-cache", prog_name="mxr-worker")
def program(debug: bool) -> None:
    """Compiles what the registry has queued, for the GPUs of this host or MIGraphX's CPU reference target.

    One compile at a time for each physical GPU, each in a process of its own. Where its interpreter has a working
    onnxruntime-migraphx too, it records the files that ONNX Runtime writes, for names that nobody can tell.

    Settings beyond the options: MXR_WORKER_NAME, MXR_WORKER_SPOOL (a folder), MXR_WORKER_SECONDS and
    MXR_WORKER_TUNING_SECONDS (of one compile), MXR_WORKER_MEMORY (bytes), MXR_WORKER_GRACE (seconds).
    """
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("urllib3").setLevel(logging.ERROR)


_registry = click.option("--registry", metavar="URL", help="The registry [MXR_REGISTRY].")
_token = click.option("--token", metavar="TOKEN", help="The token to show it [MXR_TOKEN].")
_python = click.option(
    "--python",
    metavar="PATH",
    help="The interpreter that has migraphx (and onnxruntime-migraphx) [MXR_WORKER_PYTHON].",
)
_kinds = click.option(
    "--kind", "kinds", type=click.Choice(["gpu", "ref"]), multiple=True, help="Compile for this; all that work here."
)


@program.command()
@click.option("--once", is_flag=True, help="Do one job in each slot, waiting for it, and end.")
@click.option("--drain", is_flag=True, help="End when nothing is left to claim.")
@click.option("--job", metavar="ID", help="Do this job and no other.")
@_kinds
@_python
@_registry
@_token
def run(**given: Any) -> None:
    """Claim jobs and compile them until told to stop.

    SIGTERM lets a running compile go on for MXR_WORKER_GRACE seconds, then hands its job back; SIGINT, or a second
    signal, does that at once.
    """
    if given["job"] and (given["once"] or given["drain"]):
        raise Usage("--job goes with neither --once nor --drain.", hint="Give one of them.")
    settings = read(os.environ, given)
    worker = _worker(settings)
    for number, grace in ((signal.SIGTERM, settings.grace), (signal.SIGINT, 0.0)):
        signal.signal(number, lambda *_, grace=grace: worker.stopping.begin(grace))
    worker.run()


@program.command()
@_kinds
@_python
def host(**given: Any) -> None:
    """Print what this host could compile for, as one JSON document: its slots, and what its interpreter offers.

    `ort` is the ONNX Runtime whose files it could record; `refusals` say why something does not work.
    """
    worker = _worker(read(os.environ, given))
    about = worker.about()
    click.echo(json.dumps(shown(worker.slots(about), about), indent=2 if sys.stdout.isatty() else None))


def _worker(settings: WorkerSettings) -> WorkerProcess:
    return WorkerProcess(settings, this_host(settings.registry))


if __name__ == "__main__":
    main()
