"""Which proxy a request takes."""

from __future__ import annotations

import pytest
from harness.rows import for_each

from mxr.configuration.proxies import Proxies
from mxr.errors import UsageError
from mxr.settings import load_settings

URL = "https://registry.corp.example"


def proxy_of(url: str, **environ: str) -> str | None:
    proxy, _ = Proxies.of(environ).choose(url)
    return proxy and proxy.url


@for_each(
    [
        ({"HTTPS_PROXY": "http://a:1"}, "http://a:1", "HTTPS_PROXY"),
        ({"HTTPS_PROXY": "http://a:1", "https_proxy": "http://b:2"}, "http://b:2", "https_proxy"),
        ({"ALL_PROXY": "http://c:3"}, "http://c:3", "ALL_PROXY"),
        ({"ALL_PROXY": "http://c:3", "HTTPS_PROXY": "a:1"}, "http://a:1", "HTTPS_PROXY"),
        ({"HTTP_PROXY": "http://a:1"}, None, ""),
        ({"HTTPS_PROXY": " "}, None, ""),
        ({"HTTPS_PROXY": "http://a:1", "NO_PROXY": "corp.example"}, None, "NO_PROXY"),
        ({"HTTPS_PROXY": "http://a:1", "NO_PROXY": "x", "no_proxy": "*"}, None, "no_proxy"),
        ({}, None, ""),
    ]
)
def test_which_variable_decides(environ: dict[str, str], url: str | None, variable: str) -> None:
    found, by = Proxies.of(environ).choose(URL)
    assert ((found and found.url), by) == (url, variable)


@for_each(
    [
        *("*", "corp.example", ".corp.example", "*.corp.example", "registry.corp.example", "REGISTRY.Corp.Example"),
        *(
            "registry.corp.example:443",
            "other, corp.example",
            "other corp.example",
            "registry.corp.example.",
            "example",
        ),
    ]
)
def test_a_host_that_is_exempt(entry: str) -> None:
    assert proxy_of(URL, ALL_PROXY="http://a:1", NO_PROXY=entry) is None


@for_each(
    ["", ",", ".", "orp.example", "corp.example.org", "registry.corp.example:8443", "10.0.0.0/8", "[", "xample:443"]
)
def test_a_host_that_is_not(entry: str) -> None:
    assert proxy_of(URL, ALL_PROXY="http://a:1", NO_PROXY=entry) == "http://a:1"


@for_each(
    [
        ("http://10.1.2.3:8765", "10.0.0.0/8", True),
        ("http://10.1.2.3:8765", "10.1.2.3", True),
        ("http://10.1.2.3:8765", "10.1.2.3:8765", True),
        ("http://10.1.2.3:8765", "10.1.2.3:80", False),
        ("http://10.1.2.3", "10.1.2.3:80", True),
        ("http://11.1.2.3", "10.0.0.0/8", False),
        ("http://[2001:db8::1]", "2001:db8::1", True),
        ("http://[2001:db8::1]", "[2001:db8::1]", True),
        ("http://[2001:db8::1]:8765", "[2001:db8::1]:8765", True),
        ("http://[2001:db8::1]:8765", "[2001:db8::1]:80", False),
        ("http://[2001:db8::1]", "2001:db8::/32", True),
        ("http://[2001:db9::1]", "2001:db8::/32", False),
    ]
)
def test_addresses_and_networks(url: str, entry: str, exempt: bool) -> None:
    assert (proxy_of(url, http_proxy="http://a:1", no_proxy=entry) is None) == exempt


@for_each(
    ["http://127.0.0.1:8765", "http://localhost", "https://x.localhost", "http://[::1]:1", "unix:/run/x", "http://["]
)
def test_this_host_is_reached_directly(url: str) -> None:
    assert proxy_of(url, ALL_PROXY="http://a:1", HTTPS_PROXY="http://a:1") is None


@for_each(["socks5://a:1080", "http://", "http://a:x", "http://[", "ftp://a", "http://a:0", "/run/proxy.sock"])
def test_a_proxy_that_is_none_is_named_by_its_variable(url: str) -> None:
    with pytest.raises(UsageError, match="HTTPS_PROXY names no proxy that mxr can use"):
        Proxies.of({"HTTPS_PROXY": url}).choose(URL)
    assert Proxies.of({"HTTPS_PROXY": url}).choose("http://127.0.0.1:8765") == (None, "")


def test_a_password_is_sent_to_the_proxy_and_shown_nowhere() -> None:
    settings = load_settings({"HOME": "/", "HTTPS_PROXY": "http://user:p%40ss@a:1", "MXR_REGISTRY": URL})
    proxy, _ = settings.proxies.choose(URL)
    assert proxy is not None and (proxy.account, proxy.address) == ("user:p@ss", "http://a:1")
    assert str(proxy) == "proxy http://a:1 (HTTPS_PROXY)"
    assert "ss" not in repr(proxy) and "p%40ss" not in repr(settings)
