"""The servers that all test processes share: one PostgreSQL and one S3 server for the whole run.

The process that controls the run starts each when a test first asks for it, and stops it at the end. The processes of
pytest-xdist ask over a Unix socket, whose address is in MXR_TEST_SERVERS. Each test takes a database or a bucket of its
own. A test that stops or breaks a server starts one of its own instead.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .postgresql import PostgreSQL, PostgreSQLServer
from .swift import S3Server, Swift

ADDRESS = "MXR_TEST_SERVERS"


class SharedServers:
    """The servers of one run, in the process that controls it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mxr-servers-"))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self.folder / "socket"))
        self._socket.listen(64)
        self._answers: dict[str, Any] = {}
        self._stops: list[Callable[[], None]] = []
        # The servers end with the thread that started them (PR_SET_PDEATHSIG), which is this one.
        self._thread = threading.Thread(target=self._serve, name="shared servers", daemon=True)
        self._thread.start()
        os.environ[ADDRESS] = str(self.folder / "socket")

    def _serve(self) -> None:
        starters = {"postgresql": self._postgresql, "swift": self._swift, "sqlite": self._sqlite}
        while True:
            connection, _ = self._socket.accept()
            with connection, connection.makefile("rw") as stream:
                name = stream.readline().strip()
                if name == "stop":
                    return
                try:
                    if name not in self._answers:
                        self._answers[name] = starters[name]()
                    answer = {"ok": self._answers[name]}
                except Exception as problem:
                    answer = {"error": f"{type(problem).__name__}: {problem}"}
                stream.write(json.dumps(answer) + "\n")
                stream.flush()

    def _postgresql(self) -> list[str]:
        server = PostgreSQL()
        self._stops.append(server.remove)
        server.drop(server.migrated())
        return [str(server.folder), server.template]

    def _swift(self) -> str:
        server = Swift(_made(self.folder / "swift"))
        self._stops.append(server.stop)
        return server.url

    def _sqlite(self) -> str:
        """A SQLite file with the tables of today."""
        from mxr_registry.database import schema
        from mxr_registry.database.session import Database

        path = _made(self.folder / "sqlite") / "registry.db"
        db = Database(f"sqlite:///{path}")
        schema.upgrade(db)
        db.close()
        return str(path)

    def stop(self) -> None:
        """Stops all of them."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(os.environ.pop(ADDRESS))
            connection.sendall(b"stop\n")
        self._thread.join(60)
        for each in self._stops:
            each()
        self._socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _ask(name: str) -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(os.environ[ADDRESS])
        with connection.makefile("rw") as stream:
            stream.write(name + "\n")
            stream.flush()
            answer = json.loads(stream.readline())
    assert "ok" in answer, f"no {name}: {answer['error']}"
    return answer["ok"]


def shared_postgresql() -> PostgreSQLServer:
    """The PostgreSQL of this run."""
    folder, template = _ask("postgresql")
    return PostgreSQLServer(Path(folder), template)


def shared_s3() -> S3Server:
    """The S3 server of this run."""
    return S3Server(_ask("swift"))


def sqlite_template() -> Path:
    """A SQLite file with the tables of today, to be copied."""
    return Path(_ask("sqlite"))
