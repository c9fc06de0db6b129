"""nginx in front of a registry on loopback: whoever comes through it needs a token like everybody else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from harness.tokens import authorization, stands_before
from registry.registry_client import GFX908, gpu_key
from servers.nginx import nginx

from mxr.client.registry import Client
from mxr.configuration.config_file import user_socket_dirs
from mxr.errors import UnauthenticatedError
from mxr.settings import Settings

FACTS = {"attributes": {"num_cu": 120, "sramecc": "+", "xnack": "-"}}


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


@pytest.fixture(params=[(), ("--trusted-proxies", "127.0.0.1")], ids=["unknown proxy", "trusted proxy"])
def behind(start: Callable[..., Any], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    """A registry, and the URL of the nginx before it."""
    server = start("--verbose", *request.param)
    with nginx(tmp_path / "nginx", server.url) as url:
        stands_before(url, server.url)
        yield server, url


def test_the_address_of_the_proxy_is_no_credential(behind: tuple[Any, str]) -> None:
    _, url = behind
    for method, path in (
        ("GET", "/v1/artifacts"),
        ("POST", "/v1/tokens"),
        ("DELETE", "/v1/locks/x"),
        ("GET", "/metrics"),
    ):
        reply = urllib3.request(method, url + path)
        assert (reply.status, json.loads(reply.data)["code"]) == (401, "unauthenticated")
    assert urllib3.request("GET", f"{url}/healthz").status == 200
    assert urllib3.request("GET", f"{url}/v1/whoami", headers=authorization(url)).status == 200
    forwarded = {"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1", "forwarded": "for=127.0.0.1"}
    assert urllib3.request("GET", f"{url}/v1/whoami", headers=forwarded).status == 401


def test_the_user_who_serves_has_no_rights_through_the_proxy(behind: tuple[Any, str]) -> None:
    """It listens on another port, and passes on what it gets: other users could run it."""
    server, url = behind
    with pytest.raises(UnauthenticatedError) as caught:
        Client(Settings(url, socket_dirs=user_socket_dirs(server.environ))).whoami()
    assert caught.value.hint.startswith("No registry of this user has a socket for this port")


def test_a_full_round_with_a_token(behind: tuple[Any, str]) -> None:
    server, url = behind
    client = Client(Settings(url, token=server.tokens["admin"]))
    _, artifact = server.publish(GFX908, gpu_key("sha256:" + "ab" * 32), **FACTS)
    assert client.artifact(artifact["id"]).id == artifact["id"]
    with client.blob(artifact["sha256"]) as chunks:
        assert b"".join(chunks) == GFX908
    assert client.put_lock("prod", [])
