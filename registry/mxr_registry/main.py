"""The program `mxr-registry`: its commands, and the one place that prints errors."""

from __future__ import annotations

import logging
import sys

import click

from mxr.display import logs, streams
from mxr.errors import InterruptionError, MxrError, UsageError, missing_package

from . import serve_command
from .command_options import print_error
from .maintenance import commands
from .maintenance.namespace_commands import namespace


def main() -> None:
    """Run the program. Print an error as message and hint, and exit with its exit code."""
    debug = "--debug" in sys.argv
    try:
        sys.exit(program.main(standalone_mode=False) or 0)
    except click.ClickException as problem:
        error: MxrError = UsageError(problem.format_message(), hint="See mxr-registry --help.")
    except (click.Abort, KeyboardInterrupt):
        error = InterruptionError()
    except MxrError as problem:
        error = problem
        if debug:
            streams.write_traceback()
    except Exception as problem:
        if debug:
            streams.write_traceback()
        error = missing_package("mxr-registry", problem, "registry") or MxrError(
            f"Internal error in mxr-registry: {type(problem).__name__}: {problem}".splitlines()[0]
        )
    if "--json" in sys.argv:
        streams.write_json(error.to_json())
    print_error(error)
    sys.exit(error.exit)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mxr-cache", prog_name="mxr-registry")
def program(debug: bool) -> None:
    """Serve and maintain a registry of compiled MIGraphX programs.

    By default, the registry keeps a SQLite database and its files in one data directory. Set MXR_DATABASE_URL and
    MXR_STORE_URL to use another database or store.
    """
    logs.configure("mxr_registry", debug=debug)
    for library in ("alembic", "boto3", "botocore", "s3transfer", "urllib3"):
        logging.getLogger(library).setLevel(logging.WARNING)


for command in (serve_command.serve, commands.migrate, commands.move, commands.sweep, commands.fsck, namespace):
    program.add_command(command)


if __name__ == "__main__":
    main()
