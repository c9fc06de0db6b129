"""`mxr login`, `logout` and `whoami`, and the first steps of docs/access.md on one host."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Programs
from .stack import Host, Registry, clean_environ

ON = ("embedded",)


def made(registry: Registry, name: str, *scopes: str) -> str:
    """A new token."""
    _, said = registry.call("POST", "/v1/tokens", {"name": name, "scopes": scopes, "expires": None})
    return str(said["secret"])


@pytest.fixture
def alice(host: Callable[..., Host]) -> Host:
    """A host without a token."""
    found = host("alice")
    del found.environ["MXR_TOKEN"]
    return found


def test_a_token_is_stored_used_and_forgotten(registry: Registry, alice: Host) -> None:
    secret = made(registry, "alice", "fetch")
    refused = alice("whoami", expect=7)
    assert "This request needs a token." in refused.err and "mxr login" in refused.err
    done = alice("login", stdin=f"{secret}\n")
    assert done.out == f"{registry.url}: alice (fetch)\n" and secret not in done.out + done.err
    assert "any program of this host can take its port" in done.err
    store = Path(alice.environ["XDG_CONFIG_HOME"]) / "mxr" / "tokens.json"
    assert stat.S_IMODE(store.stat().st_mode) == 0o600 and json.loads(store.read_text()) == {registry.url: secret}
    assert alice("whoami").out == f"alice (fetch) at {registry.url}\n"
    assert alice("whoami", "--json").json["scopes"] == ["fetch"]
    assert alice("jobs", expect=7).err.startswith("mxr: The token ")
    assert alice("logout").out == f"{registry.url}: token removed\n"
    alice("whoami", expect=7)
    assert "No token is stored" in alice("logout", expect=3).err


def test_the_first_one_becomes_the_default(
    registry: Registry, own_registry: Callable[..., Registry], alice: Host
) -> None:
    """Where nothing else is, and until the logout."""
    other, config = own_registry(), Path(alice.environ["XDG_CONFIG_HOME"]) / "mxr" / "config.toml"
    secret, another = made(registry, "alice", "fetch"), made(other, "alice-2", "fetch")
    alice("login", registry.url, stdin=secret)
    assert not config.exists(), "MXR_REGISTRY names one"
    del alice.environ["MXR_REGISTRY"]
    assert "is the default registry from now on" in alice("login", registry.url, stdin=secret).err
    assert alice("whoami").out == f"alice (fetch) at {registry.url}\n"
    # It stays, also where the file has more.
    config.write_text(config.read_text() + 'timeout = "50s"\n')
    told = alice("login", other.url, stdin=another).err
    assert f"{registry.url} stays the default registry ({config}). Change it there" in told
    assert alice("whoami").out == f"alice (fetch) at {registry.url}\n"
    assert "no more" in alice("logout", registry.url).err
    assert config.read_text() == 'timeout = "50s"\n'
    # A token in the environment or in the file is for another registry.
    said = alice("login", other.url, stdin=another, env={"MXR_TOKEN": secret})
    assert "from now on" not in said.err
    assert config.read_text() == 'timeout = "50s"\n'
    config.write_text(f'token = "{secret}"\n')
    assert f"set MXR_REGISTRY={other.url}" in alice("login", other.url, stdin=another).err
    assert config.read_text() == f'token = "{secret}"\n'


def test_each_registry_has_its_own(registry: Registry, own_registry: Callable[..., Registry], alice: Host) -> None:
    other = own_registry()
    for each in (registry, other):
        alice("login", each.url, stdin=made(each, f"alice-{each.port}", "fetch"))
    for each in (registry, other):
        assert alice("whoami", "--registry", each.url).out.startswith(f"alice-{each.port} ")
    alice("logout", other.url)
    alice("whoami", "--registry", other.url, expect=7)
    assert alice("whoami").out.startswith(f"alice-{registry.port} ")


@pytest.mark.parametrize(
    ("text", "exit", "said"),
    [
        ("", 2, "There is no token on standard input."),
        ("two words", 2, "characters that a header cannot carry"),
        ("mxr_0123456789ab_" + "0" * 64, 7, "The token is not valid here."),
    ],
)
def test_a_token_that_does_not_work_is_not_stored(alice: Host, text: str, exit: int, said: str) -> None:
    done = alice("login", stdin=text, expect=exit)
    assert said in done.err and "0" * 64 not in done.err
    assert not (Path(alice.environ["XDG_CONFIG_HOME"]) / "mxr" / "tokens.json").exists()


def test_a_variable_comes_before_what_is_stored(registry: Registry, alice: Host) -> None:
    stored, other = made(registry, "stored", "fetch"), made(registry, "other", "fetch")
    done = alice("login", stdin=stored, env={"MXR_TOKEN": other})
    assert "MXR_TOKEN is set, and comes before what is stored." in done.err
    assert alice("whoami").out.startswith("stored ")
    assert alice("whoami", env={"MXR_TOKEN": other}).out.startswith("other ")
    assert "The token comes from MXR_TOKEN" in alice("whoami", env={"MXR_TOKEN": "wrong"}, expect=7).err


def test_a_store_that_others_can_read_is_not_used(registry: Registry, alice: Host) -> None:
    alice("login", stdin=made(registry, "alice", "fetch"))
    store = Path(alice.environ["XDG_CONFIG_HOME"]) / "mxr" / "tokens.json"
    store.chmod(0o644)
    assert "other users can read it (mode 0644" in alice("whoami", expect=2).err


def test_the_user_who_serves_needs_no_configuration(
    registry: Registry, tmp_path: Path, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    """As on one's own machine: the same folder of sockets, and no token anywhere."""
    same = {name: registry.environ[name] for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME")}
    me = Host(tmp_path / "me", registry.url)
    me.environ = clean_environ(tmp_path / "me") | same | {"MXR_REGISTRY": registry.url}
    shown = f"at {registry.url}, by the socket {registry.socket_path}"
    assert me("whoami").out == f"local (work, admin) {shown}\n"
    published: Any = me("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json").json
    assert me("fetch", model, *gpu, "--json").json["id"] == published["id"]


def test_a_browser_is_opened_by_a_file_of_its_user(registry: Registry, alice: Host, tmp_path: Path) -> None:
    """Other users see the arguments of a browser: the link is in a file that only this user can read."""
    alice.environ["MXR_TOKEN"] = made(registry, "alice", "fetch")
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" > {seen}\n')
    browser.chmod(0o755)
    alice.environ["BROWSER"] = f"{browser} %s"
    assert f"opened {registry.url} in a browser" in alice("open").err
    address = seen.read_text().strip()
    path = Path(address.removeprefix("file://"))
    assert address.startswith("file:///") and "/sign-in/" not in address
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and f"{registry.url}/sign-in/" in path.read_text()
    del alice.environ["BROWSER"]
    link = alice("open").out.strip()
    assert link.startswith(f"{registry.url}/sign-in/") and alice("open", "--print").out.strip() != link
    assert alice("open", "--json").json["url"].startswith(f"{registry.url}/sign-in/")
    assert "begins with http" in alice("open", "--registry", "unix:/run/mxr.sock", expect=2).err
