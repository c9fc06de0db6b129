"""The page `/docs`: served by the registry alone, with a policy that lets it load and send nothing elsewhere."""

from __future__ import annotations

import re
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from paths import ROOT
from registry.registry_client import RegistryUnderTest

FOLDER = ROOT / "registry" / "mxr_registry" / "routes" / "swagger_ui"

RELEASE = {
    "swagger-ui-bundle.js": "e6a898692f2d768e807c3ba4626068a69a2c5dd960dd6c76f3e4d3a3de180af2",
    "swagger-ui.css": "5ed08757e53da3e026d6cbecc61fe5d43585c9560b302d534ad56692519a273d",
}
"""The sha256 of each file as the npm registry has it in swagger-ui-dist 5.35.0."""

NAVIGATION = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


class References(HTMLParser):
    """What a page loads, and whether it has scripts or styles of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what the tag refers to."""
        found = {name: value or "" for name, value in attrs}
        self.urls += [found[name] for name in ("src", "href") if name in found]
        self.inline += [name for name in found if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in found):
            self.inline.append(tag)


def test_the_page_loads_only_what_the_registry_serves(server: RegistryUnderTest) -> None:
    reply = server.request("GET", "/docs")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = References()
    page.feed(reply.data.decode())
    assert not page.inline
    # They are relative, so that a proxy may serve the registry below a path.
    assert page.urls == ["data:,", "docs/swagger-ui.css", "openapi.json", "docs/swagger-ui-bundle.js", "docs/page.js"]
    for url in page.urls[1:]:
        found = server.request("GET", f"/{url}")
        assert found.status == 200 and len(found.data) > 200, url
        if url.startswith("docs/"):
            kind = "text/css" if url.endswith("css") else "text/javascript"
            assert found.headers["content-type"] == f"{kind}; charset=utf-8"
            assert server.request("GET", f"/{url}", headers={"if-none-match": found.headers["etag"]}).status == 304
    assert not re.search(rb"https?:", (FOLDER / "page.js").read_bytes())


@pytest.mark.parametrize("path", ["/docs", "/docs/page.js", "/docs/swagger-ui-bundle.js"])
def test_the_policy_of_the_page_names_no_other_host(server: RegistryUnderTest, path: str) -> None:
    headers = server.request("GET", path).headers
    rules = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == "'self'"
    assert not re.search(r"[*]|https?:|unsafe-eval", headers["content-security-policy"])
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("name", sorted(RELEASE))
def test_the_files_are_those_of_the_release(name: str) -> None:
    assert sha256((FOLDER / name).read_bytes()).hexdigest() == RELEASE[name]
    assert "Apache License" in (FOLDER / "LICENSE").read_text() and (FOLDER / "NOTICE").read_text()


def test_another_site_may_link_to_the_page_and_embed_nothing_of_it(server: RegistryUnderTest) -> None:
    assert server.request("GET", "/docs", headers=NAVIGATION).status == 200
    for path, destination in (("/docs", "iframe"), ("/docs/page.js", "script"), ("/docs/swagger-ui.css", "style")):
        embedded = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": destination}
        assert server.request("GET", path, headers=embedded).status == 403, path


@pytest.mark.parametrize(
    "name",
    ["page.html", "LICENSE", "", "../api_page.py", "%2e%2e/api_page.py", "..%2fapi_page.py", "page.js%00", "x" * 500],
)
def test_the_page_has_no_other_files(server: RegistryUnderTest, name: str) -> None:
    assert server.call("GET", f"/docs/{name}")[0] == 404


def test_the_page_is_not_part_of_the_api(server: RegistryUnderTest) -> None:
    assert not [path for path in server.ok("GET", "/openapi.json")["paths"] if path.startswith("/docs")]
