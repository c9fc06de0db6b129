"""Each operation of the document with each kind of token: who may call it, and what everybody else hears."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Response
from harness.api_document import document, operations, routes
from registry.raw_connection import RawConnection
from registry.registry_client import RegistryUnderTest, on_sqlite

from mxr.protocol.access import ADMIN, SCOPES
from mxr.protocol.jobs import HandBackJob
from mxr_registry.access.scopes import OPERATIONS
from mxr_registry.access.tokens import make_token
from mxr_registry.pages.site import PageRoute
from mxr_registry.server.scoped import REFUSAL, ScopedRoute

PARTS = {
    "{sha256}": "0" * 64,
    "{model}": "sha256:" + "0" * 64,
    "{name}": "model.mxr",
    "{id}": "0" * 32,
}
"""What stands in a path for its parameters: nothing that exists."""


def path_of(template: str) -> str:
    """A path of an operation."""
    for part, text in PARTS.items():
        template = template.replace(part, text)
    return template


CALLS = [
    (method.upper(), path_of(path), found)
    for path, methods in sorted(document()["paths"].items())
    for method, found in methods.items()
]
CALLS += [("HEAD", path, found) for _, path, found in CALLS if found["operationId"].startswith("download_")]


def scopes_in(found: dict[str, Any]) -> set[str]:
    """The scopes that the document names."""
    assert all(set(each) == {"token"} for each in found["security"])
    return {scope for each in found["security"] for scope in each["token"]}


@pytest.fixture(scope="module")
def refused(server: RegistryUnderTest) -> dict[str, str]:
    """Authorization headers that must not be accepted, by what is wrong with them."""
    made = {name: server.ok("POST", "/v1/tokens", {"name": name, "scopes": [ADMIN]}) for name in ("old", "gone")}
    server.rows.execute(f"UPDATE tokens SET expires_at = 1000000 WHERE id = '{made['old']['token']['id']}'")
    server.ok("DELETE", f"/v1/tokens/{made['gone']['token']['id']}")
    other = server.ok("POST", "/v1/tokens", {"name": "other", "scopes": [ADMIN]})["secret"]
    return {
        "none": "",
        "no scheme": other,
        "another scheme": f"Basic {other}",
        "malformed": "Bearer mxr_x",
        "too long": "Bearer " + "x" * 5000,
        "unknown": f"Bearer {make_token()}",
        "another secret": f"Bearer {other[:-1]}{'0' if other[-1] != '0' else '1'}",
        "expired": f"Bearer {made['old']['secret']}",
        "revoked": f"Bearer {made['gone']['secret']}",
    }


@pytest.fixture(scope="module")
def allowed(server: RegistryUnderTest) -> dict[str, str]:
    """An Authorization header for each scope."""
    made = {scope: server.ok("POST", "/v1/tokens", {"name": f"only-{scope}", "scopes": [scope]}) for scope in SCOPES}
    return {scope: f"Bearer {each['secret']}" for scope, each in made.items()}


@on_sqlite
@pytest.mark.parametrize(("method", "path", "found"), CALLS, ids=[f"{m} {f['operationId']}" for m, _, f in CALLS])
def test_who_may_call_an_operation(
    server: RegistryUnderTest,
    refused: dict[str, str],
    allowed: dict[str, str],
    method: str,
    path: str,
    found: dict[str, Any],
) -> None:
    scopes = scopes_in(found)
    body = {} if method in ("POST", "PUT") else None
    for name, header in refused.items():
        reply = server.request(method, path, body, {"authorization": header}, redirect=False)
        assert (reply.status == 401) == bool(scopes), name
        if scopes:
            assert reply.headers["www-authenticate"] == 'Bearer realm="mxr"'
    for scope, header in allowed.items():
        reply = server.request(method, path, body, {"authorization": header}, redirect=False)
        assert reply.status != 401
        if scopes:
            assert (reply.status == 403) == (scope not in scopes), scope
    assert not scopes or ADMIN in scopes


def test_the_table_has_each_operation_and_nothing_else() -> None:
    assert set(OPERATIONS) == {found["operationId"] for _, _, found in operations()}
    public = {name for name, scopes in OPERATIONS.items() if not scopes}
    assert public == {"get_health", "get_readiness"}


def test_every_route_checks_the_token() -> None:
    """All but the document, files of pages, the form to sign in, and the routes that answer 405 to every method."""
    unchecked = {route.path for route in routes() if not isinstance(route, (ScopedRoute, PageRoute))}
    assert unchecked == {"/openapi.json", "/docs", "/docs/{name}", "/page/{name}"}
    public = {route.path for route in routes() if isinstance(route, PageRoute) and not route.scopes}
    assert public == {"/sign-in", "/sign-in/{secret}", "/sign-out"}


def test_a_route_without_scopes_cannot_be_added() -> None:
    def get_everything() -> Response:
        """It is in no table."""
        return Response()

    with pytest.raises(KeyError):
        ScopedRoute("/v1/everything", get_everything)
    ScopedRoute("/v1/everything", get_everything, name=REFUSAL)


def test_a_body_that_fastapi_would_read_cannot_be_added() -> None:
    """It would have no bounds, and fields that nobody knows would be passed over."""

    def hand_back_job(message: HandBackJob | None) -> Response:
        """A body that can be left out."""
        return Response()

    with pytest.raises(TypeError, match="must be a message"):
        ScopedRoute("/v1/everything", hand_back_job)


def test_a_stranger_learns_nothing_and_an_owner_what_is_wrong(
    server: RegistryUnderTest, refused: dict[str, str]
) -> None:
    said = {
        name: server.call("GET", "/v1/whoami", headers={"authorization": header})[1] for name, header in refused.items()
    }
    assert {said[name]["detail"] for name in ("malformed", "too long", "unknown", "another secret")} == {
        "The token is not valid here."
    }
    assert said["none"]["detail"] == "This request needs a token."
    assert "of old expired at 1970-01-12T" in said["expired"]["detail"]
    assert "of gone was revoked at 20" in said["revoked"]["detail"]
    assert all(each["context"] == {} for each in said.values())


def test_a_scope_that_is_missing_is_named(server: RegistryUnderTest, allowed: dict[str, str]) -> None:
    error = server.call("POST", "/v1/artifacts/00000000/promote", headers={"authorization": allowed["fetch"]})[1]
    assert (
        error["code"] == "not_allowed" and "of only-fetch has the scope fetch; this needs promote." in error["detail"]
    )
    assert error["context"] == {"scopes": ["fetch"], "needed": ["promote"]}


def test_two_headers_are_none(server: RegistryUnderTest) -> None:
    """Proxies and servers may differ in which one counts."""
    lines = ("GET /v1/whoami HTTP/1.1", "host: localhost", f"authorization: Bearer {make_token()}")
    with RawConnection(server.port, *lines) as connection:
        assert connection.error()[0] == 401
