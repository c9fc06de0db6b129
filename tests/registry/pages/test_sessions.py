"""Who sees a page: sessions, links that work once, forms of foreign pages, and what no log has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from registry.pages.visitor import Visitor
from registry.registry_client import RegistryUnderTest, Start, on_sqlite
from servers.certificates import write_certificate

from mxr_registry.access import sessions

PAGES = ("/", "/misses")


@pytest.mark.parametrize("path", [*PAGES, "/?arch=gfx942"])
def test_without_a_session_nothing_is_seen(visitor: Visitor, path: str) -> None:
    reply = visitor.send("GET", path)
    assert reply.status == 303 and reply.headers["location"].startswith("/sign-in") and reply.data == b""
    assert visitor.send("GET", "/misses.json").status == 401


def test_a_token_begins_a_session_that_ends_with_the_sign_out(
    registry: RegistryUnderTest, visitor: Visitor, token: Callable[..., str]
) -> None:
    secret = token("vision", "fetch")
    reply = visitor.sign_in(secret)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    assert "HttpOnly" in visitor.set and "SameSite=lax" in visitor.set and "Max-Age=43200" in visitor.set
    assert "vision" in visitor.text() and secret not in visitor.page()
    (kept,) = registry.rows.execute("SELECT sha256 FROM sessions")
    assert visitor.cookies["mxr"] not in kept and sessions.digest_of(visitor.cookies["mxr"]) == kept[0]
    kept_cookies = dict(visitor.cookies)
    assert visitor.send("POST", "/sign-out", {}).status == 303 and not visitor.cookies
    visitor.cookies = kept_cookies
    assert visitor.send("GET", "/").status == 303


def test_where_one_wanted_to_go_is_remembered_if_it_is_here(visitor: Visitor, token: Callable[..., str]) -> None:
    secret = token("vision", "fetch")
    assert visitor.send("GET", "/misses?arch=gfx942").headers["location"] == "/sign-in?next=%2Fmisses%3Farch%3Dgfx942"
    for wanted, place in {
        "/misses?arch=gfx942": "/misses?arch=gfx942",
        "//evil.example/": "/",
        "/\\evil.example": "/",
        "https://evil.example": "/",
        "/a\r\nset-cookie: x=1": "/",
    }.items():
        assert visitor.send("POST", "/sign-in", {"token": secret, "next": wanted}).headers["location"] == place
    page = visitor.send("GET", "/sign-in?next=%2F%22%3E%3Cscript%3E").data.decode()
    assert "<script>" not in page.replace('<script src="./page/mxr.js" defer></script>', "")


@pytest.mark.parametrize("what", ["revoked", "expired", "session expired", "token removed"])
def test_a_session_ends_with_its_token_and_its_time(
    registry: RegistryUnderTest, visitor: Visitor, token: Callable[..., str], what: str
) -> None:
    secret = token("vision", "fetch")
    visitor.sign_in(secret)
    assert visitor.send("GET", "/").status == 200
    id = secret.split("_")[1]
    change = {
        "revoked": "",
        "expired": f"UPDATE tokens SET expires_at = {time.time() - 1} WHERE id = '{id}'",
        "session expired": f"UPDATE sessions SET expires_at = {time.time() - 1} WHERE token = '{id}'",
        "token removed": f"DELETE FROM tokens WHERE id = '{id}'",
    }[what]
    registry.rows.execute(change) if change else registry.ok("DELETE", f"/v1/tokens/{id}")
    assert visitor.send("GET", "/").status == 303


def test_a_wrong_token_is_refused_and_logged_without_it(visitor: Visitor) -> None:
    reply = visitor.sign_in("mxr_" + "0" * 12 + "_" + "1" * 64)
    assert (reply.status, visitor.set) == (401, "") and b"The token is not valid here." in reply.data
    assert visitor.sign_in("<script>alert(1)</script>").status == 401


def test_no_cookie_works_on_the_api(signed_in: Callable[..., Visitor]) -> None:
    visitor = signed_in()
    assert visitor.send("GET", "/v1/misses").status == 401
    assert visitor.send("GET", "/metrics").status == 401


def test_a_page_needs_the_scope_of_what_it_shows(signed_in: Callable[..., Visitor]) -> None:
    visitor = signed_in("gauge", "metrics")
    reply = visitor.send("GET", "/")
    assert (
        reply.status == 403
        and b"this needs fetch" in reply.data
        and b"text/html" in reply.headers["content-type"].encode()
    )


def test_a_link_signs_in_once(registry: RegistryUnderTest, visitor: Visitor, token: Callable[..., str]) -> None:
    header = {"authorization": f"Bearer {token('vision', 'fetch')}"}
    made = registry.call("POST", "/v1/sign-in-links", None, header)[1]
    assert visitor.send("GET", made["path"], sec_fetch_site="none").headers["location"] == "/"
    assert "vision" in visitor.text()
    other = Visitor(registry)
    again = other.send("GET", made["path"])
    assert (again.status, other.set) == (401, "") and b"was used, or is older" in again.data
    other.cookies = {"mxr": made["path"].rpartition("/")[2]}
    assert other.send("GET", "/").status == 303, "a link is no session"


def test_a_link_ends_after_a_minute(registry: RegistryUnderTest, visitor: Visitor) -> None:
    path = registry.ok("POST", "/v1/sign-in-links")["path"]
    registry.rows.execute(f"UPDATE sessions SET expires_at = {time.time() - 1}")
    assert visitor.send("GET", path).status == 401
    assert visitor.send("GET", "/sign-in/" + "x" * 43).status == 401
    assert visitor.send("GET", "/sign-in/<script>").status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"content_type": "text/plain"},
        {"content_type": "multipart/form-data; boundary=x"},
        {"content_type": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/explain"])
def test_a_form_of_another_page_is_refused(
    signed_in: Callable[..., Visitor], token: Callable[..., str], path: str, headers: dict[str, str]
) -> None:
    visitor = signed_in("vision", "fetch")
    assert visitor.send("POST", path, {"token": token("eve", "fetch")}, **headers).status == 403
    assert visitor.send("GET", "/").status == 200, "its session goes on"


def test_forms_go_to_their_pages_only(signed_in: Callable[..., Visitor]) -> None:
    visitor = signed_in()
    for path in ("/", "/misses", "/v1/resolve", "/v1/tokens"):
        assert visitor.send("POST", path, {"token": "x"}).status in (405, 415), path


@on_sqlite
@pytest.mark.parametrize("size", [5_000, 200_000_000])
def test_a_large_form_is_refused(visitor: Visitor, size: int) -> None:
    def pieces() -> Any:
        for _ in range(0, size, 50_000):
            yield b"a" * min(size, 50_000)

    try:
        reply = visitor.send("POST", "/sign-in", pieces())
    except Exception as problem:  # The connection may be closed while it is sent.
        assert "onnection" in repr(problem) or "Broken pipe" in repr(problem)
    else:
        assert reply.status == 413


def test_a_cookie_that_another_host_set_beside_it_is_no_session(
    signed_in: Callable[..., Visitor], token: Callable[..., str], registry: RegistryUnderTest
) -> None:
    """A sibling host can set a cookie of this name for both: then neither counts."""
    own, eve = signed_in("vision", "fetch"), Visitor(registry)
    eve.sign_in(token("eve", "fetch"))
    both = f"mxr={eve.cookies['mxr']}; mxr={own.cookies['mxr']}"
    assert own.send("GET", "/", cookie=both).status == 303


@on_sqlite
def test_over_tls_the_cookie_is_of_this_host_alone(start: Start, tmp_path: Any) -> None:
    import urllib3

    pem, key = write_certificate(tmp_path, "one")
    server = start("--tls-cert", str(pem), "--tls-key", str(key))
    server.http = urllib3.PoolManager(ca_certs=str(pem), headers=server.http.headers, timeout=60)
    secret = server.ok("POST", "/v1/tokens", {"name": "vision", "scopes": ["fetch"]})["secret"]
    visitor = Visitor(server)
    visitor.http = urllib3.PoolManager(ca_certs=str(pem), timeout=60)
    visitor.sign_in(secret)
    assert "__Host-mxr=" in visitor.set and "Secure" in visitor.set and "Domain" not in visitor.set
    assert visitor.send("GET", "/").status == 200
    assert visitor.send("GET", "/", cookie=f"mxr={visitor.cookies['__Host-mxr']}").status == 303


@on_sqlite
def test_a_token_in_a_url_is_refused_and_no_log_has_it(start: Start) -> None:
    server = start("--verbose")
    secret = server.ok("POST", "/v1/tokens", {"name": "vision", "scopes": ["fetch"]})["secret"]
    visitor = Visitor(server)
    for path in (f"/?token={secret}", f"/sign-in?next={secret}", f"/sign-in/{secret}", f"/v1/artifacts/{secret}"):
        assert visitor.send("GET", path).status == 400, path
    link = server.ok("POST", "/v1/sign-in-links")["path"]
    visitor.send("GET", link)
    server.stop()
    said = server.log.read_text()
    assert "mxr_[hidden]" in said and "/sign-in/[a link]" in said
    assert secret not in said and link.rpartition("/")[2] not in said and visitor.cookies["mxr"] not in said


def test_sessions_of_a_token_are_bounded(
    registry: RegistryUnderTest, visitor: Visitor, token: Callable[..., str]
) -> None:
    """Whoever signs in again and again ends its own sessions, the first ones first, and those of nobody else."""
    other = Visitor(registry)
    other.sign_in(token("other", "fetch"))
    secret = token("vision", "fetch")
    for _ in range(sessions.MOST + 10):
        visitor.cookies.clear()
        visitor.sign_in(secret)
    ((count,),) = registry.rows.execute(f"SELECT COUNT(*) FROM sessions WHERE token = '{secret.split('_')[1]}'")
    assert count <= sessions.MOST
    assert visitor.send("GET", "/").status == other.send("GET", "/").status == 200


def test_a_page_is_for_this_browser_only(signed_in: Callable[..., Visitor]) -> None:
    headers = signed_in().send("GET", "/").headers
    assert headers["cache-control"] == "no-store" and "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"] and headers["x-content-type-options"] == "nosniff"
