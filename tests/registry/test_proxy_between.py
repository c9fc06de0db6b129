"""A proxy between a client and its registry: a real one, and those that lie, refuse, cut and drip."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.programs import command, run
from harness.rows import for_each
from harness.waiting import until
from registry.registry_client import RegistryUnderTest
from servers.certificates import write_certificate
from servers.forward_proxy import NAME, forward_proxy

from mxr.artifact.manifest import Blob
from mxr.client.registry import Client
from mxr.configuration.proxies import Proxies
from mxr.errors import MxrError, NotARegistryError, TemporaryError, UnreachableError
from mxr.settings import Settings


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key, of the registry as well as of a proxy with TLS."""
    return write_certificate(tmp_path_factory.mktemp("tls"), "one", host=NAME)


@pytest.fixture
def served(start: Callable[..., Any], authority: tuple[Path, Path]) -> RegistryUnderTest:
    """A registry with TLS."""
    pem, key = authority
    found: RegistryUnderTest = start("--tls-cert", str(pem), "--tls-key", str(key), "--allowed-host", NAME)
    return found


def client(server: RegistryUnderTest, ca_file: Path | None, scheme: str = "https", **environ: str) -> Client:
    """A client that knows the registry by a name that only the proxy can resolve."""
    return Client(
        Settings(
            f"{scheme}://{NAME}:{server.port}",
            token=server.tokens["admin"],
            ca_file=ca_file,
            plaintext=True,
            timeout=5.0,
            proxies=Proxies.of(environ),
        )
    )


