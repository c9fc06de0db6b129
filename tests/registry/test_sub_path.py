"""`--root-path`: the registry below a path of a proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from harness.rows import for_each

from mxr.errors import UsageError
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.server.middleware import SubPath


def served(path: str, location: bytes = b"/v1/jobs/1") -> tuple[str, bytes]:
    """The path that the application sees of a request below /mxr, and `Location` of its reply."""
    seen: list[Any] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        headers = [(b"content-type", b"text/plain"), (b"location", location)]
        await send({"type": "http.response.start", "status": 201, "headers": headers})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path}
    asyncio.run(SubPath(app, "/mxr")(scope, None, send))
    assert scope["path"] == path, "the scope of the server stays as it is"
    return seen[0]["path"], dict(sent[0]["headers"])[b"location"]


@pytest.mark.parametrize("path", ["/mxr/v1/jobs", "/v1/jobs"], ids=["passed on", "removed by the proxy"])
def test_the_path_is_removed_and_added_to_locations(path: str) -> None:
    assert served(path) == ("/v1/jobs", b"/mxr/v1/jobs/1")


@pytest.mark.parametrize("path", ["/mxr", "/mxrx/v1/jobs", "/x/mxr/v1/jobs", "//mxr/v1/jobs"])
def test_other_paths_are_left(path: str) -> None:
    assert served(path)[0] == path


def test_only_one_path_is_removed() -> None:
    assert served("/mxr/mxr/v1/jobs")[0] == "/mxr/v1/jobs"


def test_a_redirect_to_another_host_stays() -> None:
    assert served("/mxr/v1/blobs/1", location=b"https://s3.example.com/b")[1] == b"https://s3.example.com/b"


@pytest.mark.parametrize(("given", "found"), [("/mxr", "/mxr"), ("/a/b.c/", "/a/b.c"), ("/", ""), ("", "")])
def test_a_path_is_taken_without_its_last_slash(given: str, found: str) -> None:
    assert RegistrySettings.read({"MXR_SERVE_ROOT_PATH": given, "HOME": "/home/x"}).root_path == found


@for_each(["mxr", "//x", "/a//b", "/../x", "/a/.", "/a b", "/a?b", "https://x/mxr", "/%2e", "/é"])
def test_what_is_no_path_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="begins with a slash, such as /mxr"):
        RegistrySettings.read({"MXR_SERVE_ROOT_PATH": given, "HOME": "/home/x"})
