"""A real S3 server: OpenStack Swift with its S3 API, four processes on free ports that die with who started them.

It checks signatures, expiry and the sums of payloads, as a mock does not. Source: OpenStack Swift, doc/source/
deployment_guide.rst (the services and their configuration) and swift/common/middleware/s3api/s3api.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ACCESS, SECRET = "test:tester", "testing"
PATIENCE = 60.0
"""Seconds that the processes may take to listen on a busy machine."""

PARTS = {"account": "swift.account.server", "container": "swift.container.server", "object": "swift.obj.server"}
PROGRAMS = PARTS | {"proxy": "swift.proxy.server"}
PROXY = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
user = {user}
workers = 0
log_name = proxy
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache s3api tempauth bulk slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""
KEEPER = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
disable_fallocate = true
user = {user}
workers = 0
log_name = {name}
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""


class Unfit(Exception):
    """This machine cannot run the server; the words say why."""


class S3Server:
    """A running server at a URL. `bucket()` makes an empty bucket of its own for a test."""

    def __init__(self, url: str) -> None:
        self.url = url

    def client(self) -> Any:
        """boto3's own client, as the one who owns the buckets."""
        import boto3
        from botocore.config import Config

        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 4, "mode": "standard"})
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
            config=config,
        )

    def bucket(self, endpoint: str | None = None) -> Bucket:
        """A new and empty bucket; `endpoint`: where a registry finds it, when that is not the server itself."""
        name = f"b{secrets.token_hex(8)}"
        client = self.client()
        client.create_bucket(Bucket=name)
        return Bucket(client, name, endpoint or self.url)


class Swift(S3Server):
    """A server of this process."""

    def __init__(self, folder: Path) -> None:
        """Starts it in a folder and waits until it serves. Raises `Unfit`."""
        self.folder = folder
        _demand_attributes(folder)
        self._processes: list[subprocess.Popen[bytes]] = []
        ports = dict(zip(PROGRAMS, _free_ports(len(PROGRAMS)), strict=True))
        super().__init__(f"http://127.0.0.1:{ports['proxy']}")
        self._write(ports)
        try:
            for name in PROGRAMS:
                self._start(name)
            for port in ports.values():
                self._wait(port)
        except BaseException:
            self.stop()
            raise

    def _write(self, ports: dict[str, int]) -> None:
        folder, user = self.folder, pwd.getpwuid(os.geteuid()).pw_name
        (folder / "devices" / "d1").mkdir(parents=True)
        (folder / "swift.conf").write_text(
            "[swift-hash]\nswift_hash_path_suffix = tests\n[storage-policy:0]\nname = one\ndefault = yes\n"
        )
        (folder / "proxy.conf").write_text(PROXY.format(port=ports["proxy"], folder=folder, user=user))
        for name in PARTS:
            text = KEEPER.format(port=ports[name], folder=folder, user=user, name=name)
            (folder / f"{name}.conf").write_text(text)
        # Swift looks for its configuration while it is imported; a process of its own keeps that out of the tests.
        rings = "\n".join(f"{name} {ports[name]}" for name in PARTS)
        subprocess.run(
            [sys.executable, "-c", RINGS, str(folder)], input=rings, text=True, check=True, env=self._environ
        )

    @property
    def _environ(self) -> dict[str, str]:
        return os.environ | {"SWIFT_DIR": str(self.folder), "PYTHONWARNINGS": "ignore"}

    def _start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", PROGRAMS[name], str(self.folder / f"{name}.conf")],
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_die_with_parent,
                )
            )

    def _wait(self, port: int) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            ended = [each for each in self._processes if each.poll() is not None]
            if ended or time.monotonic() > end:
                said = "\n".join(path.read_text()[-600:] for path in sorted(self.folder.glob("*.log")))
                raise Unfit(f"swift did not start: {said}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stops all of it."""
        for each in self._processes:
            each.kill()
        for each in self._processes:
            each.wait(PATIENCE)


class Bucket:
    """A bucket under one prefix, and what a test does to it behind the registry's back."""

    def __init__(self, client: Any, name: str, endpoint: str) -> None:
        self.client, self.name, self.endpoint = client, name, endpoint
        self.prefix = "fleet/one"

    @property
    def url(self) -> str:
        """As MXR_STORE_URL."""
        return f"s3://{self.name}/{self.prefix}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a registry that keeps its bytes here."""
        return {
            "MXR_STORE_URL": self.url,
            "MXR_S3_ENDPOINT": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def key(self, sha256: str) -> str:
        """Where the bytes of a blob are."""
        return f"{self.prefix}/blobs/{sha256[:2]}/{sha256[2:4]}/{sha256}"

    def read(self, sha256: str) -> bytes:
        """The bytes of a blob."""
        data: bytes = self.client.get_object(Bucket=self.name, Key=self.key(sha256))["Body"].read()
        return data

    def write(self, sha256: str, data: bytes) -> None:
        """Puts any bytes where those of a blob are."""
        self.client.put_object(Bucket=self.name, Key=self.key(sha256), Body=data)

    def spoil(self, sha256: str) -> None:
        """Changes one byte of a blob, as nobody should."""
        data = bytearray(self.read(sha256))
        data[len(data) // 2] ^= 1
        self.write(sha256, bytes(data))

    def lose(self, sha256: str) -> None:
        """Takes a blob away."""
        self.client.delete_object(Bucket=self.name, Key=self.key(sha256))

    def names(self) -> list[str]:
        """All that is here."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return [row["Key"] for page in pages for row in page.get("Contents", ())]


RINGS = """
import sys
from pathlib import Path
from swift.common.ring import RingBuilder
folder = Path(sys.argv[1])
for line in sys.stdin:
    name, port = line.split()
    builder = RingBuilder(4, 1, 0)
    where = {"region": 1, "zone": 1, "ip": "127.0.0.1", "replication_ip": "127.0.0.1", "device": "d1", "meta": ""}
    builder.add_dev({**where, "id": 0, "weight": 1.0, "port": int(port), "replication_port": int(port)})
    builder.rebalance()
    builder.get_ring().save(str(folder / f"{name}.ring.gz"))
"""


def _demand_attributes(folder: Path) -> None:
    probe = folder / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.mxr", b"1")
    except OSError as problem:
        raise Unfit(f"{folder}: its file system has no user attributes, which Swift needs ({problem})") from None


def _free_ports(count: int) -> list[int]:
    """Ports below those that the kernel gives to others, so that nobody takes one before the server does.

    Source: Linux, Documentation/networking/ip-sysctl.rst, ip_local_port_range.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(range(10_000, first))
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in found:
                found.append(port)
    return found


def _die_with_parent() -> None:
    """Tests that are killed leave no server behind. Source: prctl(2), PR_SET_PDEATHSIG = 1."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
