"""Another registry at a known URL, as where a volume is not mounted: hosts keep what they have until it is accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness import tokens

from .conftest import GPU, Programs
from .stack import Host, Registry

ON = ("embedded",)


def test_a_host_keeps_its_programs_until_the_new_one_is_accepted(
    own_registry: Callable[..., Registry], tmp_path: Path, model: Path, programs: Programs
) -> None:
    first = own_registry()
    publish = ("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    host = Host(tmp_path / "host", first.url)
    host(*publish)
    fetch, partial = ("fetch", model, *GPU), ("fetch", model, "--arch", "gfx908")
    path = host(*fetch).out
    host(*partial)
    before = first.request("GET", "/healthz").headers["mxr-registry"]
    first.stop()
    # An empty data directory: a new registry.
    second = own_registry(port=first.port)
    after = second.request("GET", "/healthz").headers["mxr-registry"]
    tokens.remember(second.url, second.tokens)
    host.environ |= tokens.variable(second.url) | {"MXR_MAX_AGE": "0"}
    for words in (fetch, partial):
        again = host(*words)
        assert again.out == path and f"is registry {after}, and not {before} as before" in again.err
    # What it does not have is no clean miss, on which a fleet would compile everything again.
    other = ("fetch", model, *GPU[:-4], "--batch", "8", "--for", "python")
    refused = host(*other, "--on-miss", "wait", "--json", expect=69).error
    assert refused["code"] == "other_registry" and "MXR_REGISTRY_ID" in refused["hint"]
    host(*fetch, "--refresh", expect=69)
    for words in (other, ("ls",), publish, ("whoami",)):
        assert f"but registry_id is {before}" in host(*words, env={"MXR_REGISTRY_ID": before}, expect=69).err
    # A host that had nothing takes it, unless it knows better.
    new = Host(tmp_path / "new", second.url)
    assert new(*fetch, env={"MXR_REGISTRY_ID": before}, expect=69)
    new(*fetch, expect=3)

    deployed = {"MXR_REGISTRY_ID": after}
    host(*other, env=deployed, expect=3)
    host(*fetch, expect=3)
    second.kill9()
    first.start()
    tokens.remember(first.url, first.tokens)
    host.environ |= tokens.variable(first.url)
    host("login", stdin=first.tokens["admin"])
    assert host(*fetch).out == path
