"""A browser without a screen: it keeps cookies, sends forms as browsers do, and follows no redirect."""

from __future__ import annotations

import re
from html import unescape
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import urllib3
from registry.registry_client import RegistryUnderTest


class Visitor:
    """Requests to the pages of a registry, without a token in a header."""

    def __init__(self, server: RegistryUnderTest) -> None:
        self.server, self.cookies = server, dict[str, str]()
        self.http = urllib3.PoolManager(timeout=60)
        self.set = self.last = ""

    def send(
        self, method: str, path: str, form: dict[str, str] | bytes | None = None, **headers: str
    ) -> urllib3.BaseHTTPResponse:
        """The reply to a request; `sec_fetch_site="none"` is the header `sec-fetch-site`."""
        found = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            found.setdefault("cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        if method == "POST":
            found.setdefault("origin", self.server.url)
            found.setdefault("content-type", "application/x-www-form-urlencoded")
        body = urlencode(form).encode() if isinstance(form, dict) else form
        found = {name: value for name, value in found.items() if value}
        reply = self.http.request(
            method, self.server.url + path, body=body, headers=found, retries=False, redirect=False
        )
        self.set = reply.headers.get("set-cookie", "")
        for name, morsel in SimpleCookie(self.set).items():
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        return reply

    def sign_in(self, token: str) -> urllib3.BaseHTTPResponse:
        """The reply to the form with a token."""
        return self.send("POST", "/sign-in", {"token": token})

    def page(self, path: str = "/") -> str:
        """The HTML of a page that must be there."""
        reply = self.send("GET", path)
        assert reply.status == 200, (reply.status, reply.headers.get("location"), reply.data[:500])
        assert "text/html" in reply.headers["content-type"]
        return reply.data.decode()

    def text(self, path: str = "/") -> str:
        """The words of a page, without its elements."""
        return self.words(self.page(path))

    @staticmethod
    def words(html: str) -> str:
        """The words of HTML, without its elements."""
        return unescape(" ".join(re.sub(r"<[^>]*>", " ", html.replace("<wbr>", "")).split()))
