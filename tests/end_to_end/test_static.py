"""A registry that is files, from nginx, from Python's web server, and from a folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from doubles.migraphx import programs as doubles
from harness import tokens
from harness.programs import Program
from paths import ROOT
from servers.clocks import wrong_by
from servers.nginx import free_port, run_nginx
from servers.swift import Bucket

from .conftest import Programs
from .stack import Host, Registry, eventually
from .test_trust import key

ON = ("embedded",)

Hosts = Callable[..., Host]


def answer(handler: BaseHTTPRequestHandler, status: int, data: bytes, headers: dict[str, str]) -> None:
    """Send a whole reply."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


class WebServer:
    """A web server for a folder, and what it was asked for. `spoil` changes what a path gets: status and bytes."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        self.spoil: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        outer = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                assert "authorization" not in self.headers
                found = next((what for name, what in outer.spoil.items() if name in self.path), None)
                if found is None:
                    super().do_GET()
                    return
                answer(self, *found)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder.parent)))
        self.host = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.host}/{folder.name}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def answers(port: int) -> bool:
    """Whether something listens on this port of this host."""
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def site(mxr: Host, model: Path, programs: Programs, gpu: tuple[str, ...], tmp_path: Path) -> Path:
    """The folder with one program, and its lock beside it."""
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    (tmp_path / "srv").mkdir()
    mxr("lock", model, *gpu, "-o", tmp_path / "srv" / "mxr.lock")
    mxr("export", "--static", tmp_path / "srv" / "mxr", tmp_path / "srv" / "mxr.lock")
    return tmp_path / "srv" / "mxr"


@pytest.fixture
def web(site: Path) -> Iterator[WebServer]:
    """Its web server."""
    found = WebServer(site)
    yield found
    found.end()


def test_one_command_fetches_from_nginx_python_and_a_folder(
    site: Path, host: Hosts, model: Path, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    port, other = free_port(), free_port()
    (snippet,) = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs" / "static.md").read_text(), re.DOTALL)
    server = f"server {{ listen 127.0.0.1:{port}; {snippet.replace('/srv', str(site.parent))} }}"
    words = [sys.executable, "-m", "http.server", str(other), "--bind", "127.0.0.1", "-d", str(site.parent)]
    plain = Program(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with run_nginx(tmp_path / "nginx", server, port):
            urls = (f"http://127.0.0.1:{port}/mxr", f"http://127.0.0.1:{other}/mxr", f"file://{site}")
            eventually(lambda: answers(other))
            got = set()
            for at, url in enumerate(urls):
                far = host(f"far-{at}", url)
                found = far("fetch", model, *gpu, "-o", "model.mxr", "--json").json
                got.add((found["id"], (far.home / "model.mxr").read_bytes()))
            assert len(got) == 1
    finally:
        plain.send_signal(signal.SIGTERM)
        plain.wait(30)
    # Nothing answers any more, and the folder is gone.
    shutil.rmtree(site)
    for at, url in enumerate(urls):
        far = host(f"far-{at}", url)
        assert far("fetch", model, *gpu, "--offline", "--json").json["source"] == "cache"
        assert far("fetch", model, *gpu, "--json").json["source"] == "cache"


def test_a_resolve_is_one_index_and_a_warm_one_nothing(
    web: WebServer, site: Path, host: Hosts, model: Path, gpu: tuple[str, ...]
) -> None:
    far = host("far", web.url)
    # It is for the registry with a server.
    far.environ["MXR_TOKEN"] = f"mxr_{'ab' * 6}_{'cd' * 32}"
    far("fetch", model, *gpu)
    kinds = [path.split("/")[2] for path in web.asked]
    assert kinds == ["mxr.json", "index", "blobs"], "what it is, the choice, and the bytes"
    web.asked.clear()
    far("fetch", model, *gpu)
    assert web.asked == []
    far("fetch", model, *gpu, env={"MXR_MAX_AGE": "0"})
    assert {path.split("/")[2] for path in web.asked} <= {"artifacts", "index"}
    # Another program of this host that takes the port of a registry is none.
    squatted = host("squatted", web.host)
    (site.parent / "mxr.json").write_bytes((site / "mxr.json").read_bytes())
    assert squatted("fetch", model, *gpu, "--json", expect=69).error["code"] == "not_a_registry"
    # A lock, and what is open; what needs no server.
    fresh = host("fresh", web.url)
    fresh("lock", model, *gpu)
    fresh("lock", "--check")
    id = json.loads((fresh.home / "mxr.lock").read_text())["entries"][0]["id"]
    assert fresh("show", id, "--json").json["provenance"]["tool"] == "mxr push"
    assert "urn:mxr:accepted:v1" in fresh("show", id, "--statement").out
    fresh("statement", "export", id, "-o", "statement.json", "--key", "registry.pem")
    assert "all 64 digits" in fresh("show", id[:12], expect=2).err
    fresh("fetch", "--locked", site.parent / "mxr.lock", "-o", "out/")
    assert "exact" in fresh("fetch", model, "--arch", "gfx908", "--json").json["match"]


def test_misses_have_the_reasons_of_a_registry(
    web: WebServer, registry: Registry, host: Hosts, model: Path, convnet: Path, gpu: tuple[str, ...]
) -> None:
    far, near = host("far", web.url), host("near", registry.url)
    asks: tuple[tuple[object, ...], ...] = (
        (model, *gpu[:-2], "--for", "ort"),
        (model, "--arch", "gfx1100"),
        (model, *("gfx942" if word.startswith("gfx908") else word for word in gpu)),
        (convnet, "--arch", "gfx908"),
        (model, *gpu, "--exact", "--num-cu", "104"),
    )
    for words in asks:
        there, here = (each("fetch", *words, "--json", expect=3).error for each in (near, far))
        for name in ("reason", "nearest", "accept"):
            assert here["context"].get(name) == there["context"].get(name), (words, name)
        assert here["detail"] == there["detail"] and "takes nothing" in here["hint"]
    for words in (("push", model), ("ls",), ("jobs",), ("tag", "prod"), ("history",)):
        if words[0] != "push":
            assert "is files" in far(*words, expect=2).err
    assert "is files" in far("fetch", convnet, *gpu, "--on-miss", "wait=1s", expect=2).err


def test_what_shrinks_is_there_in_zstd_too(
    mxr: Host, host: Hosts, model: Path, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    """As the file of AMDMIGraphX issue 5079, which is mostly empty buffers."""
    flags = {"kind": "gpu", "arch": "gfx908:sramecc+:xnack-", "offload_copy": True}
    source = doubles.read(str(model), {"x": [4, 3, 32, 32]})
    source |= {"onnx": source["onnx"] + bytes(8 << 20)}
    made = doubles.write(source, flags, {"file_version": 7, "migraphx": "2.15.0"})
    (tmp_path / "program.mxr").write_bytes(made)
    mxr("push", tmp_path / "program.mxr", "--model", model, "--rocm", "7.2", "--for", "python")
    site = tmp_path / "srv" / "mxr"
    site.parent.mkdir()
    mxr("lock", model, *gpu, "-o", tmp_path / "mxr.lock")
    mxr("export", "--static", site, tmp_path / "mxr.lock")
    small = {path.name.removesuffix(".zst"): path for path in site.rglob("*.zst")}
    assert sum(path.stat().st_size for path in small.values()) < len(made) / 100
    web = WebServer(site)
    try:
        far = host("far", web.url)
        fetched = far("fetch", model, *gpu, "-o", "a.mxr", "--json").json
        assert any(path.endswith(".zst") for path in web.asked)
        assert (far.home / "a.mxr").read_bytes() == made
        # Without the package, without these files, and where they are damaged.
        program = f"""
