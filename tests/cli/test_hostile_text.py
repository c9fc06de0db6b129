"""Hostile text in everything that a stranger can set, through the real commands, against a real registry."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest
from core.program import program_maker
from harness.harmless import is_harmless
from harness.tokens import token_for
from paths import DATA
from registry.registry_client import GFX908, REF, RegistryUnderTest, gpu_key, ref_key
from servers.rows import Databases

from mxr.errors import TYPE
from mxr_cli.main import COMMANDS, main

pytestmark = pytest.mark.process

EVIL = (
    "E\x1b[2J\x9b1m\n::error file=a::pwned\r##[error]x ##vso[task.x]\u202egpj\u2066"
    "\u2028::stop-commands::t\x7f</script>"
)
"""Named so that it can be found: every place in the output where it was shown begins with an `E` and `\\x1b`."""

TARGET = ("--arch", "gfx90a:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "4", "--for", "python")
REF_TARGET = ("--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--precision", "fp32", "--for", "python")


class HostileRegistry(RegistryUnderTest):
    """A registry whose rows hold `EVIL` wherever a text can stand. `artifact`, `job`: what it has."""

    artifact = job = model = ""

    def fill(self) -> None:
        """Fill it by requests as far as these are accepted, and by SQL for what they refuse."""
        self.model = self.register_model()
        explicit = {"attributes": {"sramecc": "+", "xnack": "-"}}
        for data, key, more in ((REF, ref_key(self.model), {}), (GFX908, gpu_key("sha256:" + "ab" * 32), explicit)):
            provenance = {"tool": EVIL, EVIL: [EVIL], "nested": {EVIL: 1}}
            status, said = self.publish(data, key, provenance=provenance, **more)
            assert status in (200, 201), said
            self.artifact = said["id"]
        worker = self.register_worker("one")
        self.job = self.submit(ref_key(self.model, precision="fp32"))["id"]
        lease = self.claim(worker)
        self.heartbeat(lease, phase=EVIL[:40], log=f"{EVIL}\nfirst\n:")
        self.heartbeat(lease, phase=EVIL[:40], log=f":error::{EVIL}\n{EVIL}")
        self.fail(lease, "permanent", EVIL, EVIL)
        self.ok("PUT", "/v1/locks/a-lock", {"artifacts": [self.artifact]})
        text = json.dumps(EVIL)
        with contextlib.closing(sqlite3.connect(self.data / "registry.db", timeout=30)) as session, session:
            session.create_function("evil", 1, lambda value: value.replace('"x"', text) if value else value)
            session.execute("UPDATE artifacts SET key_json = evil(key_json), description_json = evil(description_json)")
            session.execute(
                "UPDATE artifacts SET names_json = ?, worker = ?, model_name = ?", (json.dumps([EVIL]), EVIL, EVIL)
            )
            session.execute("UPDATE jobs SET worker_name = ?, phase = ?, key_json = evil(key_json)", (EVIL, EVIL))
            session.execute("UPDATE job_events SET worker = ?, note = ?", (EVIL, EVIL))
            session.execute("UPDATE workers SET name = ?", (EVIL,))
            session.execute('UPDATE workers SET can_json = replace(can_json, \'"arch":"ref"\', ?)', (f'"arch":{text}',))
            session.execute("UPDATE models SET name = ?, inputs_json = evil(inputs_json)", (EVIL,))
            session.execute("UPDATE locks SET name = ?", (EVIL[:100],))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileRegistry]:
    """The registry with hostile rows."""
    data = tmp_path_factory.mktemp("hostile") / "data"
    databases = Databases("sqlite", lambda: pytest.fail("this test needs no PostgreSQL"))
    found = HostileRegistry(data, "--verbose", rows=databases(data))
    try:
        found.fill()
        yield found
    finally:
        found.end()
        databases.drop()


class RefusingHandler(BaseHTTPRequestHandler):
    """Answers every request with a hostile error of the class that its path asks for."""

    code = "usage"

    def answer(self) -> None:
        """Send the error, after the body was read."""
        self.rfile.read(int(self.headers.get("content-length") or 0))
        nearest = [{"id": EVIL, "differences": [{"field": EVIL, "asked": EVIL, "found": {EVIL: EVIL}}]}]
        choices = [{"id": EVIL, "options": EVIL}]
        context = {
            "nearest": nearest,
            "candidates": choices,
            "toolchains": [{"rocm": EVIL}],
            "log": [EVIL, EVIL],
            EVIL: EVIL,
            "file": EVIL,
            "line": 1,
        }
        code = type(self).code
        words = {"detail": EVIL, "hint": EVIL, "title": EVIL, "context": context}
        data = json.dumps({"type": TYPE + code, "status": 409, "code": code, "retry": False, **words}).encode()
        self.send_response(409)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def refusing() -> Iterator[str]:
    """The URL of a registry that refuses everything, with hostile words."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), RefusingHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


