"""The `mxr` command group: selects the command, prints errors, sets the exit code."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

import click

from mxr.display import progress
from mxr.entry_point import leave, run_program
from mxr.errors import UsageError
from mxr.version import __version__

from .output import ErrorFormat, note, print_error

GROUPS = {
    "Fetch and publish": {
        "fetch": "Fetch the compiled program for a model and a target",
        "push": "Publish a compiled program to the registry",
        "ls": "List the artifacts in the registry",
        "show": "Show the details of an artifact",
        "promote": "Make an artifact the first choice for its key",
        "yank": "Let no request choose an artifact any more",
        "quarantine": "Give an artifact to nobody any more",
        "unyank": "End a yank or a quarantine",
        "statement": "Export what was signed of an artifact, import what others signed",
        "history": "List who published, promoted and removed what",
        "rm": "Remove an artifact from the registry",
    },
    "Compile": {
        "misses": "List what was requested and not found",
        "jobs": "List compile jobs, or show, follow or cancel one",
        "workers": "List workers and declared worker pools",
        "freeze": "Write a copy of a model with static shapes per batch size",
    },
    "Teams and CI": {
        "plan": "Show what a matrix or an upgrade would compile",
        "precompile": "Compile the missing programs of a matrix",
        "lock": "Pin the artifacts that requests resolve to in a lock file",
        "tag": "Name a lock in the registry, such as prod, and move the name",
        "verify": "Verify files on disk against a lock file",
        "export": "Export artifacts to a bundle for offline use",
        "import": "Import a bundle, or publish the cache of an ONNX Runtime",
        "kserve-init": "Act as a KServe storage initializer for mxr:// URIs",
    },
    "Look and explain": {
        "inspect": "Show what a .mxr file was compiled for",
        "check": "Check whether a .mxr file fits a host or target",
        "diff": "Show the differences between two .mxr files",
        "explain": "Explain an error message or a log, and how to fix it",
        "host": "Show the GPUs and the toolchain of this host",
        "key": "Show the key of a request and its digest",
        "identity": "Print the identity of a model",
        "consumers": "List the supported consumers and their compile flags",
    },
    "Set up": {
        "login": "Store the token for a registry",
        "logout": "Remove the stored token for a registry",
        "open": "Open the pages of the registry in a browser",
        "trust": "Require that a registry signed what is fetched from it",
        "whoami": "Show the principal and the scopes of the token that is sent",
        "config": "Show the settings and where each comes from",
        "cache": "Manage the local cache",
        "completion": "Print the script by which a shell completes mxr",
    },
}
"""The commands by group, each with its line in `mxr --help`. The help imports no command module: it must be fast."""

COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}

MODULES = (
    dict.fromkeys(("ls", "show", "promote", "rm"), "artifacts")
    | dict.fromkeys(("yank", "quarantine", "unyank"), "recall")
    | dict.fromkeys(("logout", "whoami"), "login")
    | {"identity": "key", "diff": "inspect", "import": "import_", "open": "open_"}
)
"""The modules of commands, where they are not named like the command."""

OTHER_NAMES = {
    "version": "--version",
    "help": "--help",
    **dict.fromkeys(("pull", "get", "download"), "fetch"),
    **dict.fromkeys(("publish", "upload", "put"), "push"),
    **dict.fromkeys(("list", "search"), "ls"),
    **dict.fromkeys(("delete", "remove"), "rm"),
}
"""What other programs call it."""

EXIT_CODES = """\b
Exit codes:
  0   success
  2   usage error
  3   no such artifact, model or file
  4   not compiled yet
  5   the compile failed
  6   mismatch: refused because it would not fit, or was recalled
  7   not allowed
  8   no worker can compile this
  65  damaged or foreign file
  69  registry unreachable
  70  internal error
  75  temporary failure: try again
  130 interrupted
"""


class LazyCommands(click.Group):
    """A command group that imports the module of a command when the command is called: `mxr fetch` must start fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mxr_cli.commands.{MODULES.get(cmd_name, cmd_name.replace('-', '_'))}")
        return next(each for each in vars(module).values() if isinstance(each, click.Command) and each.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            similar = (
                [OTHER_NAMES[args[0]]] if args[0] in OTHER_NAMES else difflib.get_close_matches(args[0], COMMANDS, 1)
            )
            raise UsageError(
                f"Unknown command {args[0]!r}.",
                hint=f"Did you mean mxr {similar[0]}?" if similar else "See mxr --help.",
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, message="mxr %(version)s")
def mxr() -> None:
    """Fetch, publish and compile MIGraphX programs (.mxr) for every GPU of a fleet.

    \b
    mxr fetch model.onnx --arch gfx908 -o model.mxr
    mxr push model.mxr --model model.onnx --rocm 7.2.1 --for python
    mxr inspect model.mxr
    """


def _show_progress(action: str, total: int) -> progress.Step:
    from .byte_progress import ByteProgress

    return ByteProgress(action, total)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: `arguments` default to those of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    progress.display.set(_show_progress)
    progress.notice.set(lambda sentence: note(f"mxr: {sentence}"))
    error_format = ErrorFormat(as_json="--json" in arguments, traceback="--debug" in arguments)
    run_program(
        "mxr",
        lambda: mxr.main(arguments, prog_name="mxr", standalone_mode=False),
        lambda error: print_error(error, error_format),
        click,
    )


def script() -> NoReturn:
    """Run the installed command `mxr`."""
    try:
        main()
    except SystemExit as ended:
        leave(ended)


if __name__ == "__main__":
    script()
