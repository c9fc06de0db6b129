"""deploy/nginx as it is, in front of two registries on one database and one bucket: TLS by a private authority."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from harness import tokens
from paths import ROOT
from servers.certificates import write_certificate
from servers.nginx import free_port, run_nginx

from .stack import Host, Registry

ON = ("engines",)
FOLDER = ROOT / "deploy" / "nginx"
DEFAULTS = """
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass {url}; {more} }}
  }}
"""


@contextlib.contextmanager
def deployed(name: str, folder: Path, registries: list[Registry]) -> Iterator[tuple[str, Path]]:
    """The URL of nginx with this file of deploy/nginx, and the certificate that its clients have to trust."""
    folder.mkdir()
    pem, key = write_certificate(folder, "nginx")
    proxy = folder / "mxr-proxy.conf"
    proxy.write_text((FOLDER / "mxr-proxy.conf").read_text())
    port = free_port()
    text = (FOLDER / name).read_text()
    first, second = (each.url.removeprefix("http://") for each in registries)
    unix = registries[0].environ.get("MXR_SERVE_UNIX")
    for old, new in {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/mxr/registry.pem;": f"{pem};",
        "/etc/mxr/registry.key;": f"{key};",
        "include /etc/nginx/mxr-proxy.conf;": f"include {proxy};",
        "/var/log/nginx/mxr.log ": f"{folder}/mxr.log ",
        "server unix:/run/mxr/registry.sock ": f"server unix:{unix} " if unix else f"server {first} ",
        "#server 10.1.2.4:8765 ": f"server {second} ",
    }.items():
        assert text.count(f" {old}") == 1, old
        text = text.replace(f" {old}", f" {new}")
    with run_nginx(folder / "run", text, port):
        yield f"https://127.0.0.1:{port}", pem


@pytest.mark.parametrize(("name", "path"), [("mxr.conf", ""), ("mxr-sub-path.conf", "/mxr")], ids=["root", "sub-path"])
def test_a_full_round(
    name: str,
    path: str,
    own_registry: Callable[..., Registry],
    tmp_path: Path,
    model: Path,
    convnet: Path,
    programs: Any,
    gpu: tuple[str, ...],
    request: pytest.FixtureRequest,
) -> None:
    settings = {"MXR_SERVE_TRUSTED_PROXIES": "127.0.0.1", "MXR_SERVE_ROOT_PATH": path}
    # Short: nginx takes a path of at most 107 bytes.
    run = Path(tempfile.mkdtemp(prefix="mxr-"))
    request.addfinalizer(lambda: shutil.rmtree(run))
    first = own_registry(environ={**settings, "MXR_SERVE_UNIX": str(run / "registry.sock")})
    both = [first, own_registry(environ=settings, like=first)]
    with deployed(name, tmp_path / "nginx", both) as (origin, pem):
        # A token in the database: each registry on loopback has others for its user.
        made = first.call("POST", "/v1/tokens", {"name": "alice", "scopes": ["admin"]})[1]
        tokens.remember(origin, {"admin": made["secret"]})
        host = Host(tmp_path / "host", origin + path)
        untrusted = host("whoami", expect=69)
        assert "MXR_CA_FILE" in untrusted.err
        host.environ["MXR_CA_FILE"] = str(pem)
        assert re.fullmatch(rf"alice \(admin\), expires \S+ \S+ at {origin}{path}\n", host("whoami").out)
        if not path:
            # The locations of both files include the same settings.
            assert [host("ls").out for _ in range(2)] and all(each.requests("") for each in both)
            return

        # Pushed to one, promoted, and fetched wherever nginx sends the requests.
        said = host("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json").json
        host("promote", said["id"])
        for name in ("a", "b"):
            out = tmp_path / f"{name}.mxr"
            host("fetch", model, *gpu, "-o", out, env={"MXR_CACHE_DIR": str(tmp_path / name)})
            assert out.read_bytes() == programs.gfx908.read_bytes()

        # A model is uploaded for a compile.
        asked = ("--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python", "--on-miss")
        job = host("fetch", convnet, *asked, "ask", "--json", expect=4).json["error"]["context"]["job"]
        assert host("jobs", job, "--json").json["state"] == "queued"

        # What replies name is below the path, and the address of the client is that which nginx saw.
        pool = urllib3.PoolManager(ca_certs=str(pem), retries=False)
        headers = tokens.authorization(origin) | {"x-forwarded-for": "203.0.113.7"}
        lock = pool.request("PUT", f"{origin}{path}/v1/locks/prod", json={"artifacts": [said["id"]]}, headers=headers)
        assert lock.status == 201 and lock.headers["location"] == f"{path}/v1/locks/prod"
        shown = json.loads(pool.request("GET", f"{origin}{path}/v1/jobs/{job}", headers=headers).data)
        waited = pool.request("GET", f"{origin}{path}/v1/jobs/{job}?wait=1&version={shown['version']}", headers=headers)
        assert json.loads(waited.data)["state"] == "queued"
        document = json.loads(pool.request("GET", f"{origin}{path}/openapi.json").data)
        assert document.get("servers", [{"url": ""}])[0]["url"] == path
        page = pool.request("GET", f"{origin}{path}/docs")
        assert page.status == 200 and b"docs/page.js" in page.data
        lines = "".join(each.log.read_text() for each in both)
        assert "from 127.0.0.1 in" in lines and "203.0.113.7" not in lines
        # One id leads from nginx to the registry that answered.
        (line,) = [each for each in (tmp_path / "nginx" / "mxr.log").read_text().splitlines() if "?wait=1" in each]
        assert f"(request {line.rpartition(' ')[2]})" in lines
        assert all(each.requests("") for each in both), "nginx uses both"

        # One of the registries ends; the other serves.
        both[0].kill9()
        for _ in range(4):
            host("ls")


@pytest.mark.on("embedded")
def test_defaults_of_nginx_are_named_by_the_client(
    own_registry: Callable[..., Registry], tmp_path: Path, programs: Any, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    port = free_port()
    # The default of 60 s, shortened to a second.
    http = DEFAULTS.format(port=port, url=registry.url, more="proxy_read_timeout 1s;")
    url = f"http://127.0.0.1:{port}"
    with run_nginx(tmp_path / "nginx", http, port):
        tokens.stands_before(url, registry.url)
        host = Host(tmp_path / "host", url)
        large = tmp_path / "large.onnx"
        large.write_bytes((ROOT / "tests" / "data" / "models" / "convrelu.onnx").read_bytes())
        with large.open("ab") as file:
            # A documentation text of 64 MiB (ModelProto.doc_string = 6): more than one part of a model, which is more
            # than the buffers of a connection hold when nginx refuses it. It does not shrink.
            letters = bytes(32 + each % 95 for each in range(256))
            file.write(b"\x32\x80\x80\x80\x20" + random.Random(1).randbytes(64 << 20).translate(letters))
        refused = host("fetch", large, *gpu, "--on-miss", "ask", expect=2)
        assert "does not take a body of this size" in refused.err and "client_max_body_size 5g;" in refused.err
        with registry.frozen():
            cut = host("ls", expect=75)
        assert "gave up waiting for the registry (HTTP status 504)" in cut.err and "proxy_read_timeout 20m;" in cut.err
        registry.kill9()
        gone = host("ls", expect=75)
        assert "does not reach the registry (HTTP status 502)" in gone.err