Shown = Callable[..., tuple[str, str]]


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shown:
    """Runs `mxr` under GitHub Actions, in a folder with hostile files, and checks each line that it prints."""
    for name in os.environ:
        if name.startswith(("MXR_", "XDG_", "GITHUB_", "HSA_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MXR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes((DATA / "models" / "convnet.onnx").read_bytes())

    def run(*words: object, registry: str = "http://127.0.0.1:9", internal: bool = False) -> tuple[str, str]:
        monkeypatch.setenv("MXR_REGISTRY", registry)
        monkeypatch.setenv("MXR_TOKEN", token_for(registry))
        monkeypatch.setattr("sys.stdin", io.StringIO(EVIL))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        assert internal or ended.value.code != 70, (words, err)
        for line in (out + err).split("\n"):
            command = line.removeprefix("::error file=") if {"precompile", "plan", "lock"} & set(words) else line
            assert is_harmless(command), (words, line)
        if "--json" in words:
            assert json.loads(out) and len(out.splitlines()) == 1, words
        return out, err

    return run


def evil_program(path: Path) -> Path:
    """A program whose names, version and symbols are hostile."""
    form = program_maker.shape("float_type", 4, 3)
    nodes = [
        program_maker.param(EVIL, form),
        program_maker.node("main:#output_0", EVIL, form, ["main:x"], {"name": EVIL}),
        program_maker.node("@return", "@return", form, []),
    ]
    path.write_bytes(program_maker.program(nodes, migraphx=EVIL, target=EVIL))
    return path


def test_rows_of_a_registry(hostile: HostileRegistry, shown: Shown) -> None:
    """Input names, provenance, labels, workers, phases, logs, failures and locks, as text and as JSON."""
    url, artifact, job = hostile.url, hostile.artifact[:12], hostile.job[:12]
    texts: list[tuple[object, ...]] = [
        ("ls",),
        ("show", artifact),
        ("promote", artifact),
        ("jobs",),
        ("jobs", job),
        ("jobs", job, "--follow"),
        ("workers",),
        ("misses",),
        ("misses", EVIL, "--by", EVIL, "--arch", EVIL),
        ("history",),
        ("history", EVIL),
        ("whoami",),
        ("open", "--print"),
        ("completion", "bash"),
        ("login",),
        ("logout", EVIL),
        ("lock", "--registered"),
        ("fetch", "m.onnx", *TARGET),
        ("fetch", "m.onnx", *REF_TARGET, "--on-miss", "wait", "-v"),
        ("fetch", "m.onnx", *REF_TARGET, "--on-miss", "ask"),
        ("export", hostile.artifact, "-o", "b.tar"),
        ("plan", "--from", "migraphx=2.16", "--to", "migraphx=2.17"),
        ("ls", "--model", EVIL),
        ("ls", "--model", EVIL.replace("/", "|")),
        ("jobs", "--model", EVIL[:9]),
        ("jobs", EVIL),
        ("show", EVIL),
        ("lock", "--unregister", EVIL),
        ("tag", EVIL, "--rm", "--yes"),
        ("fetch", "--tag", EVIL),
    ]
    for words in texts:
        shown(*words, registry=url)
        shown(*words, "--json", registry=url)
    quoted = [words for words in texts if r"E\x1b[2J" in "".join(shown(*words, registry=url))]
    assert {"ls", "show", "jobs", "workers", "lock"} <= {words[0] for words in quoted}
    log = hostile.log.read_text()
    assert log and all(map(is_harmless, log.split("\n")))
    row = json.loads(shown("show", artifact, "--json", registry=url)[0])
    assert row["provenance"]["tool"] == EVIL and row["key"]["inputs"].keys() == {EVIL}


def test_a_matrix_in_a_pipeline(hostile: HostileRegistry, shown: Shown, tmp_path: Path) -> None:
    """Names of models and targets, earlier failures and logs, in all reports of a pipeline."""
    name = EVIL.replace("/", "|")
    (tmp_path / f"{name}.onnx").write_bytes((tmp_path / "m.onnx").read_bytes())
    rows = {"kind": "ref", "migraphx": "2.16", "runner": [EVIL]}
    document = {"version": 1, "models": [{"path": "*.onnx", "batch": 4}], "precision": "fp32", "targets": [rows]}
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(json.dumps(document))
    for words in (("precompile", matrix), ("precompile", matrix, "--on-miss", "fail"), ("plan", matrix)):
        shown(*words, registry=hostile.url)
        shown(*words, "--json", registry=hostile.url)
    shown("precompile", matrix, "--junit", "junit.xml", registry=hostile.url)
    report = list(ElementTree.parse(tmp_path / "junit.xml").iter())
    assert {"failure", "error"} & {each.tag for each in report}
    texts = [text for each in report for text in (*each.attrib.values(), *(each.text or "").strip().split("\n"))]
    assert all(map(is_harmless, texts)) and any(r"E\x1b" in text for text in texts)
    summary = (tmp_path / "summary.md").read_text()
    assert r"E\\x1b\[2J" in summary and all(is_harmless(line.replace("\\", "\\.")) for line in summary.split("\n"))
    assert not re.search(r"(?<!\\)<", summary)
    shown("plan", matrix, "--format", "github", registry=hostile.url)
    shown("plan", matrix, "--format", "gitlab", registry=hostile.url)
    # What a matrix itself says, and the name of its file.
    matrix = tmp_path / f"{name}.yaml"
    for field in ({EVIL: 1}, {"batch": EVIL}, {"env_from": EVIL}, {"targets": [{"arch": EVIL}]}, {"for": EVIL}):
        matrix.write_text(json.dumps(document | field))
        for command in ("precompile", "plan", "lock"):
            assert r"E\x1b" in shown(command, matrix)[1]
            shown(command, matrix, "--json")


@pytest.mark.parametrize("code", ["usage", "no_such_artifact", "compile_failed", "mismatch", "no_worker", "unknown"])
def test_errors_of_a_hostile_registry(refusing: str, shown: Shown, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Message, hint, the nearest artifacts and the end of a log, through every command that asks a registry."""
    monkeypatch.setattr(RefusingHandler, "code", code)
    Path("mxr.lock").write_text('{"version": 1, "entries": []}')
    Path("m.yaml").write_text(
        json.dumps({"version": 1, "models": [{"path": "m.onnx"}], "targets": [{"kind": "ref", "migraphx": "2.16"}]})
    )
    for words in (
        *(("ls",), ("show", "ab"), ("promote", "ab"), ("rm", "ab", "--yes"), ("jobs",), ("jobs", "ab", "--cancel")),
        *(("statement", "export", "ab"), ("show", "ab", "--statement"), ("statement", "import", "ab", "m.onnx")),
        *(("trust", "add", "--fingerprint", "0" * 64), ("trust", "ls"), ("trust", "rm", EVIL)),
        *(("yank", "ab", "--reason", EVIL), ("quarantine", "ab", "--reason", EVIL), ("unyank", "ab")),
        *(("workers",), ("lock", "--registered"), ("lock", "--register", "x"), ("lock", "m.onnx", *REF_TARGET)),
        *(("fetch", "m.onnx", "--kind", "ref"), ("fetch", "m.onnx", "--arch", "gfx908")),
        *(("fetch", "m.onnx", *REF_TARGET), ("fetch", "m.onnx", *REF_TARGET, "--on-miss", "wait", "--debug")),
        *(("precompile", "m.yaml"), ("plan", "m.yaml"), ("plan", "--from", "rocm=7.1", "--to", "rocm=7.2")),
        ("export", "ab" * 32, "-o", "b.tar"),
    ):
        shown(*words, registry=refusing, internal=code == "unknown")
        shown(*words, "--json", registry=refusing, internal=code == "unknown")


def test_files_and_arguments(shown: Shown, tmp_path: Path) -> None:
    """Hostile names in programs, models, host facts, locks, logs and file names, and hostile arguments."""
    import onnx
    from onnx import helper

    name = EVIL.replace("/", "|")
    program = evil_program(tmp_path / f"{name}.mxr")
    model = onnx.load(tmp_path / "m.onnx")
    for node in model.graph.node:
        node.input[:] = [EVIL if each == "x" else each for each in node.input]
        node.name = EVIL
    model.graph.input[0].name = EVIL
    model.producer_name = EVIL
    helper.set_model_props(model, {EVIL: EVIL})
    evil = tmp_path / f"{name}.onnx"
    onnx.save(model, str(evil))
    (tmp_path / "host.json").write_text(json.dumps({"targets": [{"arch": EVIL, "name": EVIL}], "toolchain": {}}))
    (tmp_path / "bad.lock").write_text(json.dumps({"version": 1, "entries": [{"model": EVIL, EVIL: EVIL}]}))
    (tmp_path / "log.txt").write_text(f"{EVIL}\nFailed to call function {EVIL}\n{EVIL}: no kernel image is available\n")
    (tmp_path / name).mkdir()
    for words in (
        ("identity", evil),
        *(("inspect", program), ("check", program, *TARGET), ("diff", program, program), ("key", evil, *REF_TARGET)),
        *(("fetch", evil, *REF_TARGET), ("push", program, "--model", evil, "--kind", "ref", "--for", "python")),
        *(("host", "--host", "host.json"), ("verify", "bad.lock"), ("verify", name), ("explain", "--file", "log.txt")),
        *(("config", name), ("config", EVIL), ("config", f"{name}/m.onnx")),
        *(("freeze", evil, "--batch", 2, "-o", f"{name}/out"), ("cache", "ls"), ("cache", "dir"), ("consumers",)),
        *(("explain", EVIL), ("import", program), ("fetch", EVIL), ("inspect", EVIL), ("kserve-init", EVIL, EVIL)),
        *(("kserve-init", f"mxr://{EVIL}", "o"), ("kserve-init", "mxr://sha256:" + "0" * 64 + f"?{EVIL}=1", "o")),
        *(
            ("fetch", "m.onnx", "--arch", EVIL),
            ("fetch", "m.onnx", f"--{EVIL}"),
            (EVIL,),
            ("fetch", "--genai-config", EVIL),
        ),
        *(("fetch", "--locked", "bad.lock"), ("ls", "--registry", f"http://{EVIL}"), ("ls", "--registry", EVIL)),
        *(
            ("push", program, "--model", EVIL),
            ("export", EVIL, "-o", EVIL),
            ("workers", EVIL),
            ("promote", "--json", EVIL),
        ),
        ("precompile", "--on-miss", EVIL, "m.yaml"),
    ):
        shown(*words)
        shown(*words, "--json")


def test_every_command_is_tried() -> None:
    """The tests above name each command."""
    source = Path(__file__).read_text()
    assert not [name for name in COMMANDS if f'("{name}"' not in source]
