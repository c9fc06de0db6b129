"""The socket of the user who serves: who is at the other end, by the word of the kernel, and what lies in its way."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.programs import BIN
from harness.registry import by_socket, registry_environ
from registry.registry_client import RegistryUnderTest, Start

from mxr.client.registry import Client
from mxr.errors import MxrError, NotAllowedError, NotARegistryError, UnauthenticatedError
from mxr.protocol import local_socket
from mxr.settings import Settings

MALLORY = 12_345
"""Another user of this host."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start programs of another user")


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


def whoami(path: Path, **headers: str) -> Any:
    """Status and JSON of the reply by a socket, without a token unless a header has one."""
    status, body = by_socket(path, "GET", "/v1/whoami", headers={k.replace("_", "-"): v for k, v in headers.items()})
    return status, json.loads(body)


def run_as(user: int, act: Callable[[], Any], *, unshare: bool = False) -> Any:
    """What a function returns in a process of another user; with `unshare` as root of a user namespace of its own."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        found: Any = "it failed"
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            if unshare:
                import ctypes

                # Without the first call, the map belongs to root. Source: proc(5), user_namespaces(7).
                assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0 == ctypes.CDLL(None).unshare(0x10000000)
                Path("/proc/self/uid_map").write_text(f"0 {user} 1")
                assert os.geteuid() == 0
            found = act()
        except BaseException as problem:
            found = f"{type(problem).__name__}: {problem}"
        finally:
            os.write(tell, json.dumps(found).encode())
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return json.loads(data)


def open_to_all(path: Path) -> None:
    """Let every user of this host reach a socket, as a careless `chmod` would. The folders above belong to the test."""
    path.chmod(0o666)
    for folder in path.parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)


def clients(server: RegistryUnderTest) -> Settings:
    """The settings of a program of the same user, without a token."""
    folder = server.socket_path.parent
    return Settings(server.url, socket_dirs=(folder,), timeout=20.0)


def test_its_user_needs_no_token(start: Start) -> None:
    server = start()
    path = server.socket_path
    assert path.name == f"{socket.gethostname()}_{server.port}.sock"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700 and stat.S_IMODE(path.stat().st_mode) == 0o600
    status, said = whoami(path)
    assert (status, said["name"], set(said["scopes"]), said["token"]) == (200, "local", {"admin", "work"}, None)
    client = Client(clients(server))
    for _ in range(2):
        # The second time on the same connection.
        assert client.whoami().name == "local" and client.socket_path == path
    assert server.rows.execute("SELECT count(*) FROM tokens") == [(2,)], "those that this test process made itself"
    assert server.stop() == 0
    assert not path.exists()


def test_its_place_is_in_the_folder_of_the_session(start: Start, tmp_path: Path, databases: Any) -> None:
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    rows = databases(tmp_path / "data")
    server = start(rows=replace(rows, environ={**rows.environ, "XDG_RUNTIME_DIR": str(session)}))
    assert server.socket_path.parent == session / "mxr" and whoami(server.socket_path)[0] == 200


def test_a_token_counts_where_there_is_one(start: Start) -> None:
    server = start()
    assert whoami(server.socket_path, authorization="Bearer x")[0] == 401
    said = whoami(server.socket_path, authorization=f"Bearer {server.tokens['work']}")[1]
    assert (said["name"], said["scopes"]) == ("tests", ["work"])


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "via", "x_real_ip", "x_forwarded_proto"])
def test_what_a_proxy_passes_on_has_no_rights(start: Start, header: str) -> None:
    assert whoami(start().socket_path, **{header: "127.0.0.1"})[0] == 401


def test_what_came_by_the_port_has_no_rights(start: Start) -> None:
    server = start()
    with pytest.raises(UnauthenticatedError) as caught:
        Client(Settings(server.url)).whoami()
    assert "No registry of this user has a socket for this port" in caught.value.hint


@as_root
def test_another_user_has_no_rights_without_a_token(start: Start) -> None:
    server = start()
    path, token = server.socket_path, server.tokens["admin"]
    assert "PermissionError" in run_as(MALLORY, lambda: whoami(path))
    open_to_all(path)
    assert run_as(MALLORY, lambda: whoami(path)[0]) == 401
    assert run_as(MALLORY, lambda: whoami(path)[0], unshare=True) == 401, "root of a container is that user here"
    assert run_as(MALLORY, lambda: whoami(path, authorization=f"Bearer {token}")[0]) == 200
    assert run_as(0, lambda: whoami(path)[0]) == 200


@as_root
def test_root_has_the_rights_of_a_user_who_serves_and_nobody_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry in a user namespace of its own sees all users of the host as one, and has none of them as its own."""
    one, other = socket.socketpair()
    with closing(one), closing(other):
        assert local_socket.is_own_peer(one)
        monkeypatch.setattr(os, "geteuid", lambda: MALLORY)
        assert local_socket.is_own_peer(one), "root is at the other end"
        monkeypatch.setattr(local_socket, "_unknown_user", lambda: 0)
        assert not local_socket.is_own_peer(one)


