"""Each exit number as a user meets it: what is wrong in one line, then what to do."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from .conftest import Programs
from .stack import Host, Registry, finish

Hosts = Callable[..., Host]

USAGE = [
    ("fetch",),
    ("fetch", "m.onnx", "--arch", "gfx908", "--batch", "4", "--exact"),
    ("show", "XYZ"),
]


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def test_a_usage_error_ends_with_2_and_says_what_to_do(mxr: Host, model: Path, words: tuple[str, ...]) -> None:
    """The exit code of the real program. tests/cli/test_usage_errors.py has the usage errors of all commands."""
    shutil.copy(model, mxr.home / "m.onnx")
    said = mxr(*words, "--json", expect=2)
    assert said.error["code"] == "usage"
    assert said.error["hint"]
    what, todo = said.err.splitlines()
    assert what.startswith("mxr: ") and todo.startswith("     ")


def test_a_bare_call_shows_the_help_and_a_wrong_one_says_nothing_on_standard_output(mxr: Host) -> None:
    for words in ((), ("cache",)):
        bare = mxr(*words, expect=2)
        assert (bare.out, bare.err) == ("", mxr(*words, "--help").out)
    wrong = mxr("fecth", "model.onnx", expect=2)
    assert wrong.out == ""
    assert wrong.err == "mxr: Unknown command 'fecth'.\n     Did you mean mxr fetch?\n"


def test_programs_that_were_compared_with_no_gpu_are_not_said_to_fit(mxr: Host) -> None:
    """As for one file: exit 2. Programs of the reference target need no GPU."""
    folder = ROOT / "examples" / "spliced"
    said = mxr("check", folder, expect=2)
    assert "undamaged; not compared with a GPU" in said.err and "--arch" in said.err and "fit" not in said.out
    document = mxr("check", folder, "--json", expect=2).json
    assert (document["ok"], document["compared"]) == (False, False) and all(row["ok"] for row in document["files"])
    mxr("check", next(folder.glob("*.mxr")), expect=2)
    assert "all fit" in mxr("check", ROOT / "examples" / "ref").out


def test_a_folder_without_programs_is_not_said_to_fit(mxr: Host, model: Path, tmp_path: Path) -> None:
    """A model package of ONNX Runtime: a manifest, and a folder for each provider and compatibility string."""
    package = tmp_path / "package"
    for variant in ("gfx942", "gfx90a"):
        (package / "models" / variant).mkdir(parents=True)
        shutil.copy(model, package / "models" / variant / "model.onnx")
    said = mxr("check", package, expect=65)
    assert "nothing was judged" in said.err and "fit" not in said.out and "models" in said.err
    (package / "manifest.json").write_text("{}")
    error = mxr("check", package, "--arch", "gfx942", "--json", expect=65).error
    assert "model package of ONNX Runtime" in error["detail"] and "is not known" in error["hint"]
    assert error["context"]["models"] == ["models/gfx90a", "models/gfx942"]
    (tmp_path / "empty").mkdir()
    assert "It is empty" in mxr("check", tmp_path / "empty", expect=65).err


def test_a_miss_ends_with_3_and_says_of_the_nearest_what_differs(
    mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    asked = ("fetch", model, *gpu, "--arch", "gfx90a", "--migraphx", "2.14")
    said = mxr(*asked, expect=3)
    assert said.out == ""
    assert f"nearest {published['id'][:12]}" in said.err
    assert "arch requested gfx90a, found gfx908" in said.err
    error = mxr(*asked, "--json", expect=3).error
    assert error["code"] == "no_such_artifact"
    (nearest,) = error["context"]["nearest"]
    assert nearest["id"] == published["id"]
    assert {"field": "arch", "asked": "gfx90a", "found": "gfx908"} in nearest["differences"]
    assert {"field": "migraphx", "asked": "2.14", "found": "2.15"} in nearest["differences"]


def test_an_unknown_model_hash_and_an_unknown_id_end_with_3(mxr: Host, gpu: tuple[str, ...]) -> None:
    assert mxr("fetch", "sha256:" + "0" * 64, *gpu, "--json", expect=3).error["code"] == "no_such_model"
    assert mxr("show", "0" * 64, "--json", expect=3).error["code"] == "not_found"


def test_a_label_that_the_file_contradicts_ends_with_6(mxr: Host, model: Path, programs: Programs) -> None:
    words = ("push", programs.gfx1100, "--model", model, "--arch", "gfx908:sramecc+:xnack-", "--rocm", "7.2")
    said = mxr(*words, "--for", "python", expect=6)
    assert "arch is gfx908 in the label and gfx1100 in the file" in said.err
    error = mxr(*words, "--for", "python", "--json", expect=6).error
    assert error["context"]["differences"] == [{"field": "arch", "asked": "gfx908", "found": "gfx1100"}]
    others = (("--migraphx", "2.14"), ("--batch", "8"), ("--no-offload-copy",), ("--kind", "ref"))
    for other in others:
        mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", *other, expect=6)


def test_a_client_that_lies_is_refused_by_the_registry(
    registry: Registry, published: dict[str, Any], programs: Programs
) -> None:
    manifest = json.loads(registry.ask("GET", f"/v1/artifacts/{published['id']}").data)["manifest"]
    lie = {"key": published["key"] | {"arch": "gfx942"}, "manifest": manifest, "attributes": published["attributes"]}
    reply = registry.ask("POST", "/v1/artifacts", lie)
    assert reply.status == 409
    error = reply.json()
    assert error["code"] == "mismatch"
    found = {row["field"]: row for row in error["context"]["differences"]}
    assert found["arch"]["asked"] == "gfx942"
    assert found["arch"]["found"].startswith("gfx908")
    assert registry.ask("GET", "/v1/artifacts?arch=gfx942").json()["items"] == []


def test_a_program_that_was_never_compiled_is_refused(mxr: Host, convnet: Path, programs: Programs) -> None:
    words = ("push", programs.uncompiled, "--model", convnet, "--kind", "ref", "--for", "python")
    said = mxr(*words, expect=6)
    assert "before it was compiled" in said.err
    assert "program.compile" in said.err


def test_check_ends_with_6_where_the_file_will_not_load(mxr: Host, programs: Programs) -> None:
    asked = ("--arch", "gfx908:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15")
    mxr("check", programs.gfx908, *asked)
    said = mxr("check", programs.gfx942, *asked, expect=6)
    assert "does not fit " in said.err
    document = mxr("check", programs.gfx942, *asked, "--json", expect=6).json
    assert document["ok"] is False
    (row,) = [row for row in document["requirements"] if row["field"] == "arch"]
    assert row["needed"].startswith("gfx942") and "gfx908" in row["found"] and row["ok"] is False


def test_an_output_that_cannot_be_written_ends_with_7(
    mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    # Nobody may make files in sysfs, not even root. Source: Linux, fs/sysfs and fs/kernfs have no create.
    said = mxr("fetch", model, *gpu, "-o", "/sys/kernel/model.mxr", "--json", expect=7)
    assert said.error["code"] == "not_allowed"
    assert "Cannot write /sys/kernel/" in said.error["detail"]


def test_no_registry_and_nothing_in_the_cache_end_with_69(host: Hosts, model: Path, gpu: tuple[str, ...]) -> None:
    alone = host("alone", "http://127.0.0.1:9")
    said = alone("fetch", model, *gpu, expect=69)
    assert "http://127.0.0.1:9 does not answer: " in said.err and "Connection(" not in said.err
    assert "mxr config" in said.err
    assert alone("fetch", model, *gpu, "--json", expect=69).error["retry"] is True
    assert "--offline" in alone("fetch", model, *gpu, "--offline", expect=69).err
    for words in (("ls",), ("show", "0" * 8), ("promote", "0" * 8), ("rm", "0" * 8, "--yes")):
        alone(*words, expect=69)


@pytest.fixture
def stranger() -> Iterator[str]:
    """A service that is no registry: pages for people, below one path of it only, to which it leads from `/old`."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            old = self.path.startswith("/old/")
            self.send_response(302 if old else 200 if self.path.startswith("/pages/") else 404)
            self.send_header("Content-Type", "text/html")
            if old:
                self.send_header("Location", "/pages/")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Welcome</title>")

        do_POST = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_another_service_under_the_url_of_the_registry_ends_with_69_and_says_what_answered(
    host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...], stranger: str
) -> None:
    push = ("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    for path, status in (("/pages", 200), ("/old", 302), ("", 404)):
        lost = host(f"lost{status}{path.replace('/', '-')}", stranger + path)
        for words in (("fetch", model, *gpu), ("ls",), push):
            said = lost(*words, expect=69)
            answers = f"What answers at {stranger}{path} is not an mxr registry"
            assert f"{answers} (HTTP status {status}, text/html, server BaseHTTP" in said.err
            assert ("redirects are not followed" if status == 302 else "URL of an mxr registry") in said.err
        assert lost("ls", "--json", expect=69).error["code"] == "not_a_registry"
        assert lost.held() == []


def test_ctrl_c_ends_with_130_while_the_registry_says_nothing(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, gpu: tuple[str, ...]
) -> None:
    import signal

    silent = own_registry()
    waiting = host("waiting", silent.url)
    with silent.frozen():
        running = waiting.start("fetch", model, *gpu)
        # The model is remembered right before the registry is asked.
        while not list(waiting.cache.glob("v2/local/models/*")):
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        done = finish(running, 60)
    assert done.code == 130
    assert "mxr: Interrupted." in done.err
    assert "Traceback" not in done.err
