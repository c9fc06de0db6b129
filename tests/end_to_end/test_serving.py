"""What a namespace serves, with the real programs: a push, a lock, the rule `built`, an amendment, and a worker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.programs import command
from harness.programs import run as run_program
from harness.workers import lease_of, registered
from registry.registry_client import gpu_capabilities

from .conftest import GPU, Programs
from .stack import Host, Registry


def serve(registry: Registry, rule: str) -> None:
    """Set the rule of the namespace beside the running registry."""
    words = ("namespace", "set", "default", "--serve", rule, "--data", registry.data)
    done = run_program(command("mxr-registry", *words), env=os.environ | registry.environ)
    assert (done.returncode, done.stdout) == (0, f"default: serve {rule}\n"), done


def finish(registry: Registry, data: bytes, manifest: dict[str, Any]) -> None:
    """Do the open job as a worker that compiles exactly these bytes."""

    def send(method: str, path: str, body: Any) -> Any:
        return registry.call(method, path, body)[1]

    lease = lease_of(send, registered(send, "gpu-1", gpu_capabilities()))
    for blob in manifest["files"][0]["blobs"]:
        registry.call("PUT", f"/v1/blobs/{blob['sha256']}", data)
    made = {"key": lease["key"], "manifest": manifest, "attributes": {"sramecc": "+", "xnack": "-"}}
    status, said = registry.call(
        "POST", f"/v1/jobs/{lease['job']}/finish", {"lease": lease["secret"], "artifact": made}
    )
    assert (status, said["state"]) == (200, "done"), said


def test_a_pushed_program_where_only_built_ones_are_served(
    own_registry: Callable[..., Registry], host: Callable[..., Host], model: Path, programs: Programs
) -> None:
    registry = own_registry()
    publisher, old, new = (host(name, registry.url) for name in ("publisher", "old", "new"))
    push = ("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    id = publisher(*push, "--num-cu", "120", "--json").json["id"]
    assert old("fetch", model, *GPU, "--json").json["id"] == id
    old("lock", model, *GPU)

    serve(registry, "built")
    miss = new("fetch", model, *GPU, expect=3).err
    assert f"artifact {id[:12]} matches, but it is pushed and not promoted" in miss
    assert f"mxr promote {id[:12]}" in miss and "mxr-registry namespace set default --serve any" in miss
    new("lock", model, *GPU, expect=3)
    refused = old("lock", "--register", "prod", expect=7).err
    assert "do not answer requests" in refused
    # The lock names it by its id.
    assert new("fetch", "--locked", old.home / "mxr.lock", "--json").json

    refused = publisher(*push, "--num-cu", "104", expect=6).err
    assert "num_cu: requested 104, found 120" in refused and "--amend" in refused
    amended = publisher(*push, "--num-cu", "104", "--amend")
    assert amended.out.strip() == id and "requests do not get this artifact yet" in amended.err

    new("fetch", model, *GPU, "--on-miss", "ask", expect=4)
    shown = registry.call("GET", f"/v1/artifacts/{id}")[1]
    finish(registry, programs.gfx908.read_bytes(), shown["manifest"])
    assert new("fetch", model, *GPU, "--json").json["id"] == id
    text = " ".join(new("show", id).out.split())
    assert "origin built by worker gpu-1" in text and "num_cu worker 120" in text
    assert "cannot be replaced" in publisher(*push, "--num-cu", "104", "--amend", expect=6).err
    old("lock", "--register", "prod")
    # Compiled before, it is not compiled again for the lack of a promotion.
    serve(registry, "promoted")
    unpromoted = host("last", registry.url)("fetch", model, *GPU, "--on-miss", "wait", expect=3).err
    assert "only promoted artifacts" in unpromoted and f"Promote it: `mxr promote {id[:12]}`" in unpromoted
    publisher("promote", id)
    assert host("last", registry.url)("fetch", model, *GPU, "--json").json["id"] == id
