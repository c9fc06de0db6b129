"""What one client can make a registry keep, and whom its requests stop: nobody."""

from __future__ import annotations

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import PendingRequest, until
from harness.workers import registration_of
from registry.inspectors import StoppedInspectors, fill
from registry.registry_client import HEARD, ONNX_MODEL, REF, RegistryUnderTest, Start, gpu_key, ref_key

from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.artifact.limits import MAX_MISS_BYTES
from mxr_registry.artifacts import misses
from mxr_registry.database import schema
from mxr_registry.database.session import Database
from mxr_registry.database.trail import ACTOR, Actor
from mxr_registry.decoding_cache import DecodingCache
from mxr_registry.json_text import to_json


@pytest.fixture(scope="module")
def engine() -> str:
    """The database is not the subject."""
    return "sqlite"


def deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def test_a_request_with_100000_inputs_is_refused_and_not_kept(server: RegistryUnderTest) -> None:
    for count in (10_000, 100_000):
        key = ref_key(ONNX_MODEL, inputs={str(number): [1] for number in range(count)})
        for path, body in (
            ("/v1/survey", {"requests": [{"key": key, "constraints": {}}]}),
            ("/v1/resolve", {"key": key, "constraints": {}}),
            ("/v1/jobs", {"key": key, "constraints": {}}),
        ):
            error = server.error("POST", path, body)
            if count == 10_000 or path == "/v1/survey":
                assert error["code"] == "usage" and "at most 1000 inputs" in error["detail"], path
            else:
                assert error["code"] == "too_large", "a request about one program is no large document"
    assert server.ok("GET", "/v1/misses")["items"] == []


def test_deep_documents_are_refused_everywhere(server: RegistryUnderTest) -> None:
    manifest = server.manifest(REF)
    body = {"key": ref_key(ONNX_MODEL), "manifest": manifest, "provenance": {"a": deep(20)}}
    assert "levels" in server.error("POST", "/v1/artifacts", body)["detail"]
    for name in ("provenance", "key", "attributes", "manifest"):
        for levels in (100, 900):
            error = server.error("POST", "/v1/artifacts", body | {name: {"a": deep(levels)}})
            assert error["code"] == "malformed" and "nested" in error["detail"]
    for path in ("/v1/resolve", "/v1/jobs", "/v1/workers", "/v1/models", "/v1/uses", "/v1/jobs/watch"):
        assert server.error("POST", path, {"a": deep(900)})["code"] == "malformed"
    assert server.ok("GET", "/v1/artifacts")["items"] == []


def memory_of(pid: int, field: str) -> float:
    """MiB of memory of a process: `VmRSS` now, `VmHWM` at most so far."""
    line = re.search(rf"^{field}:\s+([0-9]+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert line is not None
    return int(line[1]) / 1024


def test_values_are_bounded_before_they_are_built(server: RegistryUnderTest) -> None:
    """2,800,000 empty objects in 8 MiB would take 230 MB, 16 times at once 3.7 GB."""
    empty, scattered = b"[" + b"{}," * 2_796_000 + b"{}]", b'{"a":[' + b'"\xf0\x9f\x98\x80",' * 380_000 + b"1]}"

    def posted(path: str, body: bytes) -> int:
        return int(server.request("POST", path, body, {"content-type": "application/json"}).status)

    assert posted("/v1/resolve", b"[" + b"{}," * 100_000 + b"{}]") == 413
    bodies = [empty if number % 4 else scattered for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda body: posted("/v1/survey", body), bodies))
    assert set(found) <= {413, 422, 503} and 413 in found
    assert memory_of(server.process.pid, "VmHWM") < 600
    assert posted("/v1/survey", scattered) == 422, "alone, it finds the memory"
    assert posted("/v1/survey", empty) == 413


