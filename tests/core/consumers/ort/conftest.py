"""The judge for these tests, made once and kept in pytest's cache folder."""

from __future__ import annotations

import pytest
from doubles.ort_migraphx import Judge, NoJudge, seat


@pytest.fixture(scope="session")
def judge(pytestconfig: pytest.Config) -> Judge:
    """The real provider; skips where it cannot be had."""
    cache = pytestconfig.cache
    assert cache is not None
    try:
        return seat(cache.mkdir("ort_migraphx"))
    except NoJudge as reason:
        pytest.skip(f"no judge of ONNX Runtime's names: {reason}")
