"""The status of many requests: batches, equal requests, and outages of the registry."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.errors import MxrError, TooLargeError, UnreachableError
from mxr.protocol.surveys import RequestStatus, SurveyReply
from mxr.workflows import survey


def request(number: int) -> Request:
    return Request(Key("sha256:" + "0" * 64, "ref", "2.15", (("x", (number, 3)),)))


class Registry:
    """A registry that fails before its answers, once for each of these errors."""

    def __init__(self, *problems: MxrError | None) -> None:
        self.problems = list(problems)
        self.batches: list[int] = []

    def survey(self, requests: Sequence[Request]) -> SurveyReply:
        problem = self.problems.pop(0) if self.problems else None
        if problem is not None:
            raise problem
        self.batches.append(len(requests))
        return SurveyReply(tuple(RequestStatus(artifact=str(each.key.inputs[0][1][0])) for each in requests))


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that would have been made."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def test_equal_requests_are_sent_once_and_answered_in_order() -> None:
    client: Any = Registry()
    numbers = [*range(1, survey.AT_ONCE + 51), 7, 3]
    found = survey.request_statuses(client, [request(number) for number in numbers])
    assert [each.artifact for each in found] == [str(number) for number in numbers]
    assert client.batches == [survey.AT_ONCE, 50]


def test_a_batch_that_is_too_large_is_sent_in_halves() -> None:
    client: Any = Registry(None, TooLargeError(), TooLargeError())
    found = survey.request_statuses(client, [request(number) for number in range(1, survey.AT_ONCE + 101)])
    assert [each.artifact for each in found] == [str(number) for number in range(1, survey.AT_ONCE + 101)]
    assert client.batches == [survey.AT_ONCE, 25, 25, 50]
    with pytest.raises(TooLargeError):
        survey.request_statuses(Registry(TooLargeError()), [request(1)])


def test_an_outage_between_two_batches_is_survived(pauses: list[float]) -> None:
    client: Any = Registry(None, UnreachableError(), UnreachableError())
    found = survey.request_statuses(client, [request(number) for number in range(1, survey.AT_ONCE + 2)])
    assert len(found) == survey.AT_ONCE + 1 and len(pauses) == 2


def test_a_registry_that_never_answers_is_reported_at_once(pauses: list[float]) -> None:
    client: Any = Registry(UnreachableError())
    with pytest.raises(UnreachableError):
        survey.request_statuses(client, [request(1)])
    assert pauses == []