def test_a_survey_costs_little_whatever_workers_register(server: RegistryUnderTest) -> None:
    """300 workers with 64 targets each, and 1,000 requests with constraints of their own that none of them meets."""
    refused = 0
    for number in range(120):
        targets = [{"arch": "gfx908", "num_cu": 1 + 64 * number + each} for each in range(64)]
        can = {"targets": targets, "toolchain": {"rocm": "7.2.1", "migraphx": "2.15.0"}}
        refused += server.call("POST", "/v1/workers", registration_of(f"w{number}", can))[0] == 503
    assert refused, "the different capabilities of all workers are bounded"
    requests = [{"key": gpu_key(ONNX_MODEL), "constraints": {"num_cu": 20_000 + each}} for each in range(1_000)]
    before = cpu_seconds(server.process.pid)
    error = server.error("POST", "/v1/survey", {"requests": requests})
    assert (error["code"], error["hint"]) == ("too_large", "Send fewer requests at once.")
    assert server.ok("POST", "/v1/survey", {"requests": requests[:2]})["standings"][1]["able"] is False
    constraints = requests[0]["constraints"]
    refused = server.submit_error(gpu_key(ONNX_MODEL), constraints=constraints, require_worker=True)
    assert "num_cu" not in refused["hint"]
    assert cpu_seconds(server.process.pid) - before < 20, "it took a minute"
    others = [{"key": gpu_key(ONNX_MODEL, "gfx90a"), "constraints": {"num_cu": each}} for each in range(1, 1_000)]
    standings = server.ok("POST", "/v1/survey", {"requests": others})["standings"]
    assert not any(each["able"] for each in standings), "workers of other lanes cost nothing"
    assert memory_of(server.process.pid, "VmRSS") < 400
    server.rows.execute("DELETE FROM workers")


