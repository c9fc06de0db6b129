"""The programs with a registry whose bytes are in S3: signed URLs, fallback to the registry, damage and outages."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import urllib3
from harness.programs import run as run_program
from harness.tokens import authorization
from servers.faulty import Alter, Answer, Cut, Fault, Faulty, Stall, Withhold, refused
from servers.nginx import nginx
from servers.rows import Databases
from servers.swift import Bucket, S3Server

from .conftest import Programs
from .large_program import MIB, write_program
from .stack import Host, Registry, Stack, clean_environ, eventually, finish

Hosts = Callable[..., Host]
Start = Callable[..., Registry]
REF = ("--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python")


@pytest.fixture
def outside(swift: S3Server) -> Iterator[Faulty]:
    """The way by which clients reach the S3 server: the registry has another."""
    with Faulty(swift.url) as found:
        yield found


@pytest.fixture(scope="module")
def stack() -> Stack:
    """Rows in SQLite: the bytes are what these tests are about."""

    def none() -> Any:
        raise AssertionError

    return Stack("embedded", Databases("sqlite", none), none)


@pytest.fixture
def inside(swift: S3Server) -> Iterator[Faulty]:
    """The way by which the registry reaches the S3 server."""
    with Faulty(swift.url) as found:
        yield found


@pytest.fixture
def start_s3(own_registry: Start, bucket: Bucket, inside: Faulty, outside: Faulty) -> Start:
    """Starts a registry on the test's bucket; more of its environment may be given."""

    def begin(**environ: str) -> Registry:
        usual = {"MXR_S3_ENDPOINT": inside.url, "MXR_S3_PUBLIC_ENDPOINT": outside.url}
        return own_registry(environ={**bucket.environ, **usual, **environ}, spoil=bucket.spoil)

    return begin


class Published:
    """The gfx908 program, published in a registry on S3, and hosts that fetch it."""

    def __init__(self, registry: Registry, host: Hosts, model: Path, program: Path, gpu: tuple[str, ...]) -> None:
        self.registry, self.model, self.gpu = registry, model, gpu
        self.data = program.read_bytes()
        self._host = host
        self._push = ("push", program, "--model", model, "--rocm", "7.2", "--for", "python", "--json")
        self.said: dict[str, Any] = self.push().json
        self.sha256: str = self.said["sha256"]

    def push(self, expect: int = 0) -> Any:
        return self._host("publisher", self.registry.url)(*self._push, expect=expect)

    def fetch(self, name: str, expect: int = 0, env: dict[str, str] | None = None) -> Any:
        """Fetches as a host that has nothing yet, and gives the document; the file must be the right one."""
        host = self._host(name, self.registry.url)
        done = host("fetch", self.model, *self.gpu, "--json", expect=expect, env=env)
        if expect == 0:
            assert Path(done.json["path"]).read_bytes() == self.data
        else:
            assert host.held() == []
        assert host.leftovers() == []
        return done

    @property
    def blob(self) -> str:
        return f"/v1/blobs/{self.sha256}"


@pytest.fixture
def publish(host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]) -> Callable[[Registry], Published]:
    return lambda registry: Published(registry, host, model, programs.gfx908, gpu)


Publish = Callable[[Registry], Published]


