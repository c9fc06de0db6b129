"""A registry that terminates TLS itself: its certificate, renewed while it serves, and clients that trust it."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import urllib3
from harness.programs import command, run
from harness.waiting import until
from registry.registry_client import RegistryUnderTest
from servers.certificates import write_certificate

from mxr.client.registry import Client
from mxr.configuration.config_file import user_socket_dirs
from mxr.errors import NotARegistryError, UnreachableError, UsageError
from mxr.settings import Settings
from mxr_registry.server.listeners import ServerCertificate


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


@pytest.fixture
def served(start: Callable[..., Any], tmp_path: Path) -> Any:
    """A registry with the certificate one.pem in a folder."""
    pem, key = write_certificate(tmp_path, "one")
    server = start("--tls-cert", str(pem), "--tls-key", str(key))
    server.http = urllib3.PoolManager(ca_certs=str(pem), headers=server.http.headers, timeout=60)
    return server


def serial(server: RegistryUnderTest) -> str:
    """The serial number of the certificate that a new connection gets."""
    with socket.create_connection(("127.0.0.1", server.port), 60) as plain:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as line:
            assert line.version() == "TLSv1.3"
            return ssl.DER_cert_to_PEM_cert(line.getpeercert(binary_form=True) or b"")


def client(server: RegistryUnderTest, ca_file: Path | None, **more: Any) -> Client:
    """A client that trusts an authority."""
    return Client(Settings(server.url, token=server.tokens["admin"], ca_file=ca_file, **more))


def test_a_client_that_trusts_its_authority(served: Any, tmp_path: Path) -> None:
    assert served.url.startswith("https://")
    found = client(served, tmp_path / "one.pem").whoami()
    assert (found.name, found.scopes) == ("tests", ("admin",))
    data = bytes(range(256)) * 40_000
    assert served.get(f"/v1/blobs/{served.upload(data)['sha256']}").data == data


def test_the_user_who_serves_needs_no_certificate(served: Any) -> None:
    """The socket of this user is plain http, whatever the port is."""
    url = served.url.replace("https", "http")
    assert Client(Settings(url, socket_dirs=user_socket_dirs(served.environ))).whoami().name == "local"


def test_a_client_that_does_not_says_what_to_set(served: Any, tmp_path: Path) -> None:
    other, _ = write_certificate(tmp_path, "other")
    for ca_file in (None, other):
        with pytest.raises(NotARegistryError, match="is not trusted: ") as caught:
            client(served, ca_file).whoami()
        assert "MXR_CA_FILE" in caught.value.hint
    with pytest.raises(UnreachableError) as caught_plain:
        Client(Settings(served.url.replace("https", "http"), token="t", timeout=5.0)).defaults()
    assert f"its URL is {served.url}." in caught_plain.value.hint
    with pytest.raises(NotARegistryError, match=r"is for another name: .*'localhost'") as caught:
        Client(Settings(served.url.replace("127.0.0.1", "localhost"), token="t", ca_file=tmp_path / "one.pem")).whoami()
    assert "MXR_CA_FILE" not in caught.value.hint


@pytest.mark.parametrize("begins", [5, -5])
def test_a_certificate_or_a_clock_that_is_wrong(start: Callable[..., Any], tmp_path: Path, begins: int) -> None:
    pem, key = write_certificate(tmp_path, begins=begins)
    server = start("--tls-cert", str(pem), "--tls-key", str(key))
    with pytest.raises(NotARegistryError, match=r"is not valid at the time of this host, 20\d\d-") as caught:
        client(server, pem).whoami()
    assert "set the clock" in caught.value.hint and "MXR_CA_FILE" not in caught.value.hint


def test_a_port_without_tls(start: Callable[..., Any]) -> None:
    with pytest.raises(UnreachableError, match="does not speak TLS") as caught:
        Client(Settings(start().url.replace("http", "https"), token="t", timeout=5.0)).defaults()
    assert "http://" in caught.value.hint


@pytest.mark.parametrize("text", [None, b"", b"no certificate"])
def test_an_authority_that_cannot_be_read(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(UsageError, match=f"The certificates in {path} cannot be used"):
        Client(Settings("https://127.0.0.1:9", ca_file=path)).whoami()


def test_a_renewed_certificate_is_used_by_new_connections(served: Any, tmp_path: Path) -> None:
    before = serial(served)
    assert served.ok("GET", "/v1/whoami")
    for path in write_certificate(tmp_path, "two"):
        path.replace(path.with_name(f"one{path.suffix}"))
    served.process.send_signal(signal.SIGHUP)
    until(lambda: serial(served) != before)
    assert served.ok("GET", "/v1/whoami"), "a connection that was there stays"
    assert "loaded the certificate" in served.log.read_text()
    assert served.stop() == 0


def test_changed_files_are_loaded_where_nobody_sends_a_signal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in a container, where a renewed Secret appears as other files."""
    pem, key = write_certificate(tmp_path, "one")
    certificate = ServerCertificate(pem, key)
    certificate.reload_changed()
    assert caplog.records == []
    for path in write_certificate(tmp_path, "two"):
        path.replace(path.with_name(f"one{path.suffix}"))
        certificate.reload_changed()
    said = [record.message for record in caplog.records]
    assert len(said) == 2 and "stays as it is" in said[0] and said[1] == f"loaded the certificate {pem}"
    pem.unlink()
    certificate.reload_changed()
    assert len(caplog.records) == 2