@as_root
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_who_took_the_port_gets_nothing(start: Start, host: str) -> None:
    """The user's own registry listens on the same port of another address, or is just away."""
    server = start()
    own, port = clients(server), server.port
    if host == "127.0.0.1":
        server.stop()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(MALLORY)
            os.setuid(MALLORY)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.create_server((host, port), family=family) as listener:
                os.write(tell, b"ready")
                connection, _ = listener.accept()
                data = connection.recv(65_536)
                body = b'{"name":"mallory","namespace":"default","scopes":["admin"],"token":null}'
                head = b"HTTP/1.1 200 OK\r\nmxr-registry: x\r\ncontent-length: %d\r\n\r\n" % len(body)
                connection.sendall(head + body)
                os.write(tell, data)
        finally:
            os._exit(0)
    os.close(tell)
    shown = f"[{host}]" if ":" in host else host
    settings = Settings(f"http://{shown}:{port}", socket_dirs=own.socket_dirs, timeout=20.0)
    try:
        assert os.read(told, 5) == b"ready"
        if host == "::1":
            assert Client(settings).whoami().name == "local", "the socket comes first"
            return
        with pytest.raises(NotARegistryError, match="asks for no token, which every registry does"):
            Client(settings).whoami()
        assert b"uthorization" not in os.read(told, 65_536)
    finally:
        os.close(told)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_one_that_was_left_behind_is_replaced(start: Start) -> None:
    server = start()
    server.kill9()
    assert server.socket_path.exists()
    with pytest.raises(MxrError, match="does not answer"):
        Client(clients(server)).whoami()
    server.start()
    assert whoami(server.socket_path)[0] == 200


def test_what_is_no_socket_stays_and_is_said(start: Start) -> None:
    server = start()
    path = server.socket_path
    server.stop()
    path.write_text("mine")
    server.start()
    assert path.read_text() == "mine"
    assert "because no socket for them can be made" in server.log.read_text()
    assert server.ok("GET", "/v1/whoami")["name"] == "tests", "it serves all the same"