def cpu_seconds(pid: int) -> float:
    """Processor seconds that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def test_decoded_texts_are_kept_within_their_bytes() -> None:
    decoded: list[bytes] = []

    def decode(text: bytes) -> int:
        decoded.append(text)
        if text == b"wrong":
            raise ValueError
        return len(text)

    cache = DecodingCache(decode, 1_600)
    texts = [b"%d" % number * 25 for number in range(10, 50)]
    for _ in range(2):
        assert [cache.get(text) for text in texts] == [50] * 40
    assert decoded == texts * 2, "32 of them fit"
    assert [cache.get(text) for text in texts[-32:]] == [50] * 32 and decoded == texts * 2
    for _ in range(2):
        assert cache.get(b"x" * 101) == 101, "a large one is not kept"
        with pytest.raises(ValueError):
            cache.get(b"wrong")
    assert decoded[80:] == [b"x" * 101, b"wrong"] * 2


def test_publications_do_not_stop_other_requests(start: Start) -> None:
    server = start(config="[limits]\ninspections = 3\ninspections_waiting = 80\n")
    manifest = server.manifest(REF)

    def publication(number: int) -> dict[str, Any]:
        return {"key": ref_key(f"sha256:{number:064x}"), "manifest": manifest, "intent": {"also_for": True}}

    def send(number: int) -> PendingRequest:
        pending: PendingRequest = server.pending("POST", "/v1/artifacts", publication(number))
        return pending

    waiting = [send(number) for number in range(41)]
    with StoppedInspectors(server.process.pid, 2):
        server.handled(*waiting)
        fill(server, send, waiting)
        assert server.call("GET", "/readyz")[0] == 200
        assert server.call("POST", "/v1/resolve", {"key": ref_key(ONNX_MODEL), "constraints": {}})[0] == 404
        refused = server.request("POST", "/v1/artifacts", publication(999))
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert {each.reply()[0] for each in waiting} == {201}


def test_registrations_of_one_model_wait_without_a_thread(start: Start) -> None:
    server = start(config="[limits]\ninspections = 3\n")
    model = server.registration()
    waiting = [server.pending("POST", "/v1/models", model) for _ in range(50)]
    with StoppedInspectors(server.process.pid, 1) as inspectors:
        server.handled(*waiting)
        other = server.pending("POST", "/v1/artifacts", {"key": ref_key(ONNX_MODEL), "manifest": server.manifest(REF)})
        assert other.reply(HEARD)[0] == 201
        assert len(inspectors.stopped) == 1
    assert {each.reply()[0] for each in waiting} == {200, 201}


def test_misses_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = Database(f"sqlite:///{tmp_path / 'registry.db'}")
    schema.upgrade(db)
    monkeypatch.setattr(misses, "MAX_MISSES", 20)
    monkeypatch.setattr(misses, "MAX_MISS_HOSTS", 3)

    def request(name: str) -> Request:
        return Request(Key(ONNX_MODEL, "ref", "2.16", ((name, (1,)),)))

    for number in range(3 * misses.TRIM_INTERVAL):
        misses.record_miss(db, "default", request(str(number)), {"nearest": [], "reason": "no_program"})
    misses.record_miss(db, "default", request("x" * MAX_MISS_BYTES), {"nearest": [], "reason": "no_program"})
    for number in range(5):
        ACTOR.set(Actor("ci", "", [(b"mxr-host", b"node-%d" % number)]))
        misses.record_miss(db, "default", request("last"), {"nearest": [], "reason": "no_program"})
    with db.reading() as session:
        found = misses.list_misses(session, "default", misses.MissFilters(), None)
    last = found["items"][0]
    assert (last["count"], last["hosts"], len(last["asked_by"])) == (5, 3, 3)
    assert 20 <= len(found["items"]) < 20 + misses.TRIM_INTERVAL and len(to_json(found)) < 200_000
    db.close()


def test_data_belongs_to_its_user_only(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = os.umask(0)
    try:
        data.mkdir(mode=0o777)
        server = start(data=data)
    finally:
        os.umask(before)
    server.upload(b"bytes")
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (data, *data.glob("registry.db*"))}
    names = ("registry.db", "registry.db-wal", "registry.db-shm")
    assert modes == {"data": "0o700", **dict.fromkeys(names, "0o600")}
    server.stop(signal.SIGKILL)
    for name in names:
        (data / name).chmod(0o666)
    server.start()
    assert {oct(path.stat().st_mode & 0o777) for path in data.glob("registry.db*")} == {"0o600"}


def test_forwarded_addresses_are_believed_from_trusted_proxies_only(start: Start, tmp_path: Path) -> None:
    for name, flags, shown in (
        ("plain", (), "from 127.0.0.1 in"),
        ("behind", ("--trusted-proxies", "127.0.0.0/8"), "192.0.2.7"),
    ):
        server = start("--verbose", *flags, data=tmp_path / name)
        assert server.get("/healthz?seen", x_forwarded_for="192.0.2.7").status == 200
        until(lambda log=server.log: "/healthz?seen" in log.read_text())
        (line,) = [each for each in server.log.read_text().splitlines() if "/healthz?seen" in each]
        assert shown in line and (name == "behind") == ("192.0.2.7" in line)


def test_numbers_of_any_length_are_refused_and_not_computed(server: RegistryUnderTest) -> None:
    for name in ("limit", "days"):
        assert server.call("GET", f"/v1/uses?{name}={'0' * 9}{'9' * 31}")[0] == 422
    length = {"content-length": "0" * 5_000 + "2", "content-type": "application/json", **server.http.headers}
    assert server.http.request("POST", server.url + "/v1/resolve", body=b"{}", headers=length).status == 422


def test_the_name_of_an_onnx_file_moves_no_other_file(server: RegistryUnderTest) -> None:
    stated = server.registration()
    stated["manifest"]["files"] = [file | {"name": f"sub/{file['name']}"} for file in stated["manifest"]["files"]]
    status, said = server.call("POST", "/v1/models", stated | {"onnx": f"sub/{stated['onnx']}"})
    assert status == 422 and "without a folder" in said["detail"]