def test_a_certificate_that_cannot_be_used_changes_nothing(served: Any, tmp_path: Path) -> None:
    before = serial(served)
    # The key of another certificate: half of a renewal.
    _, key = write_certificate(tmp_path, "two")
    key.replace(tmp_path / "one.key")
    served.process.send_signal(signal.SIGHUP)
    until(lambda: "the certificate stays as it is" in served.log.read_text())
    (tmp_path / "one.pem").unlink()
    served.process.send_signal(signal.SIGHUP)
    until(lambda: served.log.read_text().count("the certificate stays as it is") >= 2)
    assert serial(served) == before
    assert served.stop() == 0


def test_who_does_not_begin_the_handshake_stops_nobody(served: Any) -> None:
    silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(200)]
    size = served.log.stat().st_size
    for number, each in enumerate(silent):
        if number % 2:
            each.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert served.ok("GET", "/v1/whoami")
    for each in silent:
        each.close()
    assert served.ok("GET", "/v1/whoami")
    assert served.log.stat().st_size - size < 1000


def test_connections_count_before_their_handshake(start: Callable[..., Any], tmp_path: Path) -> None:
    """2,100 of them took all descriptors of a registry with 896 connections, for 60 s."""
    pem, key = write_certificate(tmp_path, "one")
    server = start(
        *("--tls-cert", str(pem), "--tls-key", str(key)), config="[limits]\nconnections = 8\nheader_seconds = 20\n"
    )
    server.http = urllib3.PoolManager(ca_certs=str(pem), headers=server.http.headers, timeout=60)
    files = Path(f"/proc/{server.process.pid}/fd")
    before = len(list(files.iterdir()))
    silent = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(100)]
    assert server.ok("GET", "/v1/whoami")
    until(lambda: len(list(files.iterdir())) < before + 20)
    assert all(each.recv(1) == b"" for each in silent[:80])
    for number, each in enumerate(silent):
        # However it ends: a close, what is no TLS, a part of a handshake.
        with contextlib.suppress(OSError):
            each.sendall((b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01")[number % 3])
        each.close()
    # The database is opened more often, where it was not yet.
    until(lambda: len(list(files.iterdir())) <= before + 6)
    pools = [urllib3.PoolManager(ca_certs=str(pem), timeout=60, retries=False) for _ in range(7)]
    lines = [pool.connection_from_url(server.url) for pool in pools]
    assert [each.request("GET", "/healthz").status for each in lines] == [200] * 7
    assert [each.request("GET", "/healthz").status for each in lines] == [200] * 7
    assert [each.num_connections for each in lines] == [1] * 7, "none was closed to make room"


def test_a_handshake_has_half_the_time_of_a_header(start: Callable[..., Any], tmp_path: Path) -> None:
    pem, key = write_certificate(tmp_path, "one")
    server = start("--tls-cert", str(pem), "--tls-key", str(key), config="[limits]\nheader_seconds = 1\n")
    with socket.create_connection(("127.0.0.1", server.port), 60) as silent:
        assert silent.recv(1) == b""
    with socket.create_connection(("127.0.0.1", server.port), 60):
        assert server.stop() == 0, "a handshake delays no end"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tls-cert", "one.pem"), "--tls-cert sets serve.tls_cert, but serve.tls_key is not set."),
        (("--tls-key", "one.key"), "--tls-key sets serve.tls_key, but serve.tls_cert is not set."),
        (("--tls-cert", "one.pem", "--tls-key", "two.key"), "cannot be used: KEY_VALUES_MISMATCH."),
        (("--tls-cert", "one.key", "--tls-key", "one.key"), "cannot be used: "),
        (("--tls-cert", "missing.pem", "--tls-key", "one.key"), "cannot be used: No such file or directory."),
        (("--tls-cert", "locked.pem", "--tls-key", "locked.key"), "cannot be used: "),
    ],
)
def test_what_is_wrong_with_the_files_is_said(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    for name in ("one", "two"):
        write_certificate(tmp_path, name)
    write_certificate(tmp_path, "locked", b"sesame")
    done = run(command("mxr-registry", "serve", "--port", "0", "--data", "data", *words), cwd=tmp_path, timeout=60)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        (("--host", "0.0.0.0"), True),
        (("--host", "0.0.0.0", "--trusted-proxies", "10.0.0.1"), False),
        ((), False),
    ],
)
def test_tokens_in_the_clear_are_warned_of(start: Callable[..., Any], flags: tuple[str, ...], warned: bool) -> None:
    server = start(*flags)
    assert ("tokens cross the network in the clear" in server.log.read_text()) == warned
