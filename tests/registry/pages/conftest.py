"""Fixtures of the tests of pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from registry.pages.visitor import Visitor
from registry.registry_client import RegistryUnderTest


@pytest.fixture
def registry(server: RegistryUnderTest) -> RegistryUnderTest:
    """The registry of the module, with nothing in it."""
    server.clear()
    server.rows.execute("DELETE FROM model_blobs", "DELETE FROM models")
    return server


@pytest.fixture
def visitor(registry: RegistryUnderTest) -> Visitor:
    """A browser that has not signed in."""
    return Visitor(registry)


@pytest.fixture
def token(registry: RegistryUnderTest) -> Callable[..., str]:
    """Makes tokens: `token("vision", "fetch", "ask")`."""

    def make(name: str, *scopes: str) -> str:
        return str(registry.ok("POST", "/v1/tokens", {"name": name, "scopes": scopes})["secret"])

    return make


@pytest.fixture
def signed_in(registry: RegistryUnderTest, token: Callable[..., str]) -> Callable[..., Visitor]:
    """Makes browsers that signed in with a token of a principal: `signed_in("vision", "fetch")`."""

    def make(name: str = "root", *scopes: str) -> Visitor:
        found = Visitor(registry)
        assert found.sign_in(token(name, *(scopes or ("admin",)))).status == 303
        return found

    return make