@as_root
def test_a_folder_of_another_user_is_not_used(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "data-state" / "mxr" / "run"
    folder.mkdir(parents=True)
    os.chown(folder, MALLORY, MALLORY)
    server = start()
    assert f"it belongs to user {MALLORY}" in server.log.read_text() and not list(folder.iterdir())
    with socket.socket(socket.AF_UNIX) as impostor:
        with local_socket.opened(folder, private=False) as place:
            impostor.bind(f"{place}/{local_socket.name_of(server.port)}")
        impostor.listen()
        settings = Settings(server.url, socket_dirs=(folder,), timeout=20.0)
        with pytest.raises(UnauthenticatedError):
            Client(settings).whoami()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_nor_one_that_others_can_write(start: Start, mode: int) -> None:
    server = start()
    server.socket_path.parent.chmod(mode)
    with pytest.raises(UnauthenticatedError):
        Client(clients(server)).whoami()
    # Whoever can write the folder could answer there, also where it is configured.
    with pytest.raises(NotAllowedError, match=f"mode {mode:04o}"):
        Client(Settings(f"unix:{server.socket_path}", token=server.tokens["admin"])).whoami()
    server.restart()
    assert whoami(server.socket_path)[0] == 200, "its own folder is mended"


def test_a_path_of_any_length(start: Start, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 200) / "data"
    server = start(data=deep)
    assert len(str(server.socket_path)) > 300
    assert Client(clients(server)).whoami().name == "local"


@as_root
def test_hosts_that_share_a_home_have_sockets_of_their_own() -> None:
    words = ("unshare", "--uts", "sh", "-c", 'hostname another-host; exec "$@"', "sh", BIN / "python", "-c")
    program = "from mxr.protocol.local_socket import name_of; print(name_of(8765))"
    done = subprocess.run([*words, program], capture_output=True, text=True, check=True)
    assert done.stdout == "another-host_8765.sock\n" != f"{local_socket.name_of(8765)}\n"


class TestForProxies:
    """`serve --unix`: a socket without rights of its own, in a folder of the service."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Where the socket is to be."""
        folder = tmp_path / "run"
        folder.mkdir(mode=0o755)
        return folder / "registry.sock"

    def test_it_needs_a_token_of_everybody(self, start: Start, path: Path) -> None:
        server = start("--unix", str(path))
        assert f"listening on unix:{path} and http://127.0.0.1:{server.port}" in server.line
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert whoami(path)[0] == 401
        assert whoami(path, authorization=f"Bearer {server.tokens['work']}")[1]["name"] == "tests"
        client = Client(Settings(f"unix:{path}", token=server.tokens["admin"]))
        assert client.whoami().name == "tests" and client.socket_path == path
        with pytest.raises(UnauthenticatedError):
            Client(Settings(f"unix:{path}")).whoami()
        assert whoami(server.socket_path)[1]["name"] == "local"

    def test_its_proxy_tells_whose_request_it_is(self, start: Start, path: Path) -> None:
        server = start("--unix", str(path), "--trusted-proxies", "127.0.0.1", "--verbose")
        headers = {"authorization": f"Bearer {server.tokens['work']}", "x_forwarded_for": "203.0.113.9"}
        assert whoami(path, **headers)[0] == 200
        assert "203.0.113.9" in server.log.read_text()

    @pytest.mark.parametrize("mode", [0o775, 0o777, 0o1777])
    def test_its_folder_is_that_of_the_service(self, path: Path, tmp_path: Path, mode: int) -> None:
        path.parent.chmod(mode)
        words = [BIN / "mxr-registry", "serve", "--unix", path, "--data", tmp_path / "data"]
        done = subprocess.run(words, capture_output=True, text=True, env=registry_environ(), check=False)
        assert (done.returncode, path.exists()) == (2, False)
        assert f"other users can write it (mode {mode:04o}" in done.stderr

    def test_one_that_is_served_is_said(self, start: Start, path: Path, tmp_path: Path) -> None:
        start("--unix", str(path))
        words = [BIN / "mxr-registry", "serve", "--unix", path, "--data", tmp_path / "other"]
        done = subprocess.run(words, capture_output=True, text=True, env=registry_environ(), check=False)
        assert (done.returncode, f"Another registry listens on {path}." in done.stderr) == (75, True)

    def test_a_service_manager_keeps_it_while_the_registry_restarts(self, path: Path, tmp_path: Path) -> None:
        """Nobody else can take it meanwhile, and requests wait."""
        environ = registry_environ({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})
        with socket.socket(socket.AF_UNIX) as listener, socket.create_server(("127.0.0.1", 0)) as port:
            listener.bind(str(path))
            listener.listen()
            given = f'exec 7<&{listener.fileno()} 8<&{port.fileno()} 3<&7 4<&8; LISTEN_PID=$$ LISTEN_FDS=2 exec "$@"'
            words = ["bash", "-c", given, "bash", BIN / "mxr-registry", "serve", "--data", tmp_path / "data"]
            fds = (listener.fileno(), port.fileno())
            for _ in range(2):
                with closing(socket.socket(socket.AF_UNIX)) as early:
                    early.settimeout(60)
                    early.connect(str(path))
                    early.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                    process = subprocess.Popen(words, pass_fds=fds, env=environ, stdout=subprocess.PIPE, text=True)
                    try:
                        assert early.recv(12) == b"HTTP/1.1 200"
                        assert process.stdout is not None
                        line = process.stdout.readline()
                        assert f"listening on unix:{path} and http://127.0.0.1:{port.getsockname()[1]}" in line
                        assert whoami(path)[0] == 401
                    finally:
                        process.terminate()
                        assert process.wait(60) == 0
                        process.stdout.close() if process.stdout else None
            assert path.exists()