import sys, mxr
sys.modules["zstandard"] = None
print(mxr.fetch({str(model)!r}, arch="gfx908").artifact.sha256)
"""
        web.asked.clear()
        assert host("without", web.url).python(program).out.strip() == fetched["sha256"]
        assert not any(path.endswith(".zst") for path in web.asked)
        for at, reply in enumerate(((404, b"", {}), (200, b"<html>", {}), (200, made[:-9], {}))):
            web.spoil = {".zst": reply}
            host(f"odd-{at}", web.url)("fetch", model, *gpu)
        # A frame that expands to a terabyte.
        words = struct.pack("<4sQI", b"mxr1", 1 << 33, 1 << 15) + struct.pack("<I", 20) * (1 << 18)
        web.spoil = {".zst": (200, struct.pack("<II", 0x184D2A5D, len(words)) + words + bytes(1 << 20), {})}
        host("bomb", web.url)("fetch", model, *gpu)
    finally:
        web.end()
    assert mxr("export", "--static", site, tmp_path / "mxr.lock", "--prune", "--json").json["written"] == 1


def test_a_bucket(
    mxr: Host, bucket: Bucket, host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    aws = {name: value for name, value in bucket.environ.items() if name.startswith("AWS_")}
    aws["AWS_ENDPOINT_URL_S3"] = bucket.endpoint
    url = f"s3://{bucket.name}/mxr"
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    mxr.environ |= aws
    first = mxr("export", "--static", url, "--all", "--json").json
    assert (first["place"], first["models"] >= 1, first["written"] >= 5) == (url, True, True)
    assert mxr("export", "--static", url, "--all", "--prune", "--json").json["written"] == 1, "mxr.json"
    # Several at once, with another program.
    mxr("push", programs.gfx942, "--model", model, "--rocm", "7.2", "--for", "python")
    killed = mxr.start("export", "--static", url, "--all")
    killed.kill()
    killed.communicate()
    writers = [mxr.start("export", "--static", url, "--all") for _ in range(2)]
    for writer in writers:
        _, err = writer.communicate(timeout=240)
        assert writer.returncode == 0, err
    far = host("far", url)
    far.environ |= aws
    other = ["gfx942:sramecc+:xnack-" if word.startswith("gfx908") else word for word in gpu]
    for each in (gpu, other):
        assert far("fetch", model, *each, "-o", f"{each[1][:6]}.mxr", "--json").json["source"] == "registry"
        assert far("fetch", model, *each, "--offline", "--json").json["source"] == "cache"
    missed = far("fetch", model, "--arch", "gfx1100", "--json", expect=3).error
    assert "takes nothing" in missed["hint"]
    # The same files from a web server, such as the bucket's own.
    for name in bucket.client.get_paginator("list_objects_v2").paginate(Bucket=bucket.name).search("Contents[].Key"):
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bucket.client.get_object(Bucket=bucket.name, Key=name)["Body"].read())
    host("copied", f"file://{tmp_path}/copy/mxr")("fetch", model, *gpu)
    # What is wrong is said.
    fresh = host("fresh", url)
    fresh.environ |= aws | {"MXR_RETRY": "0"}
    wrong: list[tuple[dict[str, str], int, str]] = [
        ({"MXR_REGISTRY": f"s3://{bucket.name}/nothing"}, 69, "no mxr.json"),
        ({"MXR_REGISTRY": "s3://no-such-bucket/mxr"}, 69, "the bucket does not exist"),
        ({"AWS_SECRET_ACCESS_KEY": "other"}, 69, "the signature is wrong"),
        ({"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{free_port()}"}, 75, "is unreachable"),
        ({"MXR_REGISTRY": "s3://bucket/../mxr"}, 2, "s3://BUCKET/PREFIX"),
    ]
    for env, code, text in wrong:
        said = fresh("fetch", model, *gpu, env=env, expect=code)
        assert text in said.err and "Traceback" not in said.err, (env, said.err)
    program = f"import sys, mxr; sys.modules['boto3'] = None; mxr.fetch({str(model)!r}, arch='gfx908')"
    assert "pip install boto3" in fresh.python(program, expect=1).err
    # An unreachable bucket is passed over.
    env = {"MXR_REGISTRY": f"s3://no-such-bucket/mxr,{url}"}
    assert "was passed over" in fresh("fetch", model, *gpu, env=env).err


def test_a_repository_of_the_hub(site: Path, host: Hosts, model: Path, gpu: tuple[str, ...], tmp_path: Path) -> None:
    """By a stand-in of the hub's addresses: private, large files by a redirect to another host, and a limit of rate."""
    asked: list[tuple[str, bool]] = []
    cdn = WebServer(site)

    class Hub(SimpleHTTPRequestHandler):
        busy = 1

        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("authorization") == "Bearer hf_secret"))
            prefix = "/team/models/resolve/v1/programs/"
            path = site / self.path.removeprefix(prefix)
            status, data, headers = 200, b"", {}
            if not asked[-1][1]:
                status = 401
            elif Hub.busy:
                status, headers, Hub.busy = 429, {"Retry-After": "1"}, Hub.busy - 1
            elif not self.path.startswith(prefix) or not path.is_file():
                status = 404
            elif "/blobs/" in self.path:
                status, headers = 302, {"Location": f"{cdn.url}/{path.relative_to(site)}"}
            else:
                data = path.read_bytes()
            answer(self, status, data, headers)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        far = host("far", "hf://team/models@v1/programs")
        far.environ |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_TOKEN": "hf_secret"}
        far("fetch", model, *gpu, "-o", "model.mxr")
        assert (far.home / "model.mxr").read_bytes() and [path.split("/")[2] for path in cdn.asked] == ["blobs"]
        assert len(asked) == 3 and all(known for _, known in asked), "one is asked again: index, index, bytes"
        # The token of a file, and none.
        by_file = host("by-file", "hf://team/models@v1/programs")
        by_file.environ |= {"HF_ENDPOINT": far.environ["HF_ENDPOINT"], "HF_TOKEN_PATH": str(tmp_path / "token")}
        assert "HF_TOKEN" in by_file("fetch", model, *gpu, expect=7).err
        (tmp_path / "token").write_text("hf_secret\n")
        by_file("fetch", model, *gpu)
        shown = far("config").out + far("fetch", model, *gpu, "--refresh", "--debug").err
        assert "hf_secret" not in shown
        for bad in ("hf://", "hf://team", "hf://team/models/../x", "hf://team/models@/x", "hf://user:pw@team/models"):
            host("bad", bad)("fetch", model, *gpu, expect=2)
    finally:
        server.shutdown()
        server.server_close()
        cdn.end()


