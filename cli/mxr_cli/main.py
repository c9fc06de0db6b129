"""The `mxr` command group: finds the command, prints an error once, and exits with its number."""

from __future__ import annotations

import importlib
import keyword
import sys
from typing import Any

import click

from mxr.errors import Interrupted, MxrError, Usage

from .output import FailureStyle, fail

COMMANDS = {
    "fetch": ("fetch", "Get the right program for a model and a target."),
    "key": ("key", "Show the key of a request, its digest and the model hash."),
    "push": ("push", "Publish a compiled program."),
    "inspect": ("programs", "Tell what a .mxr file was compiled for."),
    "check": ("programs", "Tell whether a .mxr file will load here."),
    "diff": ("programs", "Show how two .mxr files differ."),
    "explain": ("explain", "Say in plain words what an error text means, and what fixes it."),
    "ls": ("artifacts", "List what the registry has."),
    "show": ("artifacts", "Show one artifact."),
    "promote": ("artifacts", "Make an artifact the first choice for its key."),
    "rm": ("artifacts", "Take an artifact out of the registry."),
    "precompile": ("precompile", "Have every program of a matrix compiled that is not there yet."),
    "plan": ("plan", "Show what a matrix would cost, before anything is compiled."),
    "lock": ("lock", "Write down which artifacts were tested, and watch over them."),
    "verify": ("lock", "Check files on disk against a lock, or a folder after its consumer has run."),
    "export": ("bundle", "Write a bundle of artifacts, to be carried to where there is no network."),
    "import": ("bundle", "Bring a bundle into the cache or a registry, or record ONNX Runtime's files."),
    "jobs": ("jobs", "List jobs, or show, follow or cancel one."),
    "workers": ("jobs", "List workers and declared pools."),
    "freeze": ("freeze", "Write a model with static shapes, one file per batch."),
    "host": ("host", "Show what this machine is, and how that was found."),
    "consumers": ("host", "List the programs that load .mxr files, with their flags."),
    "kserve-init": ("kserve", "Be KServe's storage initialiser for mxr:// URIs."),
    "cache": ("cache", "Look after the local cache."),
}
"""Each command with the file of its family, loaded only when it is called: `mxr fetch` must start fast."""


class Commands(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        family = importlib.import_module(f"mxr_cli.{COMMANDS[cmd_name][0]}")
        name = cmd_name.replace("-", "_")
        found: click.Command = getattr(family, f"{name}_" if keyword.iskeyword(name) else name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            raise Usage(
                f"There is no command {args[0]!r}.", hint=f"Did you mean {near[0]}?" if near else "See mxr --help."
            )
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="mxr-cache", message="mxr %(version)s")
def mxr() -> None:
    """The right compiled MIGraphX program (.mxr) for every GPU, and never a wrong one.

    \b
    mxr fetch model.onnx --arch gfx908 --rocm 7.2 --migraphx 2.15 -o model.mxr
    mxr push model.mxr --model model.onnx --rocm 7.2.1 --for python
    mxr inspect model.mxr

    Exit codes: 0 done, 2 usage, 3 no such artifact, 4 not compiled yet, 5 the compile failed, 6 mismatch: refused,
    7 not allowed, 8 no worker can compile this, 65 damaged or foreign file, 69 registry not reachable, 70 internal
    error, 75 temporary: try again, 130 interrupted.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with the number of what happened."""
    arguments = sys.argv[1:] if arguments is None else arguments
    failure = FailureStyle(as_json="--json" in arguments, debug="--debug" in arguments)
    try:
        result: Any = mxr.main(arguments, prog_name="mxr", standalone_mode=False)
    except click.exceptions.Exit as done:
        result = done.exit_code
    except (click.Abort, KeyboardInterrupt):
        result = fail(Interrupted(), failure)
    except click.ClickException as problem:
        result = fail(Usage(problem.format_message(), hint=_hint(problem)), failure)
    except MxrError as problem:
        result = fail(problem, failure)
    except BrokenPipeError:
        # Whoever read our output has gone: the rest of it is nobody's, and Python must not complain at exit.
        sys.stdout = None
        result = 141
    except Exception as problem:
        result = fail(MxrError(f"{type(problem).__name__}: {problem}"), failure)
    sys.exit(result if isinstance(result, int) else 0)


def _hint(problem: click.ClickException) -> str:
    context = getattr(problem, "ctx", None)
    return f"See {context.command_path} --help." if context else "See mxr --help."


if __name__ == "__main__":
    main()
