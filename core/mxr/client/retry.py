"""The retry policy of every call to a registry.

Each policy repeats an operation after a temporary failure. It is limited by a number of attempts or by a deadline.
Pauses double from `base` to `longest` seconds and are shortened at random by up to a quarter, so that many clients do
not return at the same moment. A `Retry-After` header lengthens a pause, up to `longest`.

Worst case of each policy, not counting the time that the attempts themselves take:

    policy      attempts   seconds   used for
    ONCE               1         0   a request that must not be repeated, or that a later one replaces
    REQUEST            4        15   one request
    TRANSFER           4        15   one blob, up or down
    PUBLISH            3         0   upload and publish again what garbage collection removed in between
    HAND_BACK         14        10   a worker that returns a job
    JOB_INPUT         19        60   a worker that downloads the model of a job
    OUTAGE            44       300   any operation after the registry answered once
    POLL             202       300   following a job: counted from the first failure after an answer
    DELIVERY         484      3600   a worker that must deliver a finished program or the reason for its failure
    HEARTBEAT  unlimited             a lease: until the work on the job ends
    CLAIM      unlimited             a worker without a job: until the worker stops

Policies from HAND_BACK to DELIVERY have a deadline, counted from the first failure: no attempt starts after it. Their
worst case is therefore the first attempt, the seconds above, and one more attempt. DELIVERY pauses for at most a sixth
of the lease where that is less than 10 s, so that several attempts fit into a lease; this adds attempts, not time. One
HTTP request takes at most 10 s to connect, and fails after the timeout of the client (60 s by default) without a byte.

Policies do not multiply: a policy that runs inside an attempt of another one that repeats the same errors makes a
single attempt. There is one exception: blobs move in threads of their own, and each blob has the attempts of TRANSFER
within each attempt of the operation around it. `DiskFullError` is repeated only under a deadline, because a disk does
not empty within seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from mxr.errors import (
    DamagedBlobError,
    DiskFullError,
    MxrError,
    NoSuchBlobError,
    NotARegistryError,
    TemporaryError,
    UnauthenticatedError,
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
    retries: Errors = (UnreachableError, TemporaryError)
    fatal: Errors = ()

    def repeats(self, problem: MxrError) -> bool:
        """Whether this policy repeats an operation after this error."""
        return isinstance(problem, self.retries) and not isinstance(problem, self.fatal)

    def pause(self, failures: int) -> float:
        """Seconds of the pause after so many failures, without jitter."""
        # The exponent is bounded: 2.0**1024 overflows.
        return min(self.base * 2.0 ** min(failures - 1, 64), self.longest)


ONCE = RetryPolicy(attempts=1)
REQUEST = RetryPolicy(attempts=4, base=0.2, longest=5.0, fatal=(DiskFullError, NotARegistryError))
TRANSFER = RetryPolicy(
    attempts=4,
    base=0.5,
    longest=5.0,
    retries=(UnreachableError, TemporaryError, DamagedBlobError),
    fatal=(DiskFullError, NotARegistryError),
)
PUBLISH = RetryPolicy(attempts=3, retries=(NoSuchBlobError,))
HAND_BACK = RetryPolicy(attempts=None, base=0.5, longest=1.0, deadline=10.0)
RENEWED = (UnreachableError, TemporaryError, UnauthenticatedError)
"""What passes while a token is being renewed, too: work that was begun must not be lost by it."""

JOB_INPUT = RetryPolicy(attempts=None, base=0.5, longest=5.0, deadline=60.0, retries=RENEWED)
OUTAGE = RetryPolicy(attempts=None, base=0.5, longest=10.0, deadline=300.0)
POLL = RetryPolicy(attempts=None, base=0.5, longest=2.0, deadline=300.0)
DELIVERY = RetryPolicy(attempts=None, base=0.5, longest=10.0, deadline=3600.0, retries=RENEWED)
HEARTBEAT = RetryPolicy(attempts=None, base=2.0, longest=2.0)
CLAIM = RetryPolicy(attempts=None, base=1.0, longest=30.0, retries=(MxrError,))


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
        if policy.deadline is not None and now + pause > self._first_failure + policy.deadline:
            raise problem
        return pause


def retry(
    policy: RetryPolicy,
    call: Callable[[], T],
    *,
    stop: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], object] | None = None,
    clock: Callable[[], float] | None = None,
) -> T:
    """Return what `call` returns, and calls it again after temporary failures as the policy says.

    Raises the last error when the policy ends, when `stop` returns true after a failure, and at once for any error that
    the policy does not repeat. Inside an attempt of a policy that repeats the same errors, there is one attempt only.
    """
    if all(issubclass(each, _outer.get()) for each in policy.retries):
        return call()
    attempts = Attempts(policy, clock=clock)
    while True:
        try:
            return attempts.run(call)
        except MxrError as problem:
            pause = attempts.pause_after(problem)
            if stop():
                raise
        (sleep or time.sleep)(pause)