class TestSignedUrls:
    def test_a_fetch_goes_straight_to_the_store_without_the_token(
        self, start_s3: Start, publish: Publish, outside: Faulty, inside: Faulty
    ) -> None:
        found = publish(start_s3())
        begun = inside.count("GET", found.sha256)
        with Faulty(found.registry.url) as front:
            found.fetch("one", env={"MXR_REGISTRY": front.url})
        token = found.registry.tokens["admin"]
        assert any(token in seen.headers.get("authorization", "") for seen in front.seen if seen.path == found.blob)
        (asked,) = outside.seen
        assert asked.method == "GET" and found.sha256 in asked.path
        assert token not in str(asked)
        assert not {"authorization", "cookie"} & set(asked.headers)
        assert inside.count("GET", found.sha256) == begun

    def test_curl_follows_the_redirect_and_head_needs_none(
        self, start_s3: Start, publish: Publish, outside: Faulty
    ) -> None:
        found = publish(start_s3())
        reply = found.registry.ask("GET", found.blob, Range="bytes=10-19")
        assert (reply.status, reply.data) == (206, found.data[10:20])
        with urllib3.PoolManager(retries=False, headers=authorization(found.registry.url)) as http:
            first = http.request("GET", found.registry.url + found.blob, redirect=False)
            assert first.status == 307 and first.headers["location"].startswith(outside.url)
            assert "no-store" in first.headers["cache-control"]
            head = http.request("HEAD", found.registry.url + found.blob, redirect=False)
        assert (head.status, head.headers["content-length"]) == (200, str(len(found.data)))
        assert head.headers["etag"] == f'"{found.sha256}"'

    @pytest.mark.parametrize(
        ("environ", "headers"),
        [
            ({"MXR_S3_SIGNED": "off"}, {}),
            ({"MXR_S3_PUBLIC_ENDPOINT": ""}, {"X_Forwarded_For": "192.0.2.7"}),
        ],
    )
    def test_who_could_not_follow_gets_the_bytes(
        self, start_s3: Start, publish: Publish, environ: dict[str, str], headers: dict[str, str]
    ) -> None:
        found = publish(start_s3(**environ))
        sent = {name.replace("_", "-"): value for name, value in headers.items()} | authorization(found.registry.url)
        with urllib3.PoolManager(retries=False, headers=sent) as http:
            reply = http.request("GET", found.registry.url + found.blob, redirect=False)
        assert (reply.status, reply.data) == (200, found.data)
        found.fetch("one")

    def test_an_endpoint_on_this_machine_serves_a_client_on_it(
        self, start_s3: Start, publish: Publish, inside: Faulty
    ) -> None:
        found = publish(start_s3(MXR_S3_PUBLIC_ENDPOINT=""))
        begun = inside.count("GET", found.sha256)
        found.fetch("one")
        assert inside.count("GET", found.sha256) == begun + 1
        assert found.registry.requests(f"GET {found.blob}: ") == 1

    def test_whole_files_come_from_the_registry(self, start_s3: Start, publish: Publish, outside: Faulty) -> None:
        found = publish(start_s3())
        path = f"/v1/artifacts/{found.said['id']}/files/model.mxr"
        whole = found.registry.ask("GET", path)
        assert (whole.status, whole.data) == (200, found.data)
        part = found.registry.ask("GET", path, Range="bytes=-7")
        assert (part.status, part.data) == (206, found.data[-7:])
        assert outside.seen == []


class TestFallingBack:
    @pytest.mark.parametrize(
        "fault",
        [Answer(403, "AccessDenied"), Answer(404, "NoSuchKey"), Answer(503), Cut(1000), Alter(1000), Stall(), Stall(9)],
        ids=str,
    )
    def test_what_the_signed_url_does_not_give_the_registry_does(
        self, start_s3: Start, publish: Publish, outside: Faulty, fault: Fault
    ) -> None:
        found = publish(start_s3())
        outside.spoil(fault)
        found.fetch("one", env={"MXR_TIMEOUT": "5"})
        assert len(outside.seen) == 1
        assert found.registry.requests(f"GET {found.blob}?direct=no") == 1

    def test_a_host_that_cannot_be_reached_is_tried_once(
        self, start_s3: Start, host: Hosts, model: Path, tmp_path: Path
    ) -> None:
        registry = start_s3(MXR_S3_PUBLIC_ENDPOINT=refused())
        program = write_program(tmp_path / "many.mxr", weights=9, size=MIB, seed=21)
        host("publisher", registry.url)("push", program, "--model", model, "--for", "python")
        got = host("one", registry.url)("fetch", model, *REF, "--json").json["path"]
        assert Path(got).read_bytes() == program.read_bytes()
        streamed = registry.log.read_text().count("?direct=no")
        # As many as are fetched at once may have met the closed door.
        assert streamed >= 9 and registry.requests("GET /v1/blobs/") - streamed <= 4


class TestBigBlobs:
    def test_each_is_one_request_of_s3_and_comes_back(
        self, start_s3: Start, host: Hosts, model: Path, tmp_path: Path, inside: Faulty
    ) -> None:
        registry = start_s3()
        program = write_program(tmp_path / "large.mxr", weights=1, size=40 * MIB, seed=22)
        publisher = host("publisher", registry.url)
        publisher("push", program, "--model", model, "--for", "python")
        assert inside.count("POST") == 0
        assert max(int(each.headers["content-length"]) for each in inside.seen if each.method == "PUT") == 40 * MIB
        got = host("one", registry.url)("fetch", model, *REF, "--json").json["path"]
        assert Path(got).read_bytes() == program.read_bytes()
        assert registry.fsck()["findings"] == []


