"""Which token a client sends, and to whom: real sockets that keep what they were sent."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from mxr.client.credentials import TokenFile
from mxr.client.registry import Client
from mxr.errors import MxrError, NotARegistryError, UnauthenticatedError, UsageError
from mxr.protocol.artifacts import REGISTRY_HEADER
from mxr.settings import DEFAULT_REGISTRY, Settings, load_settings, write_stored

ADMIN, WORK, OTHER = (f"mxr_{digit * 12}_{digit * 64}" for digit in "abc")


class Recorder(BaseHTTPRequestHandler):
    """Answers as a registry that wants another token, or with a redirect; keeps the Authorization headers."""

    def do_GET(self) -> None:
        """Keep the header and answer."""
        server: Any = self.server
        server.sent.append(self.headers.get("authorization"))
        body = json.dumps(
            {"type": "urn:mxr:error:unauthenticated", "code": "unauthenticated", "detail": "No."}
        ).encode()
        self.send_response(307 if server.location else 401)
        if server.location:
            self.send_header("location", server.location)
        self.send_header(REGISTRY_HEADER, "x")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def recorder(location: str = "") -> Iterator[Any]:
    """A server on a free port of 127.0.0.1; `sent`: the Authorization headers."""
    with HTTPServer(("127.0.0.1", 0), Recorder) as server:
        server.sent, server.location = [], location  # type: ignore[attr-defined]
        server.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def refusal(settings: Settings) -> UnauthenticatedError:
    """The error of a request with these settings."""
    with pytest.raises(UnauthenticatedError) as caught:
        Client(settings).whoami()
    return caught.value


class TestTokenFiles:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """A private file with a token and a newline."""
        path = tmp_path / "token"
        path.write_text(f"{OTHER}\n")
        path.chmod(0o600)
        return path

    def test_a_newline_at_its_end_is_no_part_of_it(self, path: Path) -> None:
        with recorder() as server:
            refusal(Settings(server.url, token_file=path))
        assert server.sent == [f"Bearer {OTHER}"]

    def test_a_renewed_one_is_used_by_the_next_request(self, path: Path) -> None:
        with recorder() as server:
            client = Client(Settings(server.url, token_file=path))
            for token in (ADMIN, WORK):
                fresh = path.with_name("fresh")
                fresh.write_text(token)
                fresh.chmod(0o600)
                fresh.rename(path)
                with pytest.raises(UnauthenticatedError):
                    client.whoami()
        assert server.sent == [f"Bearer {ADMIN}", f"Bearer {WORK}"]

    def test_one_that_disappears_or_is_written_in_two_steps_stays_in_use(self, path: Path) -> None:
        file = TokenFile(path)
        assert file.read() == OTHER
        path.write_text("")
        assert file.read() == OTHER
        path.write_text(ADMIN)
        path.chmod(0o644)
        assert file.read() == OTHER
        path.chmod(0o600)
        assert file.read() == ADMIN
        path.unlink()
        assert file.read() == ADMIN

    def test_a_mounted_secret_is_a_link(self, path: Path) -> None:
        link = path.with_name("link")
        link.symlink_to(path)
        assert TokenFile(link).read() == OTHER

    @pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666])
    def test_one_that_others_can_read_is_refused(self, path: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mxr.configuration.config_file._is_own_group", lambda _: False)
        path.chmod(mode)
        with pytest.raises(UsageError, match=f"mode {mode:04o}") as caught:
            TokenFile(path).read()
        assert OTHER not in str(caught.value.to_json())

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root has files that this user cannot mend")
    def test_what_this_user_cannot_mend_is_used(self, path: Path) -> None:
        """A secret that root mounted, in the eyes of a program of another user."""
        path.chmod(0o444)
        path.parent.chmod(0o755)
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgid(65_534)
                # The folders of a test belong to root alone.
                os.chdir(path.parent)
                os.setuid(65_534)
                os.write(tell, TokenFile(Path(path.name)).read().encode())
            finally:
                os._exit(0)
        os.close(tell)
        os.waitpid(child, 0)
        assert os.read(told, 200).decode() == OTHER
        os.close(told)

    @pytest.mark.parametrize("text", ["", "\n", "two words", "ü", "x" * 5000, "a\0b"])
    def test_one_without_a_token(self, path: Path, text: str) -> None:
        path.write_text(text)
        with pytest.raises(UsageError, match=str(path)) as caught:
            TokenFile(path).read()
        assert not text.strip() or text not in str(caught.value.to_json())

    def test_one_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="does not exist"):
            Client(Settings("http://127.0.0.1:9", token_file=tmp_path / "missing")).whoami()


class TestTheRegistryOfAToken:
    def load(self, tmp_path: Path, variables: dict[str, str], registry: str | None = None, file: str = "") -> Settings:
        """The settings of a user with these variables, this option and this configuration file."""
        path = tmp_path / "mxr" / "config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(file)
        path.chmod(0o600)
        environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), **variables}
        return load_settings(environ, {"registry": registry})

    @pytest.mark.parametrize(
        ("variables", "registry", "file", "sent"),
        [
            ({"MXR_TOKEN": OTHER}, None, "", True),
            ({"MXR_TOKEN": OTHER}, "https://a", "", True),
            ({"MXR_TOKEN": OTHER, "MXR_REGISTRY": "https://a"}, None, "", True),
            ({"MXR_TOKEN": OTHER, "MXR_REGISTRY": "https://a/"}, "https://a", "", True),
            ({"MXR_TOKEN": OTHER, "MXR_REGISTRY": "https://a"}, "https://b", "", False),
            ({"MXR_TOKEN": OTHER}, None, 'registry = "https://a"', True),
            ({"MXR_TOKEN": OTHER}, "https://b", 'registry = "https://a"', False),
            ({}, None, f'registry = "https://a"\ntoken = "{OTHER}"', True),
            ({"MXR_REGISTRY": "https://b"}, None, f'registry = "https://a"\ntoken = "{OTHER}"', False),
            ({}, "https://b", f'registry = "https://a"\ntoken = "{OTHER}"', False),
            ({"MXR_REGISTRY": "https://b"}, None, f'token = "{OTHER}"', False),
            ({}, None, f'token = "{OTHER}"', True),
        ],
    )
    def test_a_token_is_for_the_registry_that_was_set_with_it(
        self, tmp_path: Path, variables: dict[str, str], registry: str | None, file: str, sent: bool
    ) -> None:
        found = self.load(tmp_path, variables, registry, file)
        assert (found.token == OTHER) == sent and bool(found.withheld) != sent
        assert OTHER not in repr(found) + found.withheld

    def test_another_registry_hears_nothing_of_it_and_the_error_says_why(self, tmp_path: Path) -> None:
        with recorder() as server:
            found = self.load(tmp_path, {"MXR_TOKEN": OTHER, "MXR_REGISTRY": "https://a"}, server.url)
            error = refusal(found)
        assert server.sent == [None]
        assert error.hint.startswith("The token from MXR_TOKEN is for https://a, so it was not sent.")

    def test_a_stored_token_goes_to_its_registry_only(self, tmp_path: Path) -> None:
        with recorder() as one, recorder() as two:
            write_stored(tmp_path, {one.url: OTHER, DEFAULT_REGISTRY: ADMIN})
            for server in (one, two):
                refusal(Settings(server.url, config_dir=tmp_path))
        assert (one.sent, two.sent) == ([f"Bearer {OTHER}"], [None])

    def test_a_stored_token_serves_where_that_of_the_environment_is_for_another(self, tmp_path: Path) -> None:
        with recorder() as server:
            found = self.load(tmp_path, {"MXR_TOKEN": OTHER, "MXR_REGISTRY": "https://a"}, server.url)
            assert found.config_dir is not None
            write_stored(found.config_dir, {server.url: WORK})
            refusal(found)
        assert server.sent == [f"Bearer {WORK}"]

    def test_two_of_them_are_a_contradiction(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="MXR_TOKEN and MXR_TOKEN_FILE are both set"):
            self.load(tmp_path, {"MXR_TOKEN": OTHER, "MXR_TOKEN_FILE": "/x"})

    def test_a_nearer_one_wins(self, tmp_path: Path) -> None:
        found = self.load(tmp_path, {"MXR_TOKEN_FILE": "/x"}, None, f'token = "{OTHER}"')
        assert (found.token, found.token_file) == (None, Path("/x"))


def test_no_token_goes_along_a_redirect() -> None:
    with recorder() as other, recorder(f"{other.url}/v1/whoami") as server:
        with pytest.raises(NotARegistryError, match=f"it redirects to {other.url}/v1/whoami") as caught:
            Client(Settings(server.url, token=OTHER)).whoami()
        assert (server.sent, other.sent) == ([f"Bearer {OTHER}"], [])
        assert "redirects are not followed" in caught.value.hint


def test_the_host_of_a_signed_url_gets_none() -> None:
    with recorder() as other, recorder(f"{other.url}/blob?signature=x") as server:
        client = Client(Settings(server.url, token=OTHER))
        with pytest.raises(MxrError), client.blob("0" * 64) as chunks:
            list(chunks)
        assert server.sent == [f"Bearer {OTHER}"] * 2 and other.sent == [None]
