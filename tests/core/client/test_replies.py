"""What a proxy answers in place of the registry. Real ones are in end_to_end/test_nginx."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mxr.client.connection_errors import proxy_error
from mxr.client.registry import Client
from mxr.errors import InvalidReplyError, TemporaryError, TooLargeError, UsageError
from mxr.settings import Settings
from mxr.version import __version__


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_passes_is_temporary(status: int) -> None:
    found = proxy_error(status, "nginx/1.22.1")
    assert type(found) is TemporaryError and "A proxy (nginx/1.22.1) in front of the registry" in found.message


def test_a_limit_of_the_proxy_is_not() -> None:
    found = proxy_error(413, "")
    assert type(found) is TooLargeError and not found.retry
    assert found.message == "A proxy in front of the registry does not take a body of this size."


@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_other_statuses_may_come_from_anything(status: int) -> None:
    assert proxy_error(status, "nginx") is None


def test_a_long_name_is_cut() -> None:
    found = proxy_error(502, "x" * 10_000)
    assert found is not None and len(found.message) < 200


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ("0.0.9", "This registry is older (0.0.9) than this client"),
        ("99.0", f"This client is older ({__version__}) than the registry (99.0): update the client."),
        (__version__, ""),
        ("", ""),
        ("1.x", ""),
        ("9" * 50, "This client is older"),
    ],
)
def test_who_is_older_is_said_where_the_other_does_not_understand(theirs: str, said: str) -> None:
    """A field that an older registry does not know looks like a mistake of the user, and so does a newer reply."""

    class Newer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            old = self.path.endswith("/whoami")
            error = UsageError("constraints.new: unknown field.", hint="Known: x.").to_json()
            body = json.dumps(error if old else {"items": [{"odd": 1}]}).encode()
            self.send_response(422 if old else 200)
            self.send_header("mxr-registry", "11111111-1111-4111-8111-111111111111")
            if theirs:
                self.send_header("mxr-version", theirs)
            self.send_header("content-length", str(len(body)))
            self.send_header("content-type", "application/problem+json")
            self.end_headers()
            self.wfile.write(body)
            seen.append(self.headers["user-agent"])

        def log_message(self, *_: object) -> None:
            """Nothing."""

    seen: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Newer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = Client(Settings(f"http://127.0.0.1:{server.server_port}", token="x"))
        with pytest.raises(UsageError) as refused:
            client.whoami()
        with pytest.raises(InvalidReplyError) as unread:
            client.artifacts()
        server.shutdown()
    for each in (refused, unread):
        assert said in each.value.hint and (bool(said) == ("older" in each.value.hint))
    assert "Known: x." in refused.value.hint and set(seen) == {f"mxr/{__version__}"}