class TestDamage:
    def test_it_is_found_reported_and_repaired(self, start_s3: Start, publish: Publish, bucket: Bucket) -> None:
        found = publish(start_s3())
        found.registry.spoil(found.sha256)
        error = found.fetch("one", expect=3).error
        assert (error["code"], "state lost" in error["detail"]) == ("no_such_artifact", True)
        assert f"blob {found.sha256} is damaged" in found.registry.log.read_text()
        assert any(f"damaged/{found.sha256}." in key for key in bucket.names())
        assert found.registry.ask("GET", found.blob + "?direct=no").status == 404
        assert any(found.sha256 in each["name"] for each in found.registry.fsck(expect=65)["findings"])
        assert found.push().json["id"] == found.said["id"]
        found.fetch("two")
        assert found.registry.fsck()["artifacts"] == 1

    def test_a_server_that_returns_other_bytes_to_all_is_believed_by_none(
        self, start_s3: Start, publish: Publish, inside: Faulty, outside: Faulty
    ) -> None:
        found = publish(start_s3())
        inside.spoil(Alter(500), method="GET", part=found.sha256)
        outside.spoil(Alter(500), method="GET")
        assert found.fetch("one", expect=3).error["code"] == "no_such_artifact"
        inside.heal()
        outside.heal()
        found.push()
        found.fetch("two")

    def test_a_blob_that_is_gone_is_said(self, start_s3: Start, publish: Publish, bucket: Bucket) -> None:
        found = publish(start_s3())
        bucket.lose(found.sha256)
        assert found.fetch("one", expect=3).error["code"] == "no_such_artifact"
        (gone,) = found.registry.fsck(expect=65)["findings"]
        assert gone["kind"] == "missing"
        found.push()
        found.fetch("two")

    def test_fsck_finds_and_repairs(self, start_s3: Start, publish: Publish, bucket: Bucket) -> None:
        found = publish(start_s3())
        bucket.write("0" * 64, b"nobody's")
        found.registry.spoil(found.sha256)
        kinds = {each["kind"] for each in found.registry.fsck(expect=65)["findings"]}
        assert kinds == {"bytes", "orphan"}
        repaired = found.registry.fsck("--repair", expect=65)["findings"]
        assert {each["kind"]: each["repaired"] for each in repaired} == {
            "bytes": True,
            # Younger than the grace period: an upload may be under way.
            "orphan": False,
        }
        assert bucket.read("0" * 64) == b"nobody's"


