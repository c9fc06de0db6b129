"""Pages while parts of the registry are away, and below a path of a proxy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from registry.pages.visitor import Visitor
from registry.registry_client import Parts, Start
from servers.rows import Rows


def signed_in(server: Any) -> Visitor:
    found = Visitor(server)
    found.sign_in(server.ok("POST", "/v1/tokens", {"name": "vision", "scopes": ["admin"]})["secret"])
    return found


@pytest.fixture(scope="module")
def engine() -> str:
    """The database that is away is one of the test's own."""
    return "sqlite"


def test_no_page_looks_like_an_empty_registry(start: Start, own_postgresql: Any) -> None:
    database = own_postgresql()
    url = database.migrated()
    server = start(rows=Rows(url, {"MXR_DATABASE_URL": url}))
    visitor = signed_in(server)
    assert "Nothing here yet" in visitor.text()
    database.stop()
    for path in ("/", "/matrix", "/jobs", "/fleet", "/explain"):
        reply = visitor.send("GET", path)
        said = Visitor.words(reply.data.decode())
        assert reply.status == 503 and "retry-after" in reply.headers, path
        assert "This is not an empty registry." in said and "Database away" in said and "Store answers" in said
    assert visitor.send("GET", "/misses.json").status == 503
    assert visitor.send("GET", "/page/mxr.css").status == 200
    database.start()
    assert "Nothing here yet" in visitor.text()


def test_with_the_store_away_every_list_is_there(start: Start, parts: Parts) -> None:
    server = start()
    visitor = signed_in(server)
    assert server.call("POST", "/v1/resolve", {"key": parts.gpu_key()})[0] == 404
    store = server.data / "store"
    store.rename(server.data / "away")
    said = visitor.text()
    assert "The store does not answer" in said and "1 request that no program answered" in said
    parts_of = json.loads(visitor.send("GET", "/misses.json").data)["parts"]
    assert (parts_of["database"]["ok"], parts_of["store"]["ok"]) == (True, False)
    (server.data / "away").rename(store)


def test_below_a_path_of_a_proxy(start: Start) -> None:
    """Addresses are relative, or have the path."""
    server = start("--root-path", "/mxr")
    visitor = Visitor(server)
    assert visitor.send("GET", "/mxr/jobs").headers["location"] == "/mxr/sign-in?next=%2Fjobs"
    secret = server.ok("POST", "/v1/tokens", {"name": "vision", "scopes": ["admin"]})["secret"]
    reply = visitor.send("POST", "/mxr/sign-in", {"token": secret, "next": "/jobs"})
    assert reply.headers["location"] == "/mxr/jobs"
    page = visitor.page("/mxr/")
    assert 'href="./page/mxr.css"' in page and f"export MXR_REGISTRY={server.url}/mxr" in page.replace(
        '<span class="w">', ""
    )
    assert 'href="/' not in page and 'action="/' not in page
