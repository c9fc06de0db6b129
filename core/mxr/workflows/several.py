"""Several registries in an order: the first one that has a program gives it, and what is wrong with others is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mxr.errors import (
    DamagedError,
    InvalidReplyError,
    MxrError,
    NotFoundError,
    TemporaryError,
    UnauthenticatedError,
    UnreachableError,
    UntrustedError,
)
from mxr.settings import Settings

T = TypeVar("T")

PASSED = (
    *(NotFoundError, UnreachableError, TemporaryError),
    *(InvalidReplyError, DamagedError, UnauthenticatedError, UntrustedError),
)
"""What makes the next registry be asked: it has no program, or it cannot give one that is right."""

MISSES = (NotFoundError,)


def first_that_has(settings: Settings, fetch: Callable[[Settings], T], say: Callable[[str], object]) -> T:
    """Return what `fetch` returns for the first registry of the settings that has it.

    `say`: takes a sentence for each one that was passed over. Raises the error of the first registry, or of the first
    one that answered where the program is missing; what is no matter of a registry at once, and that one has recalled
    the program, which another one may not have heard of.
    """
    problems: list[MxrError] = []
    every = settings.each_registry
    for at, each in enumerate(every):
        try:
            return fetch(each)
        except PASSED as problem:
            if problem.context.get("reason") == "recalled":
                raise
            problems.append(problem)
            if at + 1 < len(every):
                say(f"{each.registry} was passed over: {problem.message}")
    raise next((each for each in problems if isinstance(each, MISSES)), problems[0])
