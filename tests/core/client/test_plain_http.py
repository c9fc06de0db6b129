"""A token goes over plain http to this machine only, unless that is allowed."""

from __future__ import annotations

import pytest

from mxr.client.registry import Client
from mxr.errors import NotAllowedError
from mxr.settings import Settings, load_settings

ELSEWHERE = (
    "http://registry.invalid:8765",
    "http://[2001:db8::1]:1",
    "http://127.0.0.1.invalid",
    "http://localhost.invalid",
)


@pytest.mark.parametrize("url", ELSEWHERE)
def test_a_token_is_not_sent_in_the_clear(url: str) -> None:
    """The request is refused before anything is sent, and the message names the host and not the token."""
    with pytest.raises(NotAllowedError, match="over plain http") as caught:
        Client(Settings(url, token="hunter2")).workers()
    assert "--plaintext" in caught.value.hint and "hunter2" not in str(caught.value.to_json())


@pytest.mark.parametrize(
    "settings",
    [
        Settings("http://127.0.0.1:9", token="t"),
        Settings("http://localhost:9", token="t"),
        Settings("http://[::1]:9", token="t"),
        Settings("https://127.0.0.1:9", token="t"),
        Settings("http://registry.invalid:9"),
        Settings("http://registry.invalid:9", token="t", plaintext=True),
    ],
    ids=lambda each: each.registry,
)
def test_other_requests_are_sent(settings: Settings) -> None:
    """A connection is made ready, and the token is among its headers where there is one."""
    headers = Client(settings)._credentials.header()
    assert ("Authorization" in headers) == bool(settings.token)


def test_the_operator_allows_it_for_a_network() -> None:
    assert load_settings({"MXR_PLAINTEXT": "1"}).plaintext and not load_settings({}).plaintext