class TestOutages:
    def test_a_busy_server_is_asked_again(self, start_s3: Start, publish: Publish, inside: Faulty) -> None:
        registry = start_s3(MXR_S3_SIGNED="off")
        inside.spoil(Answer(503), times=2)
        found = publish(registry)
        inside.spoil(Answer(503), times=2)
        found.fetch("one")

    def test_one_that_stays_busy_is_temporary(self, start_s3: Start, publish: Publish, inside: Faulty) -> None:
        found = publish(start_s3(MXR_S3_SIGNED="off"))
        inside.spoil(Answer(503))
        error = found.fetch("one", expect=75).error
        assert error["retry"] and "S3" in error["detail"] and "S3 server" in error["hint"]
        assert found.registry.ask("GET", "/healthz").status == 200
        # A busy machine may take longer than a probe waits.
        eventually(lambda: "S3" in found.registry.ask("GET", "/readyz").json()["store"])
        assert found.registry.ask("GET", "/readyz").status == 200, "resolves and hits are still served"
        inside.heal()
        found.fetch("two")

    def test_one_that_stalls_is_temporary(self, start_s3: Start, publish: Publish, inside: Faulty) -> None:
        found = publish(start_s3(MXR_S3_SIGNED="off", MXR_S3_TIMEOUT="3"))
        inside.spoil(Stall())
        assert "did not answer" in found.fetch("one", expect=75).error["detail"]

    def test_one_that_is_stopped_holds_no_request_up(
        self, start_s3: Start, publish: Publish, swift: S3Server, tmp_path: Path
    ) -> None:
        """Fifty clients at once, while the kernel of the server takes connections and nobody answers."""
        with nginx(tmp_path / "way", swift.url) as url:
            found = publish(start_s3(MXR_S3_ENDPOINT=url, MXR_S3_SIGNED="off", MXR_S3_TIMEOUT="2"))
            registry = found.registry
            registry.restart()

            def ask(number: int) -> tuple[int, float]:
                begun = time.monotonic()
                path = ("/v1/artifacts", found.blob, "/readyz")[number % 3]
                reply = registry.ask("GET", path)
                return reply.status, time.monotonic() - begun

            pid = int((tmp_path / "way" / "nginx.pid").read_text())
            os.kill(pid, signal.SIGSTOP)
            try:
                with ThreadPoolExecutor(50) as pool:
                    said = list(pool.map(ask, range(50)))
                eventually(lambda: "S3" in registry.ask("GET", "/readyz").json()["store"])
            finally:
                os.kill(pid, signal.SIGCONT)
            assert {status for status, _ in said[::3] + said[2::3]} == {200}, "what needs no bytes is served"
            assert {status for status, _ in said[1::3]} == {503}
            assert max(seconds for _, seconds in said) < 40, sorted(seconds for _, seconds in said)
            found.fetch("one")
            assert registry.ask("GET", "/v1/artifacts?state=lost").json()["items"] == []

    def test_one_that_slows_down_for_long_is_waited_for(
        self, start_s3: Start, publish: Publish, inside: Faulty, host: Hosts
    ) -> None:
        found = publish(start_s3(MXR_S3_SIGNED="off"))
        inside.spoil(Answer(503, "SlowDown"))
        patient = host("patient", found.registry.url)
        fetch = patient.start("fetch", found.model, *found.gpu, "--json", env={"MXR_RETRY": "60"})
        eventually(lambda: found.registry.requests(f"GET {found.blob}?direct=no: 503") >= 3)
        assert fetch.poll() is None
        inside.heal()
        out, error = fetch.communicate(timeout=120)
        assert fetch.returncode == 0, error
        assert Path(json.loads(out)["path"]).read_bytes() == found.data
        assert found.registry.ask("GET", "/v1/artifacts?state=lost").json()["items"] == [], "busy is not lost"

    def test_one_that_is_gone_is_temporary_and_the_cache_still_serves(
        self, start_s3: Start, publish: Publish, inside: Faulty, outside: Faulty
    ) -> None:
        found = publish(start_s3())
        found.fetch("one")
        for way in (inside, outside):
            way.leave()
        assert found.fetch("two", expect=75).error["code"] == "temporary"
        found.fetch("one")

    def test_a_body_cut_short_on_the_way_to_the_registry_is_read_on(
        self, start_s3: Start, publish: Publish, inside: Faulty
    ) -> None:
        found = publish(start_s3(MXR_S3_SIGNED="off"))
        inside.spoil(Cut(1000), method="GET", part=found.sha256, times=2)
        found.fetch("one")
        assert found.registry.requests(f"GET {found.blob}") == 1

    def test_an_upload_that_the_server_does_not_take_is_no_publication(
        self, start_s3: Start, publish: Publish, inside: Faulty, bucket: Bucket
    ) -> None:
        registry = start_s3()
        inside.spoil(Answer(503), method="PUT", part="blobs")
        with pytest.raises(AssertionError, match="expected exit 0"):
            publish(registry)
        assert registry.ask("GET", "/v1/artifacts").json()["items"] == []
        inside.heal()
        publish(registry).fetch("one")


@pytest.mark.parametrize(
    ("environ", "code", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, 2, "AWS_SECRET_ACCESS_KEY"),
        ({"MXR_STORE_URL": "s3://there-is-none/x"}, 2, "Create the bucket"),
        ({"MXR_S3_ENDPOINT": "nonsense"}, 2, "MXR_S3_ENDPOINT"),
        ({"MXR_S3_ENDPOINT": "http://127.0.0.1:1"}, 75, "unreachable"),
    ],
)
def test_a_registry_that_cannot_use_its_store_does_not_start(
    bucket: Bucket, tmp_path: Path, environ: dict[str, str], code: int, words: str
) -> None:
    done = run_program(
        ["mxr-registry", "serve", "--port", "0", "--data", str(tmp_path / "data")],
        env=clean_environ(tmp_path) | bucket.environ | environ,
    )
    assert (done.returncode, done.stdout) == (code, ""), done
    assert words in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


def test_a_registry_dies_between_blob_and_row(
    start_s3: Start, host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...], inside: Faulty, bucket: Bucket
) -> None:
    """The bytes are there and no row tells of them: nothing is lost, and the same push goes through."""
    registry = start_s3()
    name = sha256(programs.gfx908.read_bytes()).hexdigest()
    inside.spoil(Withhold(), method="PUT", part=name)
    push = ("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    first = host("publisher", registry.url).start(*push)
    eventually(lambda: bucket.key(name) in bucket.names())
    registry.kill9()
    inside.heal()
    assert finish(first).code == 69
    assert bucket.read(name) == programs.gfx908.read_bytes()
    registry.start()
    assert [each["kind"] for each in registry.fsck()["findings"]] == ["orphan"]
    host("publisher", registry.url)(*push)
    assert registry.fsck()["findings"] == []
    fetched = host("other", registry.url)("fetch", model, *gpu).out.strip()
    assert Path(fetched).read_bytes() == programs.gfx908.read_bytes()
