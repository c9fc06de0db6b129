"""The values of `--on-miss`."""

from __future__ import annotations

import pytest
from harness.rows import for_each

from mxr.errors import UsageError
from mxr.plans.plan import OnMiss


@for_each(
    [
        ("fail", "fail", None),
        ("ask", "ask", None),
        ("wait", "wait", None),
        ("wait=90", "wait", 90),
        ("wait=0.5s", "wait", 0.5),
        ("wait=10m", "wait", 600),
        ("wait=2h", "wait", 7200),
        ("wait=1d", "wait", 86400),
        ("local", "local", None),
        ("continue", "continue", None),
    ]
)
def test_valid_values(text: str, action: str, timeout: float | None) -> None:
    parsed = OnMiss.parse(text)
    assert (parsed.action, parsed.timeout) == (action, timeout)
    assert parsed.compiles == (action not in ("fail", "continue"))


@pytest.mark.parametrize("text", ["", "cry", "wait=", "wait=soon", "wait=-1", "ask=3s", "wait=3 min"])
def test_invalid_values(text: str) -> None:
    with pytest.raises(UsageError, match="--on-miss"):
        OnMiss.parse(text)
