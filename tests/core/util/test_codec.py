"""Reading JSON strictly: what is refused, how it is named, and that what is written is read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.artifact.attributes import Request
from mxr.errors import UsageError
from mxr.util import codec

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@dataclass(frozen=True)
class Part:
    name: str
    size: int = 1


@dataclass(frozen=True)
class Whole:
    part: Part
    ratio: float = 0.5
    on: bool = False
    maybe: str | None = None
    parts: tuple[Part, ...] = ()
    numbers: tuple[int | str | None, ...] | None = None
    by_name: Mapping[str, Part] = field(default_factory=dict)
    anything: Any = None


GOOD: dict[str, Any] = {
    "part": {"name": "a", "size": 3},
    "ratio": 2,
    "on": True,
    "maybe": None,
    "parts": [{"name": "b"}],
    "numbers": [1, "N", None],
    "by_name": {"c": {"name": "c"}},
    "anything": [1, {"deep": None}],
}


def test_every_form_is_read() -> None:
    found = codec.decode(Whole, GOOD)
    assert found == Whole(
        part=Part("a", 3),
        ratio=2.0,
        on=True,
        parts=(Part("b"),),
        numbers=(1, "N", None),
        by_name={"c": Part("c")},
        anything=[1, {"deep": None}],
    )
    assert type(found.ratio) is float
    assert codec.decode(Whole, codec.encode(found)) == found


@for_each(
    [
        ({"surprise": 1}, "top.surprise"),
        ({"part": {"name": "a", "surprise": 1}}, "top.part.surprise"),
        ({"part": {}}, "top.part.name"),
        ({"part": []}, "top.part"),
        ({"part": None}, "top.part"),
        ({"part": {"name": 1}}, "top.part.name"),
        ({"part": {"name": "a", "size": "3"}}, "top.part.size"),
        ({"part": {"name": "a", "size": True}}, "top.part.size"),
        ({"part": {"name": "a", "size": 3.0}}, "top.part.size"),
        ({"part": {"name": "a", "size": 2**53 + 1}}, "top.part.size"),
        ({"part": {"name": "a", "size": -(10**400)}}, "top.part.size"),
        ({"part": {"name": "a\0"}}, "top.part.name"),
        ({"part": {"name": "\ud800"}}, "top.part.name"),
        ({"ratio": "0.5"}, "top.ratio"),
        ({"ratio": True}, "top.ratio"),
        ({"ratio": float("nan")}, "top.ratio"),
        ({"ratio": float("inf")}, "top.ratio"),
        ({"ratio": 10**400}, "top.ratio"),
        ({"on": 1}, "top.on"),
        ({"on": "true"}, "top.on"),
        ({"on": None}, "top.on"),
        ({"maybe": 1}, "top.maybe"),
        ({"maybe": False}, "top.maybe"),
        ({"parts": {}}, "top.parts"),
        ({"parts": [{"name": "a"}, {}]}, "top.parts[1].name"),
        ({"parts": "ab"}, "top.parts"),
        ({"numbers": [True]}, "top.numbers[0]"),
        ({"numbers": [1.5]}, "top.numbers[0]"),
        ({"numbers": ["\udfff"]}, "top.numbers[0]"),
        ({"by_name": []}, "top.by_name"),
        ({"by_name": {"c": None}}, "top.by_name.c"),
        ({"by_name": {"\ud9ff": {"name": "c"}}}, "top.by_name"),
    ]
)
def test_what_is_wrong_is_named_by_its_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(UsageError) as caught:
        codec.decode(Whole, GOOD | change, "top")
    assert caught.value.message.startswith(f"{path}: ")
    assert len(caught.value.message) < 300
    assert caught.value.message.encode()


@pytest.mark.parametrize("value", [None, [], "x", 1, True])
def test_a_document_that_is_no_object(value: object) -> None:
    with pytest.raises(UsageError, match="the document: expected an object"):
        codec.decode(Whole, value)


def test_a_reply_of_a_newer_registry_is_read_without_what_is_new() -> None:
    newer = GOOD | {"new": 1, "part": {"name": "a", "size": 3, "new": {}}}
    assert codec.decode(Whole, newer, lenient=True) == codec.decode(Whole, GOOD)
    with pytest.raises(UsageError, match=r"part\.size"):
        codec.decode(Whole, GOOD | {"part": {"name": "a", "size": "big"}}, lenient=True)


@given(json_values)
def test_anything_at_all_is_read_or_refused_and_nothing_else(value: object) -> None:
    try:
        found = codec.decode(Whole, value)
    except UsageError:
        return
    assert isinstance(found, Whole)


@given(st.sampled_from(sorted(GOOD)), json_values)
def test_what_is_read_is_written_as_it_was(name: str, value: object) -> None:
    try:
        found = codec.decode(Whole, GOOD | {name: value})
    except UsageError:
        return
    again = codec.decode(Whole, codec.encode(found))
    assert again == found or value != value or "nan" in repr(value)


def test_nesting_of_any_depth_is_refused_cleanly() -> None:
    strange = set()
    for depth in [*range(500, 1100), 100_000]:
        for text in ("[" * depth + "]" * depth, '{"key":' * depth + "1" + "}" * depth):
            try:
                codec.decode(Request, codec.parse(text, "the body"))
            except UsageError:
                continue
            except RecursionError as problem:
                strange.add(type(problem))
    assert strange == set()


@for_each(
    [
        b"",
        b"{",
        b'{"a":1}{}',
        b'{"a":1,"a":1}',
        b'{"b":{"a":1,"a":2}}',
        b'[{"\\u0061":1,"a":2}]',
        b"NaN",
        b"[-Infinity]",
        b"\xff\xfe\xfa",
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-32-le"),
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":' + b"9" * 5000 + b"}",
        "{'a': 1}",
        b"<html>",
    ]
)
def test_what_is_not_one_json_document(data: bytes | str) -> None:
    with pytest.raises(UsageError, match="the body is not valid JSON"):
        codec.parse(data, "the body")


def test_a_byte_order_mark_is_no_part_of_the_document() -> None:
    assert codec.parse(b'\xef\xbb\xbf{"a":1}', "the body") == {"a": 1}


def test_huge_exponents_are_no_numbers() -> None:
    with pytest.raises(UsageError, match="ratio: expected a finite number"):
        codec.decode(Whole, codec.parse(b'{"part":{"name":"a"},"ratio":1e999}', "the body"))


def test_canonical_text() -> None:
    assert codec.canonical({"b": [1, {"z": None, "a": True}], "a": "é\n", "Z": 1.5}) == (
        '{"Z":1.5,"a":"é\\n","b":[1,{"a":true,"z":null}]}'
    )
    with pytest.raises(ValueError, match="JSON compliant"):
        codec.canonical({"a": float("nan")})


@given(st.dictionaries(st.text(max_size=4), st.integers(), max_size=6), st.randoms())
def test_canonical_text_knows_no_order(rows: dict[str, int], random: Any) -> None:
    items = list(rows.items())
    random.shuffle(items)
    assert codec.canonical(dict(items)) == codec.canonical(rows)
    assert json.loads(codec.canonical(rows)) == rows
