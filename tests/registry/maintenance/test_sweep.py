"""Sweeping: what the rules let go goes, and nothing else; bytes only after the grace period; safe beside everybody."""

from __future__ import annotations

import json
import os
import subprocess
import time
from hashlib import sha256
from typing import Any

import pytest
from harness.programs import Program
from harness.programs import run as run_program
from harness.scale import crowd
from harness.waiting import until
from paths import ROOT
from registry.registry_client import Parts, RegistryUnderTest, Start, on_sqlite

DAY = 86_400.0


@pytest.fixture(scope="module")
def snapshot(snapshot_of: Any, parts: Parts) -> Any:
    """A registry with three artifacts, two of one model; the facts are their ids in the order of publication."""

    def fill(server: RegistryUnderTest) -> list[str]:
        keys = [parts.gpu_key(), parts.gpu_key("gfx942"), parts.ref_key(model="sha256:" + "cd" * 32)]
        files = [parts.gfx908, parts.gfx942, parts.ref]
        attributes = [parts.explicit, parts.explicit, {}]
        ids = []
        for data, key, more in zip(files, keys, attributes, strict=True):
            status, said = server.publish(data, key, cut=5000, **more)
            assert status == 201, said
            ids.append(said["id"])
        return ids

    return snapshot_of(fill)


@pytest.fixture
def three(start: Start, snapshot: Any) -> Any:
    """A registry of its own with three artifacts; `ids` are theirs in the order of publication."""
    server: Any = start(snapshot=snapshot)
    server.ids = snapshot.facts
    return server


def use(server: RegistryUnderTest, id: str, days: float) -> None:
    """The artifact was last used so many days ago."""
    server.rows.execute(f"UPDATE artifacts SET used_at = used_at - {days * DAY} WHERE id = '{id}'")


def sweep(server: RegistryUnderTest, *flags: str, config: str = "") -> dict[str, Any]:
    command = ["mxr-registry", "sweep", "--json", "--data", str(server.data), *flags]
    if config:
        path = server.data.parent / "registry.toml"
        path.write_text(config)
        command += ["--config", str(path)]
    done = run_program(command, env=os.environ | server.rows.environ)
    assert done.returncode == 0, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def kept(server: RegistryUnderTest) -> list[str]:
    return [each["id"] for each in reversed(server.call("GET", "/v1/artifacts")[1]["items"])]


def stored(server: RegistryUnderTest) -> int:
    return sum(1 for path in (server.data / "store" / "blobs").rglob("*") if path.is_file())


def test_without_rules_nothing_goes_that_somebody_published(three: Any) -> None:
    for id in three.ids:
        use(three, id, 5000)
    before = stored(three)
    said = sweep(three, config="[retention]\ngrace_hours = 0\n")
    assert (said["artifacts"], said["blobs"], said["gone"]) == (0, 0, [])
    assert (kept(three), stored(three)) == (three.ids, before)


def test_unused_artifacts_go_and_their_bytes_after_the_grace(three: Any, fsck: Any) -> None:
    use(three, three.ids[0], 100)
    use(three, three.ids[1], 10)
    before = stored(three)
    dry = sweep(three, "--unused-days", "30", "--dry-run")
    assert (dry["artifacts"], [each["name"] for each in dry["gone"]]) == (1, [three.ids[0]])
    assert kept(three) == three.ids
    said = sweep(three, "--unused-days", "30")
    assert (said["artifacts"], said["blobs"]) == (1, 0)
    assert (kept(three), stored(three)) == (three.ids[1:], before)
    three.rows.execute(f"UPDATE blobs SET touched_at = touched_at - {2 * DAY}")
    said = sweep(three, "--unused-days", "30")
    assert said["blobs"] > 0 and said["bytes"] > 0
    assert stored(three) == before - said["blobs"]
    assert fsck(three.data)[1]["findings"] == []


def test_uses_keep_an_artifact_also_those_from_caches(three: Any) -> None:
    for id in three.ids:
        use(three, id, 100)
    told = {"uses": [{"id": three.ids[2], "count": 1, "ago": 5 * DAY}]}
    assert three.call("POST", "/v1/uses", told)[0] == 200
    sweep(three, "--unused-days", "30")
    assert kept(three) == [three.ids[2]]


