"""The retry policies: their worst cases, pauses, and that policies inside each other do not multiply."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from mxr.client.retry import (
    DAMAGED,
    HURRY,
    JITTER,
    Attempts,
    RetryPolicy,
    request_policy,
    retry,
    transfer_policy,
    until,
)
from mxr.display import progress
from mxr.errors import (
    ConflictError,
    DamagedBlobError,
    DiskFullError,
    MxrError,
    NoSuchBlobError,
    TemporaryError,
    UnreachableError,
    UsageError,
)

REQUEST, TRANSFER, HURRIED = request_policy(15.0), transfer_policy(15.0), request_policy(HURRY)
OUTAGE, ALWAYS = until(300.0), until(None, longest=30.0)
WORST = {"request": (REQUEST, 15.0), "transfer": (TRANSFER, 15.0), "hurried": (HURRIED, 1.5), "outage": (OUTAGE, 300.0)}
"""The seconds that the documentation of the module says."""


class Clock:
    """A clock that only pauses move forward."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Failing:
    """An operation that fails with these errors, one after the other, and then succeeds."""

    def __init__(self, *problems: MxrError) -> None:
        self.problems, self.calls = list(problems), 0

    def __call__(self) -> str:
        self.calls += 1
        if self.problems:
            raise self.problems.pop(0)
        return "done"


class Down:
    """An operation that always fails with the same error."""

    def __init__(self, problem: MxrError) -> None:
        self.problem, self.calls = problem, 0

    def __call__(self) -> None:
        self.calls += 1
        raise self.problem


def run(policy: RetryPolicy, call: Callable[[], object]) -> Clock:
    clock = Clock()
    with pytest.raises(MxrError):
        retry(policy, call, sleep=clock.sleep, clock=clock)
    return clock


@pytest.mark.parametrize("name", WORST)
def test_the_worst_case_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, seconds = WORST[name]
    # The shortest pauses give the most attempts; a Retry-After header gives the longest time.
    for shortest in (True, False):
        monkeypatch.setattr(Attempts.__init__, "__kwdefaults__", {"clock": None, "jitter": partial(float, shortest)})
        problem = policy.retries[0]()
        problem.retry_after = None if shortest else 10_000.0
        call = Down(problem)
        clock = run(policy, call)
        assert clock.now - 1000.0 <= seconds
        assert policy.attempts in (None, call.calls)
        assert clock.now - 1000.0 == pytest.approx(seconds), "it gives up too early"


def test_pauses_double_up_to_the_longest_and_are_jittered() -> None:
    clock = run(OUTAGE, Down(UnreachableError()))
    for failures, pause in enumerate(clock.pauses[:-1], 1):
        full = min(OUTAGE.base * 2 ** (failures - 1), OUTAGE.longest)
        assert full * (1 - JITTER) <= pause <= full
    assert len(set(clock.pauses)) > 10, "clients must not return at the same moment"


def test_a_policy_without_limits_has_finite_pauses() -> None:
    assert ALWAYS.pause(10_000) == ALWAYS.longest


def test_success_ends_it() -> None:
    clock, call = Clock(), Failing(UnreachableError(), TemporaryError())
    assert retry(REQUEST, call, sleep=clock.sleep, clock=clock) == "done"
    assert call.calls == 3 and len(clock.pauses) == 2


@pytest.mark.parametrize("problem", [UsageError("no"), ConflictError("no"), MxrError("a bug"), DiskFullError()])
def test_other_errors_are_raised_at_once(problem: MxrError) -> None:
    call = Down(problem)
    assert run(REQUEST, call).pauses == [] and call.calls == 1


def test_a_full_disk_is_waited_for_under_a_deadline_only() -> None:
    assert not REQUEST.repeats(DiskFullError()) and not TRANSFER.repeats(DiskFullError())
    assert OUTAGE.repeats(DiskFullError()) and ALWAYS.repeats(DiskFullError())


def test_retry_after_lengthens_a_pause_within_bounds() -> None:
    for asked, pause in ((3.0, 3.0), (1e6, REQUEST.longest)):
        problem = TemporaryError()
        problem.retry_after = asked
        *pauses, last = run(REQUEST, Down(problem)).pauses
        assert set(pauses) == {pause} and last <= pause


def test_who_waits_hears_why_once() -> None:
    said: list[str] = []
    token = progress.notice.set(said.append)
    try:
        run(REQUEST, Down(UnreachableError("It does not answer.")))
        run(HURRIED, Down(UnreachableError("It does not answer.")))
    finally:
        progress.notice.reset(token)
    assert said == ["It does not answer. Trying again for 15 s."]


def test_stop_ends_it_after_a_failure() -> None:
    call = Down(UnreachableError())
    with pytest.raises(UnreachableError):
        retry(OUTAGE, call, stop=lambda: True)
    assert call.calls == 1


def test_the_deadline_counts_from_the_first_failure_after_a_success() -> None:
    clock = Clock()
    attempts = Attempts(OUTAGE, clock=clock)
    for _ in range(3):
        for _ in range(5):
            clock.sleep(attempts.pause_after(UnreachableError()))
        clock.sleep(10_000.0)
        assert attempts.run(lambda: "done") == "done"
        assert attempts.failures == 0


def test_policies_inside_each_other_do_not_multiply() -> None:
    clock, call = Clock(), Down(UnreachableError())
    with pytest.raises(UnreachableError):
        retry(
            TRANSFER,
            lambda: retry(REQUEST, lambda: retry(None, call), sleep=clock.sleep),
            sleep=clock.sleep,
            clock=clock,
        )
    assert call.calls == len(clock.pauses) + 1
    # Outside again, the inner policy has all of its attempts.
    call.calls = 0
    assert call.calls < len(run(REQUEST, call).pauses)


def test_an_attempt_that_got_further_begins_anew() -> None:
    """A download of an hour may be cut each minute."""
    clock, done = Clock(), 0

    def call() -> str:
        nonlocal done
        clock.now += 60.0
        done += 1
        if done < 60:
            raise UnreachableError
        return "done"

    assert retry(TRANSFER, call, moved=lambda: done, sleep=clock.sleep, clock=clock) == "done"
    assert max(clock.pauses) <= TRANSFER.base
    done = 0
    with pytest.raises(UnreachableError):
        retry(TRANSFER, call, sleep=clock.sleep, clock=clock)


def test_a_policy_for_other_errors_keeps_its_attempts() -> None:
    swept = RetryPolicy(attempts=3, retries=(NoSuchBlobError,))
    call, clock = Down(UnreachableError()), Clock()
    with pytest.raises(UnreachableError):
        retry(swept, lambda: retry(REQUEST, call, sleep=clock.sleep, clock=clock))
    assert call.calls == len(clock.pauses) + 1
    damaged = Down(DamagedBlobError())
    assert len(run(DAMAGED, lambda: retry(TRANSFER, damaged)).pauses) == 3 and damaged.calls == DAMAGED.attempts


def test_a_thread_of_its_own_has_its_own_attempts() -> None:
    call, clock = Down(UnreachableError()), Clock()

    def transfer() -> None:
        thread = threading.Thread(target=lambda: run(TRANSFER, call))
        thread.start()
        thread.join()
        raise UnreachableError

    with pytest.raises(UnreachableError):
        retry(REQUEST, transfer, sleep=clock.sleep, clock=clock)
    alone = len(run(TRANSFER, Down(UnreachableError())).pauses)
    assert call.calls >= (len(clock.pauses) + 1) * alone
