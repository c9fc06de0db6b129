"""Where MIGraphX lies: the layouts of AMD's packages and wheels, of distributions, and several of them on one host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mxr.errors import UsageError
from mxr.host_facts import Host, HostToolchain, detect
from mxr.request.builder import RequestOptions, installed_toolchain

SITE = "venv/lib/python3.12/site-packages"
WHEEL = f"{SITE}/migraphx-2.18.0+rocm10.1.0.dist-info/METADATA"
ACTIVE = {"VIRTUAL_ENV": "/venv"}
NEW, OLD = HostToolchain("10.1.0", "2.18.0"), HostToolchain("7.2.1", "2.15.0")


def packages(*rows: str) -> str:
    return "".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n\n"
        for name, version in (row.split() for row in rows)
    )


@pytest.fixture
def rocm72(tree: Any) -> Any:
    """A host with ROCm 7.2.1 and its MIGraphX."""
    tree.write("opt/rocm-7.2.1/.info/version", "7.2.1").write("opt/rocm-7.2.1/lib/migraphx/lib/libmigraphx.so.2015000")
    return tree.link("opt/rocm", "rocm-7.2.1")


CORE, EXTRAS = "opt/rocm/core-10.1/.info/version", "opt/rocm/extras-10/lib/migraphx/lib/libmigraphx.so.2018000.0"


LIBRARY = "libmigraphx.so.2018000"
NIX = f"nix/store/{'0' * 32}-migraphx-10.1.0/lib"


@pytest.mark.parametrize(
    ("files", "environ"),
    [
        ((CORE, EXTRAS), {}),
        ((CORE, EXTRAS), {"ROCM_PATH": "/opt/rocm/core-10.1"}),
        ((CORE, EXTRAS), {"ROCM_PATH": "/opt/rocm/core-10.1", "MIGRAPHX_PATH": "/opt/rocm/extras-10"}),
        ((CORE, f"srv/migraphx/lib/{LIBRARY}"), {"MIGRAPHX_PATH": "/srv/migraphx/"}),
        ((CORE, f"srv/m/lib/{LIBRARY}", "srv/m/bin/migraphx-driver"), {"PATH": "/bin:/srv/m/bin"}),
        ((WHEEL,), ACTIVE),
        ((f"{SITE}/migraphx_libs-2.18.0+rocm10.1.0.dist-info/RECORD",), ACTIVE),
        ((f"{SITE}/migraphx_libs/{LIBRARY}", f"{SITE}/_rocm_sdk_core/.info/version"), ACTIVE),
        ((f"{SITE}/migraphx_libs/{LIBRARY}", f"{SITE}/rocm_sdk_core-10.1.0.dist-info/RECORD"), ACTIVE),
        ((CORE, f"usr/local/lib/{LIBRARY}"), {}),
        (("usr/lib64/rocm/.info/version", f"usr/lib64/rocm/lib/migraphx/lib/{LIBRARY}.0"), {}),
        ((CORE, f"run/current-system/sw/lib/{LIBRARY}"), {}),
        ((CORE, f"home/ada/.nix-profile/lib/{LIBRARY}"), {"HOME": "/home/ada"}),
        ((CORE, f"{NIX}/{LIBRARY}"), {}),
        ((CORE, f"conda/lib/{LIBRARY}"), {"CONDA_PREFIX": "/conda"}),
    ],
)
def test_each_place_is_found(tree: Any, files: tuple[str, ...], environ: dict[str, str]) -> None:
    for name in files:
        tree.write(name, "10.1.0\n" if name.endswith("version") else "")
    host = detect(tree.top, environ)
    assert host.toolchain == NEW
    assert all(tree.top.joinpath(host.found_by[fact].lstrip("/")).exists() for fact in ("migraphx", "rocm"))
    assert installed_toolchain(RequestOptions(consumer="ort"), host) == NEW


def test_packages_of_the_new_names(tree: Any) -> None:
    rows = packages("amdrocm10-migraphx 2.18.0-1", "amdrocm-core10.1 10.1.0-5", "amdrocm10-migraphx-dev 2.19.0-1")
    host = detect(tree.write("var/lib/dpkg/status", rows).top)
    assert host.toolchain == HostToolchain("10.1.0", "2.18.0", "1")


@pytest.mark.parametrize(
    "name",
    ["migraphx-2.18.0.dist-info", "migraphx-2.18.0+cpu.dist-info", "migraphx_tools-2.18.0+rocm10.1.0.dist-info"],
)
def test_a_package_that_is_not_amds_is_ignored(rocm72: Any, name: str) -> None:
    rocm72.write(f"{SITE}/{name}/METADATA")
    assert detect(rocm72.top, ACTIVE).toolchain == OLD


def host_with(tree: Any, *files: str, environ: dict[str, str] | None = None) -> Host:
    for name in files:
        tree.write(name)
    return detect(tree.top, environ or {})


def chosen(host: Host, **options: Any) -> HostToolchain:
    return installed_toolchain(RequestOptions(**options), host)


def test_two_installations_are_listed_and_never_chosen_from(rocm72: Any) -> None:
    host = host_with(rocm72, "usr/local/lib/libmigraphx.so.2018000")
    assert host.toolchain == HostToolchain()
    (line,) = (note for note in host.notes if "installations" in note)
    assert "2.15.0" in line and "2.18.0" in line and "/usr/local/lib/libmigraphx.so.2018000" in line
    for options in ({}, {"consumer": "python"}, {"consumer": "ort"}, {"kind": "ref"}, {"rocm": "7.2"}):
        with pytest.raises(UsageError, match="2 installations of MIGraphX") as error:
            chosen(host, **options)
        assert "MIGRAPHX_PATH" in error.value.hint and len(error.value.context["installations"]) == 2
    # What is stated decides.
    assert chosen(host, migraphx="2.15") == OLD
    assert chosen(host, migraphx="2.18").migraphx == "2.18.0"
    assert chosen(host, migraphx="2.18", rocm="7.2").migraphx == "2.18.0"
    assert chosen(host, migraphx="2.18", rocm="10.1") == HostToolchain(), "only what is stated counts"
    recorded = Host.from_json(host.to_json())
    assert recorded == host


def test_the_variable_decides(rocm72: Any) -> None:
    host = host_with(rocm72, "usr/local/lib/libmigraphx.so.2018000", environ={"MIGRAPHX_PATH": "/usr/local"})
    assert host.toolchain.migraphx == chosen(host, consumer="ort").migraphx == "2.18.0"
    host = host_with(rocm72, environ={"ROCM_PATH": "/opt/rocm"})
    assert host.toolchain == chosen(host, consumer="ort") == OLD


def test_the_environment_counts_for_python_only(rocm72: Any) -> None:
    """A virtual environment with AMD's wheel on a host that also has ROCm 7.2."""
    host = host_with(rocm72, WHEEL, environ=ACTIVE)
    assert host.toolchain == chosen(host, consumer="python") == NEW
    for consumer in (None, "ort", "triton"):
        with pytest.raises(UsageError, match="Which of them will load the program is not known"):
            chosen(host, consumer=consumer)
    assert chosen(host, consumer="ort", migraphx="2.15") == OLD
    assert chosen(host, consumer="ort", migraphx="2.16") == HostToolchain(), "no ROCm of another installation"
    # Without the wheel, python loads the module of ROCm.
    assert chosen(detect(rocm72.top), consumer="python") == OLD