def test_it_is_brought_up_to_date_and_quarantine_reaches_hosts(
    web: WebServer, site: Path, mxr: Host, host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}
    again = mxr("export", "--static", site, site.parent / "mxr.lock", "--json").json
    changed = {path.name for path, when in before.items() if path.stat().st_mtime_ns != when}
    assert (again["written"], changed) == (1, {"mxr.json"}), "only when it was written"
    far = host("far", web.url)
    id = far("fetch", model, *gpu, "--json").json["id"]
    mxr("push", programs.gfx942, "--model", model, "--rocm", "7.2", "--for", "python")
    mxr("quarantine", id, "--reason", "wrong results")
    mxr("export", "--static", site, "--all", "--prune")
    now = {"MXR_MAX_AGE": "0"}
    refused = far("fetch", model, *gpu, "--json", env=now, expect=3).error
    assert refused["context"]["reason"] in ("recalled", "arch")
    assert far("fetch", "--locked", site.parent / "mxr.lock", "--json", env=now, expect=6).error["code"] == "recalled"
    assert far("fetch", model, *gpu, "--offline", "--json", expect=6).error["code"] == "recalled"
    other = ["gfx942:sramecc+:xnack-" if word.startswith("gfx908") else word for word in gpu]
    far("fetch", model, *other)
    # What nothing names goes after a day, and not before.
    left = [site / "blobs" / "ab" / ("ab" * 32), site / "statements" / f"{'ab' * 32}.json"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("left by a writer that was killed")
    assert mxr("export", "--static", site, "--all", "--prune", "--json").json["pruned"] == 0
    for path in site.rglob("*"):
        if path.is_file():
            old = path.stat().st_mtime - 2 * 86_400
            os.utime(path, (old, old))
    assert mxr("export", "--static", site, "--all", "--prune", "--json").json["pruned"] >= 2
    assert not any(path.exists() for path in left)
    far("fetch", model, *other, "--refresh", "-o", "again.mxr")


def test_signatures_are_required_of_files_too(
    web: WebServer, site: Path, registry: Registry, host: Hosts, model: Path, gpu: tuple[str, ...]
) -> None:
    strict = host("strict", web.url)
    (fingerprint,) = (each["id"] for each in key(registry, "ls")["keys"])
    strict("trust", "add", "--fingerprint", fingerprint)
    strict("fetch", model, *gpu)
    strict("fetch", model, *gpu, "--offline")
    (index,) = (site / "index").glob("*.json")
    forged = index.read_text().replace('"sramecc":"+"', '"sramecc":"any"')
    index.write_text(forged)
    fresh = host("fresh", web.url)
    fresh("trust", "add", "--fingerprint", fingerprint)
    assert fresh("fetch", model, *gpu, "--json", expect=6).error["code"] == "other_record"
    assert fresh.held() == []


def test_an_old_index_is_noticed(
    web: WebServer, site: Path, mxr: Host, host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    (index,) = (site / "index").glob("*.json")
    old = index.read_bytes()
    mxr("push", programs.gfx942, "--model", model, "--rocm", "7.2", "--for", "python")
    mxr("export", "--static", site, "--all")
    far = host("far", web.url)
    other = ["gfx942:sramecc+:xnack-" if word.startswith("gfx908") else word for word in gpu]
    far("fetch", model, *other)
    # A cache in between that has an old page for an hour, and then somebody who put it there for good.
    new = index.read_bytes()
    index.write_bytes(old)
    far("fetch", model, *gpu, "--refresh")
    clock = wrong_by("+2h")
    said = far("fetch", model, *gpu, "--refresh", env=clock, expect=69)
    assert "older than what this host saw" in said.err
    # One of the future, as of a host whose clock is wrong, is not remembered.
    index.write_bytes(new)
    host("early", web.url)("fetch", model, *other, env=wrong_by("-4d"))
    index.write_bytes(old)
    for shift in ("-4d", "-2d"):
        host("early", web.url)("fetch", model, *gpu, "--refresh", env=wrong_by(shift))
    host("fresh", web.url)("fetch", model, *gpu, env=clock)
    index.write_bytes(new)
    far("fetch", model, *gpu, "--refresh", env=clock)
    # Where the recall list says otherwise, never.
    id = far("fetch", model, *gpu, "--json").json["id"]
    mxr("quarantine", id[:12], "--reason", "wrong")
    mxr("export", "--static", site, "--all")
    far("fetch", model, *gpu, "--refresh", expect=3)
    index.write_bytes(new)
    assert far("fetch", model, *gpu, "--refresh", "--json", expect=3).error["context"]["reason"] == "recalled"
    far("fetch", model, *other, "--refresh")
    root = json.loads((site / "mxr.json").read_text())
    (site / "mxr.json").write_text(json.dumps(root | {"recalls": root["recalls"] - 1}))
    assert "older" in far("fetch", model, *gpu, "--refresh", expect=69).err


def test_what_a_web_server_gets_wrong(
    web: WebServer, site: Path, host: Hosts, model: Path, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    known = host("known", web.url)
    known("fetch", model, *gpu)
    # What is known of a URL ends after a day, and is found out again.
    known("fetch", model, *gpu, "--refresh", env=wrong_by("+3d"))
    (index,) = (site / "index").glob("*.json")
    good = index.read_bytes()
    document = json.loads(good)
    page = (200, b"<html>not found</html>", {"Content-Type": "text/html"})
    spoiled: list[tuple[str, tuple[int, bytes, dict[str, str]], int]] = [
        ("/index/", page, 69),
        ("/index/", (200, good[:-20], {}), 69),
        ("/index/", (200, b"", {}), 69),
        ("/index/", (200, b"[" * 100_000, {}), 69),
        ("/index/", (200, json.dumps(document | {"model": "sha256:" + "0" * 64}).encode(), {}), 69),
        ("/index/", (200, json.dumps(document | {"v": 2}).encode(), {}), 69),
        ("/index/", (200, json.dumps(document | {"artifacts": [{"artifact": {}}, 7]}).encode(), {}), 3),
        ("/index/", (200, json.dumps(document | {"artifacts": 7}).encode(), {}), 69),
        ("/index/", (200, good + b" " * (64 << 20), {}), 69),
        ("/index/", (200, good, {"Content-Encoding": "gzip"}), 69),
        ("/index/", (302, b"", {"Location": "ftp://elsewhere/index"}), 69),
        ("/index/", (302, b"", {"Location": "/index/loop"}), 69),
        ("/index/", (503, b"", {}), 75),
        ("/index/", (418, b"", {}), 69),
        ("/blobs/", (200, b"x" * 16_000, {}), 65),
        ("/blobs/", (404, b"", {}), 3),
        ("/blobs/", page, 65),
    ]
    for at, (path, reply, code) in enumerate(spoiled):
        far = host(f"far-{at}", web.url)
        far.environ["MXR_RETRY"] = "0"
        web.spoil = {path: reply}
        said = far("fetch", model, *gpu, "-o", "model.mxr", expect=code)
        assert "Traceback" not in said.err and not (far.home / "model.mxr").exists(), (path, reply)
        web.spoil.clear()
        far("fetch", model, *gpu, "-o", "model.mxr")
    # Many artifacts of one model, of which this host means one; and others that nobody can read.
    (row,) = document["artifacts"]
    many = [{**row, "artifact": {**row["artifact"], "digest": f"{at:064x}"}} for at in range(20_000)]
    names = json.loads(json.dumps(row).replace("model.mxr", "../../model.mxr"))
    size = next((site / "blobs").rglob("?" * 64)).stat().st_size
    lying = json.loads(json.dumps(row).replace(f'"size": {size}', f'"size": {size - 1}'))
    assert lying != row
    web.spoil = {"/index/": (200, json.dumps(document | {"artifacts": [*many, names, row]}).encode(), {})}
    host("among-many", web.url)("fetch", model, *gpu, "-o", "model.mxr")
    for which, wrong, code in (("dots", names, 3), ("sizes", lying, 65)):
        web.spoil = {"/index/": (200, json.dumps(document | {"artifacts": [wrong]}).encode(), {})}
        far = host(which, web.url)
        far("fetch", model, *gpu, "-o", "model.mxr", expect=code)
        assert not (far.home / "model.mxr").exists()
    # A redirect to another place is followed, and a server that ignores ranges does no harm.
    web.spoil = {"/blobs/": (302, b"", {"Location": f"file://{site}/mxr.json"})}
    host("last", web.url)("fetch", model, *gpu, expect=69)


def test_writers_at_once_and_one_that_is_killed(
    mxr: Host, host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    """A reader beside them never fails, and afterwards all is there."""
    site = tmp_path / "site"
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    mxr("export", "--static", site, "--all")
    mxr("push", programs.gfx942, "--model", model, "--rocm", "7.2", "--for", "python")
    stop, failed = threading.Event(), []
    far = host("far", f"file://{site}")

    def read() -> None:
        while not stop.is_set():
            done = far.start("fetch", model, *gpu, "--refresh", "--json")
            out, err = done.communicate(timeout=120)
            if done.returncode:
                failed.append((out, err))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for delay in (0.2, 0.3, 0.4, 0.5, 0.6):
            killed = mxr.start("export", "--static", site, "--all")
            time.sleep(delay)
            killed.kill()
            killed.communicate()
        writers = [mxr.start("export", "--static", site, "--all") for _ in range(3)]
        assert [writer.wait(120) for writer in writers] == [0, 0, 0]
        for writer in writers:
            writer.communicate()
    finally:
        stop.set()
        reader.join()
    assert failed == []
    other = ["gfx942:sramecc+:xnack-" if word.startswith("gfx908") else word for word in gpu]
    far("fetch", model, *other)
    assert json.loads((site / "mxr.json").read_text())["format"] == "mxr-static"


def test_an_index_that_no_host_would_read_is_not_written(mxr: Host, site: Path) -> None:
    """As that of 100,000 artifacts of one model."""
    (index,) = (site / "index").glob("*.json")
    before = index.read_bytes()
    index.unlink()
    program = f"""
import sys
from mxr.protocol import static_form
static_form.MAX_INDEX = {len(before) - 1}
from mxr_cli.main import main
sys.argv = ["mxr", "export", "--static", {str(site)!r}, "--all"]
main()
"""
    said = mxr.python(program, expect=2).err
    assert "has 1 artifacts" in said and "a LOCK, or ids" in said and not index.exists()
    mxr("export", "--static", site, "--all")
    assert index.exists()


def test_all_artifacts_of_a_model(
    mxr: Host, site: Path, model: Path, convnet: Path, programs: Programs, tmp_path: Path
) -> None:
    mxr("push", programs.ref, "--model", convnet, "--kind", "ref", "--precision", "fp16", "--for", "python")
    mxr("push", programs.gfx942, "--model", model, "--rocm", "7.2", "--for", "python")
    found = mxr("export", "--static", tmp_path / "one", "--model", model, "--json").json
    assert (found["artifacts"], found["models"]) == (2, 1)
    found = mxr("export", "--static", tmp_path / "one", "--model", convnet, "--model", model, "--json").json
    assert (found["artifacts"], found["models"]) == (3, 2)
    assert mxr("export", "--static", tmp_path / "one", "--model", "sha256:" + "0" * 64, expect=3).err
    mxr("export", "--model", model, "-o", "bundle.tar", expect=2)
    mxr("export", "--static", tmp_path / "one", "--all", "--model", model, expect=2)


def test_folders_that_are_not_its_own(
    site: Path, mxr: Host, own_registry: Callable[..., Registry], host: Hosts
) -> None:
    (mxr.home / "photos").mkdir()
    (mxr.home / "photos" / "cat.jpg").write_text("precious")
    assert "other files" in mxr("export", "--static", "photos", "--all", expect=7).err
    other = host("other", own_registry().url)
    assert "static form of registry" in other("export", "--static", site, "--all", expect=2).err
    for words in (
        ("mxr.lock",),
        ("--static", "a", "-o", "b", "mxr.lock"),
        ("--static", "a"),
        ("-o", "b", "--all"),
        ("-o", "b"),
        ("--static", "a", "--all", "ab" * 32),
    ):
        mxr("export", *words, expect=2)
    (next((site / "index").glob("*.json"))).write_text("{")
    assert "is damaged" in mxr("export", "--static", site, "--all", expect=65).err


def test_the_first_registry_that_has_it(
    web: WebServer,
    site: Path,
    registry: Registry,
    own_registry: Callable[..., Registry],
    host: Hosts,
    model: Path,
    convnet: Path,
    programs: Programs,
    gpu: tuple[str, ...],
) -> None:
    empty = own_registry()
    away = f"http://127.0.0.1:{free_port()}"
    many = host("many", empty.url)
    many.environ |= {"MXR_RETRY": "0", "MXR_REGISTRY": ",".join((empty.url, away, web.url, registry.url))}
    found = many("fetch", model, *gpu, "-o", "model.mxr", "--json")
    assert found.json["source"] == "registry" and (many.home / "model.mxr").exists()
    assert f"{empty.url} was passed over: No program" in found.err and f"{away} was passed over" in found.err
    assert registry.url not in found.err and any("/blobs/" in path for path in web.asked)
    asked = len(web.asked)
    assert many("fetch", model, *gpu, "--json").json["source"] == "cache"
    assert len(web.asked) == asked
    assert many("fetch", model, *gpu, "--offline", "--json").json["id"] == found.json["id"]
    program = f"import mxr; print(mxr.fetch({str(model)!r}, arch='gfx908').artifact.id)"
    assert many.python(program).out.strip() == found.json["id"]
    # Damaged answers are passed over, too; what nobody has is a miss of the first one that answers.
    web.spoil = {"/index/": (200, b"<html>", {})}
    other = host("other", web.url)
    other("login", registry.url, stdin=tokens.variable(registry.url)["MXR_TOKEN"])
    other.environ["MXR_REGISTRY"] = f"{web.url},{registry.url}"
    assert "is invalid" in other("fetch", model, *gpu).err
    web.spoil.clear()
    missed = other("fetch", convnet, "--arch", "gfx1100", "--json", expect=3)
    assert missed.error["context"]["reason"] == "unknown_model" and "takes nothing" in missed.error["hint"]
    assert many("config", "--json").json["settings"]["registry"]["value"] == many.environ["MXR_REGISTRY"]
    # What one has recalled is not taken from another one.
    registry.ask("PUT", f"/v1/artifacts/{found.json['id']}/recall", {"word": "quarantined", "reason": "wrong"})
    turned = {"MXR_REGISTRY": f"{registry.url},{web.url}", "MXR_MAX_AGE": "0"}
    careful = host("careful", registry.url)
    assert careful("fetch", model, *gpu, "--json", env=turned, expect=3).error["context"]["reason"] == "recalled"
    registry.ask("DELETE", f"/v1/artifacts/{found.json['id']}/recall")
    # A tag of a later one.
    registry.ask("PUT", "/v1/tags/far", {"lock": (site.parent / "mxr.lock").read_text()})
    assert other("fetch", model, "--tag", "far", "--json", expect=2).err, "the first one is files"
    turned = {"MXR_REGISTRY": f"{empty.url},{registry.url}"}
    many("login", registry.url, stdin=tokens.variable(registry.url)["MXR_TOKEN"])
    assert many("fetch", "convrelu:far", "--json", env=turned).json["id"] == found.json["id"]
    # All else is for the first one.
    many("push", programs.gfx942, "--model", model, "--rocm", "7.2", "--for", "python")
    assert len(empty.ask("GET", "/v1/artifacts").json()["items"]) == 1
    for bad in (f"{web.url},{web.url}", f"{web.url},", f"{web.url},nonsense"):
        many("fetch", model, *gpu, env={"MXR_REGISTRY": bad}, expect=2)
