"""The Dockerfiles, compose.yaml and the templates of CI, by the programs and schemas that read them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.programs import BIN
from paths import ROOT
from servers import debian

from mxr_registry.config.settings import RegistrySettings
from mxr_registry.http_server import DRAIN

DEPLOY = ROOT / "deploy"
DOCKERFILES = [*sorted((DEPLOY / "docker").glob("*.Dockerfile")), DEPLOY / "kserve" / "Dockerfile"]
COMPOSE = DEPLOY / "compose" / "compose.yaml"
SCHEMAS = {
    COMPOSE: ("vendor.compose-spec",),
    DEPLOY / "ci" / "github-actions.yml": ("vendor.github-workflows",),
    DEPLOY / "ci" / "gitlab-ci.yml": ("vendor.gitlab-ci", "--data-transform", "gitlab-ci"),
}


def run(name: str, *words: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment."""
    if not (Path(BIN) / name).exists():
        debian.missing(f"{name} is not installed: no wheel of it fits this machine.")
    argv = [str(Path(BIN) / name), *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, input=stdin)


def test_hadolint_finds_nothing() -> None:
    done = run("hadolint", *DOCKERFILES)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_finds_a_mistake() -> None:
    assert "DL3000" in run("hadolint", "-", stdin="FROM debian:12\nWORKDIR data\n").stdout


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_a_file_fits_its_schema(path: Path, tmp_path: Path) -> None:
    done = run("check-jsonschema", "--builtin-schema", *SCHEMAS[path], path)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / path.name
    wrong.write_text(re.sub(r"\b(image|runs-on|stage):", r"\1s:", path.read_text()) + "\nservces: 1\n")
    assert run("check-jsonschema", "--builtin-schema", *SCHEMAS[path], wrong).returncode == 1


def services() -> dict[str, Any]:
    """The services of compose.yaml."""
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def test_the_registries_take_their_settings() -> None:
    found = services()
    values = {
        "POSTGRES_PASSWORD": "0" * 64,
        "MXR_HOST": "registry.example.com",
        "S3_ACCESS_KEY": "a",
        "S3_SECRET_KEY": "b",
    }
    for name in ("migration", "registry-a", "registry-b"):
        environ = {
            key: re.sub(r"\$\{(\w+)[^}]*\}", lambda match: values[match[1]], value)
            for key, value in found[name]["environment"].items()
        }
        settings = RegistrySettings.read(environ | {"HOME": "/data"})
        assert settings.store_url == "s3://mxr/fleet" and not settings.s3.signed and settings.trusted_proxies
        assert found[name]["read_only"] and found[name]["cap_drop"] == ["ALL"]


def test_only_registries_share_a_network_with_stores() -> None:
    """The ports of SeaweedFS besides S3 take requests without credentials; the worker runs the models of others."""
    document = yaml.safe_load(COMPOSE.read_text())
    joined = {name: set(each.get("networks", ["default"])) for name, each in document["services"].items()}
    registries = {"registry-a", "registry-b"}
    assert {name for name, networks in joined.items() if "store" in networks} == registries | {
        *("postgres", "s3", "migration"),
    }
    assert {name for name, networks in joined.items() if "front" in networks} == registries | {"nginx"}
    assert joined["worker"] == {"default"} and document["networks"]["store"] == {"internal": True}
    assert {name for name, each in document["services"].items() if each.get("ports")} == {"nginx"}
    nginx = document["services"]["nginx"]["networks"]["front"]["ipv4_address"]
    assert {document["services"][each]["environment"]["MXR_SERVE_TRUSTED_PROXIES"] for each in registries} == {nginx}
    worker = document["services"]["worker"]
    assert worker["read_only"] and worker["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in worker["security_opt"]
    assert {"-webdav=false", "-admin.ui=false"} <= set(document["services"]["s3"]["command"])


def test_variables_and_files_of_compose_exist() -> None:
    text = COMPOSE.read_text()
    example = (COMPOSE.parent / "env.example").read_text()
    names = set(re.findall(r"\$\{(\w+)", text))
    assert names == set(re.findall(r"^#?(\w+)=", example, re.MULTILINE))
    # No secret has a default, neither here nor there.
    assert not re.search(r"\$\{\w*(PASSWORD|SECRET)\w*(:?-|\})", text)
    assert all(line.endswith("=") for line in example.splitlines() if re.match(r"\w*(PASSWORD|SECRET)", line))
    for each in services().values():
        for volume in each.get("volumes", []):
            source = volume.split(":")[0]
            made_by_user = source.startswith(("./tls", "./worker.token", "./signing.key"))
            assert not source.startswith(".") or made_by_user or (COMPOSE.parent / source).exists(), source
        build = each.get("build")
        assert not build or (COMPOSE.parent / build["context"] / build["dockerfile"]).exists()


def test_who_stops_a_registry_gives_it_its_time() -> None:
    settings = RegistrySettings.read({"HOME": "/home/x"})
    needed = DRAIN + settings.graceful
    unit = (DEPLOY / "systemd" / "mxr-registry.service").read_text()
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    given = {seconds, *(each["stop_grace_period"][:-1] for name, each in services().items() if "registry-" in name)}
    values = yaml.safe_load((DEPLOY / "helm" / "mxr" / "values.yaml").read_text())
    assert {int(each) for each in given} == {values["stopSeconds"]} and needed + 10 < values["stopSeconds"]
    # One failure is none for nginx: every server of every upstream, those in comments too.
    for path in [*(DEPLOY / "nginx").glob("*.conf"), DEPLOY / "compose" / "nginx.conf"]:
        servers = re.findall(r"^ *#?server (?:unix:|registry-|10\.)\S+.*;$", path.read_text(), re.MULTILINE)
        assert all(each.endswith(" max_fails=0;") for each in servers), path
        assert servers or path.name == "mxr-proxy.conf"


def test_every_service_of_compose_has_bounds() -> None:
    for name, each in services().items():
        assert each["logging"]["options"]["max-size"], name
        # The compile of a worker takes what the models need; `worker.memory` bounds it.
        assert name == "worker" or each["mem_limit"], name


def test_nginx_of_compose_is_that_of_deploy_nginx() -> None:
    own = (COMPOSE.parent / "nginx.conf").read_text()
    other = (DEPLOY / "nginx" / "mxr.conf").read_text()
    lines = {line.strip() for line in other.splitlines()}
    lines |= {f"server registry-{one}:8765 max_fails=0;" for one in "ab"}
    found = [line.strip() for line in own.splitlines() if not line.startswith("#")]
    assert set(found) <= lines, set(found) - lines
    assert {"registry-a", "registry-b"} <= set(services())


def test_only_what_is_built_from_is_sent_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    kept = {line[1:].rstrip("/") for line in lines if line.startswith("!")}
    assert all((ROOT / each).exists() for each in kept)
    for path in DOCKERFILES:
        for source in re.findall(r"^COPY (?!--from)(\S+) ", path.read_text(), re.MULTILINE):
            assert source == "." or source in kept, source
