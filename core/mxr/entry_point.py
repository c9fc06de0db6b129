"""How a program ends: the one place that turns what a command raised into an error and an exit code."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from mxr.display import streams
from mxr.errors import InterruptionError, MxrError, UsageError, missing_package


def run_program(
    name: str,
    command: Callable[[], object],
    report: Callable[[MxrError], object],
    parser: Any,
    extra: str = "",
) -> NoReturn:
    """Run the command of a program and exit: with its result, or after `report` printed the error that it raised.

    `parser`: click, which parses the command line; the core does not import it. `extra`: the optional dependencies of
    the program, for the error that names a missing package.
    """
    try:
        result = command()
    except SystemExit:
        raise
    except BrokenPipeError:
        streams.abandon_output()
        sys.exit(141)
    except BaseException as problem:
        if isinstance(problem, (parser.Abort, KeyboardInterrupt)):
            error: MxrError = InterruptionError()
        elif isinstance(problem, getattr(parser.exceptions, "NoArgsIsHelpError", ())):
            # Its message is the help. Older versions of click print it themselves.
            streams.write_text(str(problem), err=True)
            sys.exit(UsageError.exit)
        elif isinstance(problem, parser.ClickException):
            error = _usage_error(name, problem)
        elif isinstance(problem, MxrError):
            error = problem
        elif isinstance(problem, Exception):
            error = missing_package(name, problem, extra) or _internal_error(name, problem)
        else:
            raise
        report(error)
        sys.exit(error.exit)
    sys.exit(result if isinstance(result, int) else 0)


def leave(ended: SystemExit) -> NoReturn:
    """End the process as Python would. Where nothing waits for the end of the interpreter, do not take it apart.

    That takes a tenth of a fetch from the cache. What waits: functions that are registered with `atexit`, and threads
    that are no daemons.
    """
    code = ended.code or 0
    registered = getattr(atexit, "_ncallbacks", lambda: 1)()
    threading = sys.modules.get("threading")
    others = [each for each in threading.enumerate() if not each.daemon] if threading else []
    if registered == 0 and len(others) <= 1 and isinstance(code, int):
        # What cannot be flushed is reported in the usual way.
        with suppress(OSError, ValueError):
            streams.flush_output()
            os._exit(code)
    raise ended


def _usage_error(name: str, problem: Any) -> UsageError:
    context = getattr(problem, "ctx", None)
    return UsageError(problem.format_message(), hint=f"See {context.command_path if context else name} --help.")


def _internal_error(name: str, problem: Exception) -> MxrError:
    return MxrError(f"Internal error in {name}: {type(problem).__name__}: {problem}".splitlines()[0])
