"""Lost and damaged bytes: what needs them answers nothing, another artifact does, and their upload brings it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from registry.registry_client import Parts, RegistryUnderTest, on_sqlite


def path_of(artifact: Any) -> str:
    return f"/v1/artifacts/{artifact['id']}/files/model.mxr"


def names_of(artifact: Any) -> list[str]:
    return [blob["sha256"] for blob in artifact["manifest"]["files"][0]["blobs"]]


def state_of(server: RegistryUnderTest, artifact: Any) -> str:
    return str(server.ok("GET", f"/v1/artifacts/{artifact['id']}")["state"])


def resolved(server: RegistryUnderTest, key: Any) -> tuple[int, Any]:
    return server.call("POST", "/v1/resolve", {"key": key})


def test_another_artifact_answers_and_then_none(server: RegistryUnderTest, parts: Parts) -> None:
    key = parts.gpu_key("gfx90a", env={"MIGRAPHX_MLIR_TUNE_LIMIT": "21"})
    one, two = (server.publish(data, key, **parts.explicit)[1] for data in parts.same_key[:2])
    assert resolved(server, key)[1]["artifact"]["id"] == one["id"]
    server.blob_path(names_of(one)[0]).unlink()
    begun = server.request("GET", f"/v1/artifacts/{one['id']}").headers["etag"]
    reply = server.get(path_of(one))
    assert (reply.status, reply.json()["context"]) == (404, {"missing": names_of(one), "lost": True})
    assert "Resolve the request again" in reply.json()["hint"]
    assert (state_of(server, one), state_of(server, two)) == ("lost", "intact")
    assert server.request("GET", f"/v1/artifacts/{one['id']}").headers["etag"] != begun
    assert resolved(server, key)[1]["artifact"]["id"] == two["id"]
    assert [each["id"] for each in server.ok("GET", "/v1/artifacts?state=lost")["items"]] == [one["id"]]

    server.corrupt(names_of(two)[0])
    assert server.get(path_of(two)).status == 404
    status, miss = resolved(server, key)
    assert (status, miss["code"]) == (404, "no_such_artifact")
    lacks = [{"field": "state", "asked": "intact", "found": "lost"}]
    assert [each["differences"] for each in miss["context"]["nearest"][:2]] == [lacks, lacks]
    assert "accept" not in miss["context"]
    known = {name: key[name] for name in ("model", "kind", "vendor", "arch", "inputs", "env")}
    assert server.call("POST", "/v1/candidates", known)[0] == 404


def test_a_push_of_the_same_bytes_brings_it_back(server: RegistryUnderTest, parts: Parts) -> None:
    key = parts.gpu_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": "22"})
    said = server.publish(parts.gfx908, key, cut=4100, **parts.explicit)[1]
    first, second = names_of(said)[:2]
    for name in (first, second):
        server.blob_path(name).unlink()
        assert server.get(f"/v1/blobs/{name}").status == 404
    rows = [{"sha256": blob["sha256"], "size": blob["size"]} for blob in said["manifest"]["files"][0]["blobs"]]
    assert server.call("POST", "/v1/blobs/missing", {"blobs": rows})[1]["missing"] == [first, second]
    # It is whole only with the last of its bytes.
    server.upload(parts.gfx908[:4100])
    assert (state_of(server, said), resolved(server, key)[0]) == ("lost", 404)
    server.upload(parts.gfx908[4100:8200])
    assert (state_of(server, said), resolved(server, key)[0]) == ("intact", 200)
    assert server.get(path_of(said)).data == parts.gfx908


def test_a_model_whose_bytes_are_lost_is_asked_for_again(server: RegistryUnderTest, parts: Parts) -> None:
    model = server.register_model()
    (blob,) = server.ok("GET", f"/v1/models/{model}")["manifest"]["files"][0]["blobs"]
    server.blob_path(blob["sha256"]).unlink()
    assert server.get(f"/v1/blobs/{blob['sha256']}").status == 404
    assert not server.ok("GET", f"/v1/models/{model}")["complete"]
    key = parts.ref_key(model=model, env={"MIGRAPHX_MLIR_TUNE_LIMIT": "25"})
    assert server.submit_error(key)["code"] == "no_such_model"
    assert server.register_model() == model
    job = server.submit(key)
    assert server.finish(server.claim(server.register_worker()))["id"] == job["id"]


def test_it_is_compiled_again(server: RegistryUnderTest, parts: Parts) -> None:
    key = parts.ref_key(model=server.register_model())
    worker = server.register_worker()
    server.submit(key)
    made = server.finish(server.claim(worker))["artifact"]
    assert server.submit(key)["state"] == "done"
    said = server.ok("GET", f"/v1/artifacts/{made}")
    server.blob_path(names_of(said)[0]).unlink()
    assert server.get(path_of(said)).status == 404
    assert server.submit(key)["state"] == "queued"
    # The same bytes again, and so the same artifact.
    assert server.finish(server.claim(worker))["artifact"] == made
    assert (state_of(server, said), resolved(server, key)[0]) == ("intact", 200)


@on_sqlite
def test_fsck_notes_what_is_lost_and_what_is_there_again(
    server: RegistryUnderTest, parts: Parts, fsck: Any, tmp_path: Path
) -> None:
    key = parts.gpu_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": "24"})
    said = server.publish(parts.gfx908, key, cut=4300, **parts.explicit)[1]
    path = server.blob_path(names_of(said)[0])

    def found() -> set[str]:
        return {each["kind"] for each in fsck(server.data)[1]["findings"] if path.name in each["name"]}

    kept = path.rename(tmp_path / "kept")
    assert found() == {"missing"}
    assert (state_of(server, said), resolved(server, key)[0]) == ("lost", 404)
    kept.rename(path)
    assert found() == {"found"}
    assert (state_of(server, said), resolved(server, key)[0]) == ("intact", 200)
    assert found() == set()
