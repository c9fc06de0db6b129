"""The tree of errors: codes, statuses, exit numbers, and the way over the wire and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from harness.rows import for_each

from mxr import errors
from mxr.errors import MxrError

EXITS = {
    "internal": 70,
    "usage": 2,
    "too_large": 2,
    "malformed": 2,
    "not_found": 3,
    "no_such_artifact": 3,
    "no_such_model": 3,
    "no_such_blob": 3,
    "not_compiled": 4,
    "compile_failed": 5,
    "mismatch": 6,
    "conflict": 6,
    "recalled": 6,
    "untrusted": 6,
    "unsigned": 6,
    "bad_signature": 6,
    "unknown_key": 6,
    "revoked_key": 6,
    "other_record": 6,
    "not_allowed": 7,
    "unauthenticated": 7,
    "would_overwrite": 7,
    "no_worker": 8,
    "damaged": 65,
    "damaged_blob": 65,
    "unreachable": 69,
    "not_a_registry": 69,
    "other_registry": 69,
    "invalid_reply": 69,
    "temporary": 75,
    "too_many_requests": 75,
    "disk_full": 75,
    "interrupted": 130,
}
"""What scripts rely on: each code and the number that a program ends with."""


def tree(kind: type[MxrError] = MxrError) -> Iterator[type[MxrError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from tree(child)


CLASSES = [kind for kind in tree() if kind.__module__ == "mxr.errors"]
each_class = for_each(CLASSES)


def test_codes_and_exit_numbers_are_those_promised() -> None:
    assert {kind.code: kind.exit for kind in CLASSES} == EXITS
    assert len(CLASSES) == len(EXITS), "two classes share a code"


def test_every_class_is_rebuilt_from_its_code() -> None:
    assert dict(errors.BY_CODE) == {kind.code: kind for kind in CLASSES}


def test_a_child_ends_with_the_number_of_its_parent() -> None:
    strays = [kind for kind in CLASSES for base in kind.__bases__ if base in CLASSES[1:] and kind.exit != base.exit]
    assert strays == []


def test_only_what_may_pass_is_to_be_tried_again() -> None:
    assert {kind.code for kind in CLASSES if kind.retry} == {
        "not_compiled",
        "unreachable",
        "temporary",
        "too_many_requests",
        "disk_full",
    }


@each_class
def test_it_says_what_is_wrong_and_what_to_do(kind: type[MxrError]) -> None:
    found = kind()
    assert found.message.endswith(".") and "\n" not in found.message
    assert found.hint and "\n" not in found.hint
    assert 400 <= kind.status < 600
    assert str(found) == found.message


@each_class
def test_over_the_wire_and_back(kind: type[MxrError]) -> None:
    sent = kind("This is wrong.", hint="Do that.", context={"nearest": [{"id": "a", "differences": []}]})
    document = sent.to_json()
    assert set(document) == {"type", "title", "status", "detail", "code", "hint", "retry", "context"}
    found = errors.from_json(document, status=kind.status)
    assert type(found) is kind
    assert (found.message, found.hint, found.context) == (sent.message, sent.hint, sent.context)
    assert found.to_json() == document


@each_class
def test_an_empty_hint_stays_empty(kind: type[MxrError]) -> None:
    assert errors.from_json(kind("Wrong.", hint="").to_json()).hint == ""


@for_each(
    itertools.product(
        [None, "<html>", [], {}, {"error": "busy"}, {"type": None}, {"type": "about:blank", "detail": "x"}],
        [429, 502, 503, 504],
    )
)
def test_a_proxy_that_is_busy_is_tried_again(document: object, status: int) -> None:
    found = errors.from_json(document, status=status)
    assert type(found) is errors.TemporaryError
    assert str(status) in found.message


@for_each([301, 400, 404, 418, 500])
def test_a_page_of_something_else_is_a_fault_that_names_the_registry(status: int) -> None:
    found = errors.from_json({"detail": "Not Found"}, status=status)
    assert type(found) is MxrError and not found.retry
    assert str(status) in found.message and "mxr config" in found.hint


@for_each(["of_a_later_release", 7, None, ["usage"]])
def test_an_unknown_code_keeps_its_words(code: object) -> None:
    found = errors.from_json(
        {"type": "urn:mxr:error:later", "code": code, "detail": "New.", "hint": "Update.", "context": {"a": 1}}
    )
    assert (type(found), found.message, found.hint, found.context) == (MxrError, "New.", "Update.", {"a": 1})


@for_each([None, [], "text", 3])
def test_a_context_that_is_no_object_is_passed_over(context: object) -> None:
    assert errors.from_json({**errors.UsageError("M.").to_json(), "context": context}).context == {}


def test_the_context_is_a_copy() -> None:
    context = {"a": 1}
    found = MxrError(context=context)
    context["a"] = 2
    assert found.context == {"a": 1}