def test_it_is_used_for_everything(served: RegistryUnderTest, authority: tuple[Path, Path], tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    blob = Blob(sha256(data).hexdigest(), len(data))
    with forward_proxy(tmp_path / "proxy") as proxy:
        through = client(served, authority[0], HTTPS_PROXY=proxy.url())
        assert through.whoami().name == "tests"
        through.put_blob(blob, [data[:100], data[100:]])
        with through.blob(blob.sha256, blob.size) as chunks:
            assert b"".join(map(bytes, chunks)) == data
        with pytest.raises(UnreachableError, match=NAME):
            client(served, authority[0], HTTPS_PROXY=proxy.url(), NO_PROXY=NAME).whoami()
        del through
        until(lambda: "CONNECT" in proxy.log.read_text())


def test_a_registry_without_tls(start: Callable[..., Any], tmp_path: Path) -> None:
    server = start("--allowed-host", NAME)
    with forward_proxy(tmp_path / "proxy") as proxy:
        assert client(server, None, "http", http_proxy=proxy.url()).whoami().name == "tests"
        # This host is never reached through it.
        direct = Settings(
            server.url, token=server.tokens["admin"], proxies=Proxies.of({"HTTP_PROXY": "http://[::1]:9"})
        )
        assert Client(direct).whoami().name == "tests"


def test_one_that_asks_for_a_password(served: RegistryUnderTest, authority: tuple[Path, Path], tmp_path: Path) -> None:
    pem, key = authority
    more = ("--basic-auth", "user:p@ss", "--cert-file", str(pem), "--key-file", str(key))
    with forward_proxy(tmp_path / "proxy", *more) as proxy:
        for scheme in ("https", "http"):
            for account, words in (("", "asks for a user and a password"), ("user:wr0ng", "refuses this user")):
                with pytest.raises(NotARegistryError, match=words) as caught:
                    client(served, pem, scheme, ALL_PROXY=proxy.url(account, "https")).whoami()
                assert f"proxy https://{proxy.address} (ALL_PROXY)" in caught.value.message
                assert "wr0ng" not in str(caught.value.to_json()) and "NO_PROXY" in caught.value.hint
        assert client(served, pem, HTTPS_PROXY=proxy.url("user:p%40ss", "https")).whoami().name == "tests"
        with pytest.raises(NotARegistryError, match=r"certificate of the proxy https://.* is not trusted"):
            client(served, None, HTTPS_PROXY=proxy.url("user:p%40ss", "https")).whoami()


def test_the_command(served: RegistryUnderTest, authority: tuple[Path, Path], tmp_path: Path) -> None:
    with forward_proxy(tmp_path / "proxy", "--basic-auth", "user:hunter2") as proxy:
        environ = served.environ | {"MXR_REGISTRY": f"https://{NAME}:{served.port}", "HOME": str(tmp_path)}
        environ |= {"MXR_TOKEN": served.tokens["admin"], "MXR_CA_FILE": str(authority[0])}
        environ["HTTPS_PROXY"] = proxy.url("user:hunter2")
        done = run(command("mxr", "whoami"), env=environ)
        assert (done.returncode, done.stdout[:6]) == (0, "tests "), done
        shown = run(command("mxr", "config"), env=environ)
        assert f"http://{proxy.address}" in shown.stdout and "HTTPS_PROXY" in shown.stdout
        assert "hunter2" not in shown.stdout + shown.stderr
        refused = run(command("mxr", "whoami"), env=environ | {"HTTPS_PROXY": proxy.url()})
        assert refused.returncode == 69 and "asks for a user and a password" in refused.stderr


@contextlib.contextmanager
def lying(answer: bytes, *, drip: bool = False) -> Iterator[str]:
    """A proxy that answers each request with these bytes and closes; with `drip`, one byte each 0.2 seconds."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve(line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            line.recv(1 << 16)
            for at in range(len(answer) if drip else 0):
                line.sendall(answer[at : at + 1])
                if ended.wait(0.2):
                    return
            if not drip:
                line.sendall(answer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


HTML = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nServer: squid\r\nContent-Length: %d\r\n\r\n<h1>Blocked</h1>"


def settings(scheme: str, proxy: str) -> Settings:
    return Settings(
        f"{scheme}://{NAME}", token="t", plaintext=True, timeout=1.0, proxies=Proxies.of({"ALL_PROXY": proxy})
    )


@for_each(
    [
        ("http", HTML % (b"200 OK", 16), NotARegistryError, "through the proxy http"),
        ("http", HTML % (b"403 Forbidden", 16), NotARegistryError, "through the proxy http"),
        ("http", HTML % (b"503 Down", 16), TemporaryError, "The proxy http"),
        ("http", HTML % (b"407 Account", 16), NotARegistryError, "asks for a user"),
        ("http", HTML % (b"403 Forbidden", 1_000), NotARegistryError, "through the proxy http"),
        ("http", HTML % (b"403 Forbidden", 3), NotARegistryError, "through the proxy http"),
        ("http", b"", UnreachableError, "The proxy http"),
        ("http", b"HTTP/1.1 200", UnreachableError, "he proxy http"),
        ("https", HTML % (b"403 Forbidden", 16), UnreachableError, "does not lead to https://registry.test"),
        ("https", HTML % (b"503 Down", 16), UnreachableError, "answers with HTTP status 503"),
        ("https", HTML % (b"407 Account", 16), NotARegistryError, "asks for a user"),
        ("https", HTML % (b"200 OK", 16), UnreachableError, "he proxy http"),
        ("https", b"", UnreachableError, "he proxy http"),
    ]
)
def test_one_that_answers_by_itself(scheme: str, answer: bytes, kind: type[MxrError], words: str) -> None:
    with lying(answer) as proxy, pytest.raises(kind, match=words) as caught:
        Client(settings(scheme, proxy)).defaults()
    assert "NO_PROXY" in caught.value.hint


@for_each(["http", "https"])
def test_one_that_drips_ends_with_the_timeout(scheme: str) -> None:
    with lying(HTML % (b"200 OK", 16), drip=True) as proxy, pytest.raises(MxrError, match=r"[tT]he proxy"):
        Client(settings(scheme, proxy)).defaults()


def test_one_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        dead = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    for scheme in ("http", "https"):
        with pytest.raises(UnreachableError, match=r"The proxy http://\S+ \(ALL_PROXY\) does not answer"):
            Client(settings(scheme, dead)).defaults()
