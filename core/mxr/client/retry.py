"""The retry policy of every call to a registry.

Each policy repeats an operation after a temporary failure. It is limited by a number of attempts or by a deadline.
Pauses double from `base` to `longest` seconds and are shortened at random by up to a quarter, so that many clients do
not return at the same moment. A `Retry-After` header lengthens a pause, up to `longest`.

Worst case, not counting the time that the attempts themselves take:

    policy               attempts   seconds   used for
    None                        1         0   a request that must not be repeated, or that a later one replaces
    request_policy(15)                   15   one request; the time is the setting `retry`
    request_policy(HURRY)               1.5   one request for which the cache has a program; the default registry
    transfer_policy(15)                  15   one blob, up or down: after the last byte that moved
    DAMAGED                     4        15   one blob whose bytes are wrong
    until(SECONDS)                  SECONDS   what has begun: SECONDS after the first failure
    until(None)         unlimited             a worker without a job: until the worker stops

The last attempt starts at the deadline. One HTTP request takes at most 10 s to connect, and fails after the timeout of
the client (60 s by default) without a byte.

Policies do not multiply: a policy that runs inside an attempt of another one that repeats the same errors makes a
single attempt. There is one exception: blobs move in threads of their own, and each blob has the attempts of its
transfer within each attempt of the operation around it. `DiskFullError` is repeated only by `until`, because a disk
does not empty within seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import TypeVar

from mxr.display import progress
from mxr.errors import (
    DamagedBlobError,
    DiskFullError,
    MxrError,
    NotARegistryError,
    OtherRegistryError,
    TemporaryError,
    UnreachableError,
)
from mxr.util.frozen import dataclass

T = TypeVar("T")
Errors = tuple[type[MxrError], ...]

JITTER = 0.25
"""The largest part of a pause that is left out at random."""

_outer: ContextVar[Errors] = ContextVar("_outer", default=())
"""The errors that a policy around the current call already repeats."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When an operation is repeated, and for how long.

    `attempts`: the maximum number of calls, None without a limit. `base`, `longest`: seconds of the first pause and of
    the longest. `deadline`: seconds after the first failure within which the last attempt starts, None without one.
    `retries`: the errors after which the operation is repeated, except those in `fatal`.
    """

    attempts: int | None
    base: float = 0.0
    longest: float = 0.0
    deadline: float | None = None
    retries: Errors = ()
    fatal: Errors = ()

    def repeats(self, problem: MxrError) -> bool:
        """Whether this policy repeats an operation after this error."""
        return isinstance(problem, self.retries) and not isinstance(problem, self.fatal)

    def pause(self, failures: int) -> float:
        """Seconds of the pause after so many failures, without jitter."""
        # The exponent is bounded: 2.0**1024 overflows.
        return min(self.base * 2.0 ** min(failures - 1, 64), self.longest)


PASSING = (UnreachableError, TemporaryError)
FOREIGN = (OtherRegistryError,)
HURRY = 1.5
"""Seconds for which a request is repeated at most where the cache can answer, or where no registry was configured."""

TOLD = 3
"""The failure after which the user hears what he waits for."""

DAMAGED = RetryPolicy(attempts=4, base=0.5, longest=5.0, retries=(DamagedBlobError,))


def request_policy(seconds: float) -> RetryPolicy:
    """Return the policy of one request: it survives so many seconds of a registry that restarts or is busy."""
    fatal = (DiskFullError, NotARegistryError, OtherRegistryError)
    return RetryPolicy(attempts=None, base=0.2, longest=5.0, deadline=seconds, retries=PASSING, fatal=fatal)


def transfer_policy(seconds: float) -> RetryPolicy:
    """Return the policy of one blob, up or down."""
    return replace(request_policy(seconds), base=0.5)


OUTAGE = 300.0
"""Seconds for which an operation survives an outage of a registry that has answered it before."""


def until(seconds: float | None, *, longest: float = 10.0, also: Errors = ()) -> RetryPolicy:
    """Return the policy that repeats for so many seconds after the first failure; None for ever.

    `longest`: seconds of the longest pause. `also`: further errors after which the operation is repeated.
    """
    return RetryPolicy(
        attempts=None, base=0.5, longest=longest, deadline=seconds, retries=(*PASSING, *also), fatal=FOREIGN
    )


class Attempts:
    """The attempts of one operation under a policy, for callers that do something else during a pause.

    `retry` is the usual form. `clock` returns seconds; `jitter` returns a number from 0 to 1.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        clock: Callable[[], float] | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        # Looked up at run time, so that a test can replace the clock.
        self._clock = clock or time.monotonic
        self._jitter = jitter
        self.policy = policy
        self.failures = 0
        self._first_failure = 0.0

    def run(self, call: Callable[[], T]) -> T:
        """Make one attempt. Returns what `call` returns, and counts the failures from zero again after a success."""
        token = _outer.set(_outer.get() + self.policy.retries)
        try:
            result = call()
        finally:
            _outer.reset(token)
        self.failures = 0
        return result

    def pause_after(self, problem: MxrError) -> float:
        """Count a failed attempt and return the seconds until the next one. Raises `problem` where there is none."""
        now = self._clock()
        if self.failures == 0:
            self._first_failure = now
        self.failures += 1
        policy = self.policy
        if not policy.repeats(problem) or (policy.attempts is not None and self.failures >= policy.attempts):
            raise problem
        pause = policy.pause(self.failures) * (1 - JITTER * self._jitter())
        if problem.retry_after is not None:
            pause = max(pause, min(problem.retry_after, policy.longest))
        if policy.deadline is None:
            return pause
        left = self._first_failure + policy.deadline - now
        if left <= 0:
            raise problem
        return min(pause, left)


def retry(
    policy: RetryPolicy | None,
    call: Callable[[], T],
    *,
    stop: Callable[[], bool] = lambda: False,
    moved: Callable[[], object] | None = None,
    sleep: Callable[[float], object] | None = None,
    clock: Callable[[], float] | None = None,
) -> T:
    """Return what `call` returns, and calls it again after temporary failures as the policy says.

    `moved` returns another value when an attempt got further before it failed: then the policy begins anew.

    Raises the last error when the policy ends, when `stop` returns true after a failure, and at once for any error that
    the policy does not repeat. Inside an attempt of a policy that repeats the same errors, there is one attempt only.
    """
    if policy is None or all(issubclass(each, _outer.get()) for each in policy.retries):
        return call()
    attempts = Attempts(policy, clock=clock)
    mark = moved and moved()
    while True:
        try:
            return attempts.run(call)
        except MxrError as problem:
            if moved and mark != (mark := moved()):
                attempts.failures = 0
            pause = attempts.pause_after(problem)
            if stop():
                raise
            if attempts.failures == TOLD and policy.deadline is not None and policy.deadline > HURRY:
                progress.tell(f"{problem.message} Trying again for {policy.deadline:.0f} s.")
        (sleep or time.sleep)(pause)
