"""The units: systemd reads them, and finds them hardened."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from paths import ROOT
from servers import debian

UNITS = ROOT / "deploy" / "systemd"
MOST = {"mxr-registry": 2.5, "mxr-worker": 5.0}
"""The exposure that is allowed: from 0 to 10, smaller is safer."""


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    """The output of systemd-analyze."""
    program = debian.program("systemd-analyze", "systemd")
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


def exposure(path: Path) -> float:
    """The exposure of the unit in this file."""
    done = analyze("security", "--offline=true", "--no-pager", path)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+) ", done.stdout)
    assert found, done
    return float(found[1])


@pytest.mark.parametrize("name", MOST)
def test_a_unit_is_hardened(name: str) -> None:
    assert exposure(UNITS / f"{name}.service") < MOST[name]


def test_a_unit_without_hardening_is_found(tmp_path: Path) -> None:
    text = (UNITS / "mxr-registry.service").read_text()
    bare = tmp_path / "mxr-registry.service"
    bare.write_text(re.sub(r"CapabilityBoundingSet=\n.*(?=\n\[Install\])", "", text, flags=re.DOTALL))
    assert exposure(bare) > 9


@pytest.mark.parametrize("name", MOST)
def test_systemd_knows_every_line(name: str, tmp_path: Path) -> None:
    text = (UNITS / f"{name}.service").read_text()
    # Its program is not installed here.
    unit = tmp_path / f"{name}.service"
    unit.write_text(re.sub(r"^ExecStart=/opt/mxr/bin/\S+", "ExecStart=/bin/sh", text, flags=re.MULTILINE))
    done = analyze("verify", "--man=no", unit)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    assert "NoNewPrivilege" in analyze("verify", "--man=no", unit).stderr


def test_a_worker_may_close_walls_around_its_compiles() -> None:
    """What systemd allows by `@system-service` lacks the calls of Landlock."""
    text = (UNITS / "mxr-worker.service").read_text()
    allowed = {word for line in re.findall(r"^SystemCallFilter=([^~].*)$", text, re.MULTILINE) for word in line.split()}
    assert {f"landlock_{name}" for name in ("create_ruleset", "add_rule", "restrict_self")} <= allowed


def test_the_socket_is_that_of_the_service_and_of_nginx(tmp_path: Path) -> None:
    text = (UNITS / "mxr-registry.socket").read_text()
    service = (UNITS / "mxr-registry.service").read_text()
    (tmp_path / "mxr-registry.socket").write_text(text)
    (tmp_path / "mxr-registry.service").write_text(re.sub(r"ExecStart=/opt\S+", "ExecStart=/bin/sh", service))
    done = analyze("verify", "--man=no", tmp_path / "mxr-registry.socket")
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = re.findall(r"^ListenStream=(/.*)", text, re.MULTILINE)
    for name in ("mxr.conf", "mxr-sub-path.conf"):
        assert f"server unix:{path} max_fails=0;" in (ROOT / "deploy" / "nginx" / name).read_text()