def test_a_promoted_artifact_stays(three: Any) -> None:
    for id in three.ids:
        use(three, id, 100)
    three.call("POST", f"/v1/artifacts/{three.ids[1]}/promote")
    sweep(three, "--unused-days", "30", "--keep-per-model", "1", "--total-size", "1")
    assert kept(three) == [three.ids[1]]


def test_what_a_lock_pins_stays_until_the_lock_goes(three: Any) -> None:
    for id in three.ids:
        use(three, id, 100)
    assert three.call("PUT", "/v1/locks/prod", {"artifacts": [three.ids[0]]})[0] < 300
    flags = ("--unused-days", "30", "--keep-per-model", "1", "--total-size", "1")
    sweep(three, *flags)
    assert kept(three) == [three.ids[0]]
    assert three.call("DELETE", "/v1/locks/prod")[0] == 200
    sweep(three, *flags)
    assert kept(three) == []


def test_of_each_model_those_used_last_stay(three: Any) -> None:
    use(three, three.ids[1], 3)
    said = sweep(three, "--keep-per-model", "1")
    assert [each["name"] for each in said["gone"]] == [three.ids[1]]
    assert kept(three) == [three.ids[0], three.ids[2]]


def test_by_size_what_was_used_longest_ago_goes(three: Any) -> None:
    use(three, three.ids[1], 9)
    use(three, three.ids[2], 8)
    total = sum(path.stat().st_size for path in (three.data / "store" / "blobs").rglob("*") if path.is_file())
    assert sweep(three, "--total-size", str(total))["artifacts"] == 0
    sweep(three, "--total-size", str(total - 1))
    assert kept(three) == [three.ids[0], three.ids[2]]
    # What went counts no longer, though its bytes are still in their grace.
    assert sweep(three, "--total-size", str(total - 1))["artifacts"] == 0


