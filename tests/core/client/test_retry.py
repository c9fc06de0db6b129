"""The retry policies: their worst cases, pauses, and that policies inside each other do not multiply."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial

import pytest

from mxr.client import retry as retry_module
from mxr.client.retry import (
    CLAIM,
    DELIVERY,
    HEARTBEAT,
    JITTER,
    ONCE,
    OUTAGE,
    PUBLISH,
    REQUEST,
    TRANSFER,
    Attempts,
    RetryPolicy,
    retry,
)
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

POLICIES = {name: value for name, value in vars(retry_module).items() if isinstance(value, RetryPolicy)}


def worst_case(policy: RetryPolicy) -> tuple[int | None, float | None]:
    """The most attempts, and the most seconds of pauses; None where there is no limit."""
    if policy.deadline is None:
        return policy.attempts, None if policy.attempts is None else (policy.attempts - 1) * policy.longest
    count, elapsed = 1, 0.0
    while (elapsed := elapsed + policy.pause(count) * (1 - retry_module.JITTER)) <= policy.deadline:
        count += 1
    return count if policy.attempts is None else min(count, policy.attempts), policy.deadline


LIMITED = sorted(name for name, policy in POLICIES.items() if worst_case(policy)[0] is not None)


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


def table() -> dict[str, tuple[int | None, float | None]]:
    """The table in the docstring of the module."""
    rows = re.findall(r"^ {4}([A-Z_]+) +(?:(\d+) +(\d+)|unlimited) +\S", retry_module.__doc__ or "", re.MULTILINE)
    return {name: (int(most), float(seconds)) if most else (None, None) for name, most, seconds in rows}


def test_the_documented_worst_cases_are_those_of_the_policies() -> None:
    assert table() == {name: worst_case(policy) for name, policy in POLICIES.items()}


@pytest.mark.parametrize("name", LIMITED)
def test_the_worst_case_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = POLICIES[name]
    most, seconds = worst_case(policy)
    assert most is not None and seconds is not None
    # The shortest pauses give the most attempts; a Retry-After header gives the longest time.
    for shortest in (True, False):
        monkeypatch.setattr(Attempts.__init__, "__kwdefaults__", {"clock": None, "jitter": partial(float, shortest)})
        problem = policy.retries[0]()
        problem.retry_after = None if shortest else 10_000.0
        call = Down(problem)
        clock = run(policy, call)
        assert call.calls <= most and clock.now - 1000.0 <= seconds
        if shortest:
            assert call.calls == most
        elif policy.deadline is None:
            assert clock.now - 1000.0 == seconds
        else:
            assert clock.now - 1000.0 >= policy.deadline - policy.longest, "it gives up too early"


def test_pauses_double_up_to_the_longest_and_are_jittered() -> None:
    clock = run(OUTAGE, Down(UnreachableError()))
    for failures, pause in enumerate(clock.pauses, 1):
        full = min(OUTAGE.base * 2 ** (failures - 1), OUTAGE.longest)
        assert full * (1 - JITTER) <= pause <= full
    assert len(set(clock.pauses)) > 10, "clients must not return at the same moment"


def test_a_policy_without_limits_has_finite_pauses() -> None:
    assert CLAIM.pause(10_000) == CLAIM.longest and HEARTBEAT.pause(10_000) == HEARTBEAT.longest


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
    assert OUTAGE.repeats(DiskFullError()) and DELIVERY.repeats(DiskFullError())


def test_retry_after_lengthens_a_pause_within_bounds() -> None:
    for asked, pause in ((3.0, 3.0), (1e6, REQUEST.longest)):
        problem = TemporaryError()
        problem.retry_after = asked
        assert run(REQUEST, Down(problem)).pauses == [pause] * 3


def test_stop_ends_it_after_a_failure() -> None:
    call = Down(UnreachableError())
    with pytest.raises(UnreachableError):
        retry(DELIVERY, call, stop=lambda: True)
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
            lambda: retry(REQUEST, lambda: retry(ONCE, call), sleep=clock.sleep),
            sleep=clock.sleep,
            clock=clock,
        )
    assert call.calls == TRANSFER.attempts
    # Outside again, the inner policy has all of its attempts.
    call.calls = 0
    run(REQUEST, call)
    assert call.calls == REQUEST.attempts


def test_a_policy_for_other_errors_keeps_its_attempts() -> None:
    call, clock = Down(UnreachableError()), Clock()
    with pytest.raises(UnreachableError):
        retry(PUBLISH, lambda: retry(REQUEST, call, sleep=clock.sleep, clock=clock))
    assert call.calls == REQUEST.attempts
    swept = Down(NoSuchBlobError())
    run(PUBLISH, swept)
    assert swept.calls == PUBLISH.attempts
    assert TRANSFER.repeats(DamagedBlobError()) and not REQUEST.repeats(DamagedBlobError())


def test_a_thread_of_its_own_has_its_own_attempts() -> None:
    call, clock = Down(UnreachableError()), Clock()

    def transfer() -> None:
        thread = threading.Thread(target=lambda: run(TRANSFER, call))
        thread.start()
        thread.join()
        raise UnreachableError

    with pytest.raises(UnreachableError):
        retry(REQUEST, transfer, sleep=clock.sleep, clock=clock)
    assert REQUEST.attempts is not None and TRANSFER.attempts is not None
    assert call.calls == REQUEST.attempts * TRANSFER.attempts
