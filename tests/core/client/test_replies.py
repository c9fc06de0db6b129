"""What a proxy answers in place of the registry. Real ones are in end_to_end/test_nginx."""

from __future__ import annotations

import pytest

from mxr.client.connection_errors import proxy_error
from mxr.errors import TemporaryError, TooLargeError


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_passes_is_temporary(status: int) -> None:
    found = proxy_error(status, "nginx/1.22.1")
    assert type(found) is TemporaryError and "A proxy (nginx/1.22.1) in front of the registry" in found.message


def test_a_limit_of_the_proxy_is_not() -> None:
    found = proxy_error(413, "")
    assert type(found) is TooLargeError and not found.retry
    assert found.message == "A proxy in front of the registry does not take a body of this size."


@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_other_statuses_may_come_from_anything(status: int) -> None:
    assert proxy_error(status, "nginx") is None


def test_a_long_name_is_cut() -> None:
    found = proxy_error(502, "x" * 10_000)
    assert found is not None and len(found.message) < 200