def test_only_the_environment_that_loads_the_program_counts(rocm72: Any) -> None:
    """A wheel of the system's Python, or two environments: which one loads the program is asked."""
    system = "usr/local/lib/python3.12/dist-packages/migraphx-2.18.0+rocm10.1.0.dist-info/METADATA"
    rocm72.write(f"{SITE}/other/__init__.py")
    host = host_with(rocm72, system, environ=ACTIVE)
    assert host.toolchain == HostToolchain() and not any(each.python for each in host.installations)
    with pytest.raises(UsageError, match="2 installations of MIGraphX"):
        chosen(host, consumer="python")
    conda = "conda/lib/python3.12/site-packages/migraphx-2.17.0+rocm10.0.0.dist-info/METADATA"
    host = host_with(rocm72, WHEEL, conda, environ=ACTIVE | {"CONDA_PREFIX": "/conda"})
    assert host.toolchain == HostToolchain()
    with pytest.raises(UsageError, match="installations of MIGraphX"):
        chosen(host, consumer="python")
    assert chosen(host, consumer="python", migraphx="2.18") == NEW


def test_a_build_of_the_system_does_not_get_the_rocm_of_a_wheel(tree: Any) -> None:
    host = host_with(tree, WHEEL, "usr/local/lib/libmigraphx.so.2015000", environ=ACTIVE)
    assert [(each.toolchain.migraphx, each.toolchain.rocm) for each in host.installations] == [
        ("2.18.0", "10.1.0"),
        ("2.15.0", None),
    ]


def test_equal_versions_are_no_choice(rocm72: Any) -> None:
    host = host_with(rocm72, "usr/lib64/libmigraphx.so.2015000.0", "usr/local/lib/libmigraphx.so.2015000")
    assert host.toolchain == chosen(host, consumer="ort") == OLD
    assert not any("installations" in note for note in host.notes)


def test_several_extras_without_a_link_are_several_installations(tree: Any) -> None:
    tree.write(CORE, "10.1.0")
    host = host_with(tree, EXTRAS, "opt/rocm/extras-11/lib/libmigraphx.so.2030000")
    assert host.toolchain.migraphx is None and len(host.installations) == 2
    tree.link("opt/rocm/extras", "extras-10")
    assert detect(tree.top).toolchain == NEW


def test_a_recorded_host_with_several_asks_as_well(rocm72: Any, tmp_path: Path) -> None:
    host = host_with(rocm72, "usr/local/lib/libmigraphx.so.2018000")
    assert Host.from_json(host.to_json()).installations == host.installations
