"""Points in time, as texts in JSON."""

from __future__ import annotations

from typing import Any

import pytest
from harness.rows import for_each

from mxr.errors import UsageError
from mxr.util import codec
from mxr.util.codec import EXAMPLE, Timestamp, time_text


def test_a_time_is_written_in_utc_with_microseconds_and_read_back() -> None:
    for seconds in (0.0, 1.0, 1_795_552_421.25, 1_795_552_421.000001, 4_000_000_000.999999):
        text = Timestamp(seconds).to_json()
        assert len(text) == len(EXAMPLE) and text.endswith("Z")
        assert abs(codec.decode(Timestamp, text) - seconds) < 1e-6
        assert codec.encode(codec.decode(Timestamp, text)) == text
    assert Timestamp(1_795_552_421.25).to_json() == "2026-11-24T20:33:41.250000Z"
    assert time_text(None) is None


@pytest.mark.parametrize(
    "text", ["2026-11-24T20:33:41Z", "2026-11-24T21:33:41+01:00", "2026-11-24T20:33:41.000000000Z"]
)
def test_every_form_of_rfc_3339_with_an_offset_is_read(text: str) -> None:
    assert codec.decode(Timestamp, text) == 1_795_552_421


@for_each(
    [
        1_795_552_421.0,
        None,
        True,
        "",
        "now",
        "2026-11-24",
        "2026-11-24T20:33:41",
        "2026-13-24T20:33:41Z",
        "2026-00-24T20:33:41Z",
        "2026-02-29T20:33:41Z",
        "2026-11-31T20:33:41Z",
        "2026-11-00T20:33:41Z",
        "0000-11-24T20:33:41Z",
        "2026-11-24T24:00:00Z",
        "2026-11-24T20:60:41Z",
        "2026-11-24T20:33:60Z",
        "2026-11-24T20:33:41+25:00",
        "２026-11-24T20:33:41Z",
        "2026-11-24T20:33:41Z\n",
        ["2026-11-24T20:33:41Z"],
    ]
)
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=r"created_at: expected a time such as 2026-"):
        codec.decode(Timestamp, value, "created_at")
