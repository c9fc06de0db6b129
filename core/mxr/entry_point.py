"""How a program ends: the one place that turns what a command raised into an error and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from mxr.display import streams
from mxr.errors import InterruptionError, MxrError, UsageError, missing_package


def run_program(
    name: str,
    command: Callable[[], object],
    report: Callable[[MxrError], object],
    *,
    usage: type[Exception],
    abort: type[Exception],
    extra: str = "",
) -> NoReturn:
    """Run the command of a program and exit: with its result, or after `report` printed the error that it raised.

    `usage`, `abort`: the exceptions of the library that parses the command line. `extra`: the optional dependencies of
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
        if isinstance(problem, (abort, KeyboardInterrupt)):
            error: MxrError = InterruptionError()
        elif isinstance(problem, usage):
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


def _usage_error(name: str, problem: Any) -> UsageError:
    context = getattr(problem, "ctx", None)
    return UsageError(problem.format_message(), hint=f"See {context.command_path if context else name} --help.")


def _internal_error(name: str, problem: Exception) -> MxrError:
    return MxrError(f"Internal error in {name}: {type(problem).__name__}: {problem}".splitlines()[0])