def test_shared_bytes_are_counted_once_and_kept_while_needed(start: Start, parts: Parts, fsck: Any) -> None:
    server = start()
    ids = [
        server.publish(parts.ref, parts.ref_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": str(n)}))[1]["id"] for n in range(3)
    ]
    use(server, ids[0], 9)
    assert sweep(server, "--total-size", str(len(parts.ref)))["artifacts"] == 0
    sweep(server, "--unused-days", "5", config="[retention]\ngrace_hours = 0\n")
    assert kept(server) == ids[1:]
    assert server.get(f"/v1/artifacts/{ids[1]}/files/model.mxr").data == parts.ref
    assert fsck(server.data)[0] == 0


def test_bytes_that_were_said_to_be_here_stay_for_the_grace(start: Start) -> None:
    server = start()
    blob = server.upload(b"weights" * 1000)
    config = "[retention]\ngrace_hours = 1\n"
    server.rows.execute("UPDATE blobs SET touched_at = touched_at - 7200")
    assert server.call("POST", "/v1/blobs/missing", {"blobs": [blob]})[1]["missing"] == []
    assert sweep(server, config=config)["blobs"] == 0
    server.rows.execute("UPDATE blobs SET touched_at = touched_at - 7200")
    assert sweep(server, config=config)["blobs"] == 1
    assert server.call("POST", "/v1/blobs/missing", {"blobs": [blob]})[1]["missing"] == [blob["sha256"]]
    assert stored(server) == 0


def test_bytes_of_idle_models_go_and_come_again(start: Start, fsck: Any) -> None:
    server = start()
    onnx = (ROOT / "examples" / "models" / "convnet.onnx").read_bytes()
    model = server.registration(onnx)
    assert server.call("POST", "/v1/models", model)[0] < 300
    config = "[retention]\ngrace_hours = 0\nmodel_days = 7\n"
    assert sweep(server, config=config)["models"] == 0
    server.rows.execute(f"UPDATE models SET created_at = created_at - {8 * DAY}")
    assert sweep(server, config=config)["models"] == 1
    sweep(server, config=config)
    assert stored(server) == 0
    assert server.call("GET", f"/v1/models/{model['model']}")[1]["complete"] is False
    model["manifest"] = server.manifest(onnx, "model.onnx")
    assert server.call("POST", "/v1/models", model)[1]["complete"] is True
    assert fsck(server.data)[0] == 0


def test_old_records_go(three: Any) -> None:
    three.call("POST", "/v1/resolve", {"key": {**_key(three), "arch": "gfx1030"}})
    config = "[retention]\nmiss_days = 1\n"
    assert sweep(three, config=config)["misses"] == 0
    three.rows.execute(f"UPDATE misses SET last_at = last_at - {2 * DAY}")
    assert sweep(three, config=config)["misses"] == 1
    assert three.call("GET", "/v1/misses")[1]["items"] == []


def _key(server: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.call("GET", f"/v1/artifacts/{server.ids[0]}")[1]["key"]
    return found


@on_sqlite
@pytest.mark.parametrize("words", ["unused_days = -1", 'total_size = "much"', "keep_per_model = 0", "colour = 1"])
def test_rules_that_make_no_sense_are_refused(three: Any, words: str) -> None:
    path = three.data.parent / "registry.toml"
    path.write_text(f"[retention]\n{words}\n")
    command = ["mxr-registry", "sweep", "--data", str(three.data), "--config", str(path)]
    done = run_program(command, env=os.environ | three.rows.environ)
    assert done.returncode == 2 and "retention" in done.stderr and "Traceback" not in done.stderr
    assert kept(three) == three.ids


def test_two_sweeps_beside_uploads_lose_nothing(start: Start, parts: Parts, fsck: Any) -> None:
    """Bytes without grace, swept by two programs all the time, while clients publish and read what they published."""
    server = start()
    config = server.data.parent / "registry.toml"
    config.write_text("[retention]\ngrace_hours = 0.0003\n")
    command = ["python", "-c", _SWEEPER, str(server.data), str(config)]
    environ = os.environ | server.rows.environ
    sweepers = [
        Program(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for each in sweepers:
        assert each.stdout is not None and each.stdout.readline() == "sweeping\n"
    published: dict[str, bytes] = {}
    many = crowd(40, 16)
    for number in range(many):
        key = parts.ref_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": str(number % (many // 2))})
        while True:
            status, said = server.publish(parts.ref, key, cut=40_000 + number % (many // 2), intent={"restore": True})
            if status in (200, 201):
                break
            # A blob was swept while it was on its way: said so, and sent again.
            assert said["code"] in ("no_such_blob", "temporary"), said
        published[said["id"]] = parts.ref
        if number % 3 == 0:
            assert server.call("DELETE", f"/v1/artifacts/{said['id']}")[0] == 200
            del published[said["id"]]
    # Nothing refers to the bytes of the last one any more: a sweeper removes them once their grace is over.
    last = sha256(parts.ref[: 40_000 + (many - 1) % (many // 2)]).hexdigest()
    until(lambda: server.get(f"/v1/blobs/{last}").status == 404)
    ended = [(each.communicate("\n", timeout=60)[0], each.returncode) for each in sweepers]
    assert [code for _, code in ended] == [0, 0] and sum(int(out) for out, _ in ended) > 0
    assert published
    for id, data in published.items():
        assert server.get(f"/v1/artifacts/{id}/files/model.mxr").data == data
    assert fsck(server.data)[0] == 0


def test_damaged_blobs_stay_aside_for_a_month(three: Any) -> None:
    path = next(path for path in (three.data / "store" / "blobs").rglob("*") if path.is_file())
    aside = three.data / "store" / "damaged"
    aside.mkdir()
    for days in (29, 31):
        (aside / f"{path.name}.{int((time.time() - days * DAY) * 1000)}").write_bytes(b"wrong")
    said = sweep(three, "--dry-run")
    assert (said["damaged"], len(list(aside.iterdir()))) == (1, 2)
    said = sweep(three)
    assert (said["damaged"], said["bytes"]) == (1, 5)
    assert said["gone"] == [{"kind": "damaged", "name": path.name, "why": "set aside more than 30 days ago", "size": 5}]
    assert len(list(aside.iterdir())) == 1 and path.exists()


_SWEEPER = """
import os, select, sys
from pathlib import Path
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database.session import Database
from mxr_registry.maintenance.sweep import Sweep, SweepReport
from mxr_registry.storage import open_store
settings = RegistrySettings.read(os.environ, {"serve.data": sys.argv[1]}, Path(sys.argv[2]))
db, store, blobs = Database(settings.database_url, settings.connections), open_store(settings.store_url), 0
print("sweeping", flush=True)
while not select.select([sys.stdin], [], [], 0.05)[0]:
    sweep = Sweep(db, store, settings.retention, settings.rules, settings.grace, lambda _: None, SweepReport(False))
    blobs += sweep.run().blobs
print(blobs)
"""
