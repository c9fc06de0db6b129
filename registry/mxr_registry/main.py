"""The program `mxr-registry`: its commands, and the one place where an error is printed."""

from __future__ import annotations

import logging
import sys

import click

from mxr.errors import Interrupted, MxrError
from mxr.util.codec import canonical

from . import serve_command
from .command_options import tell
from .maintenance import commands


def main() -> None:
    """Run the program, print what went wrong in two lines, and end with the error's number."""
    debug = "--debug" in sys.argv
    try:
        sys.exit(program.main(standalone_mode=False) or 0)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except (click.Abort, KeyboardInterrupt):
        failed: MxrError = Interrupted()
    except MxrError as problem:
        if debug:
            raise
        failed = problem
    except Exception as problem:
        if debug:
            raise
        failed = MxrError(f"A fault of mxr-registry: {type(problem).__name__}: {problem}".splitlines()[0])
    if "--json" in sys.argv:
        click.echo(canonical(failed.to_json()))
    tell(failed)
    sys.exit(failed.exit)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mxr-cache", prog_name="mxr-registry")
def program(debug: bool) -> None:
    """The registry of compiled MIGraphX programs.

    Without configuration it keeps a SQLite database and the files under one data directory. MXR_DATABASE_URL and
    MXR_STORE_URL name others.
    """
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for talkative in ("alembic", "boto3", "botocore", "s3transfer", "urllib3"):
        logging.getLogger(talkative).setLevel(logging.WARNING)


for command in (serve_command.serve, commands.migrate, commands.move, commands.sweep, commands.fsck):
    program.add_command(command)


if __name__ == "__main__":
    main()
