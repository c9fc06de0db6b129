"""Detection of the versions of ROCm and MIGraphX: the sources, their precedence, and what is never mixed."""

from __future__ import annotations

import pytest

from mxr.host_facts import HostToolchain, detect

HEADER = """\
// clang-format off
#define MIGRAPHX_VERSION_MAJOR {0}
#define MIGRAPHX_VERSION_MINOR {1}
#define MIGRAPHX_VERSION_PATCH {2}
#define MIGRAPHX_VERSION_TWEAK "{3}"
#define MIGRAPHX_SO_MAJOR_VERSION           \\
    {0} * 1000 * 1000 + \\
    {1} * 1000 +        \\
    {2}
// clang-format on
"""
STANZA = "Package: {name}\nStatus: {status}\nPriority: optional\nVersion: {version}\nDescription: x\n y\n\n"
INSTALLED = "install ok installed"
LIB = "opt/rocm/lib/migraphx/lib"


def stanza(name: str, version: str, status: str = INSTALLED) -> str:
    return STANZA.format(name=name, version=version, status=status)


def found(tree, environ=None, run=None):
    host = detect(tree.top, environ, run)
    return host.toolchain, host.found_by, host.notes


@pytest.mark.parametrize(
    ("text", "rocm"),
    [
        ("7.0.2\n", "7.0.2"),
        ("6.2.0-66", "6.2.0"),
        ("7.2.1", "7.2.1"),
        ("7.14.0a20260519", "7.14.0a20260519"),
        ("7.13", "7.13"),
        ("", None),
        ("unknown", None),
        ("7", None),
    ],
)
def test_release_file(tree, text, rocm) -> None:
    toolchain, how, _ = found(tree.write("opt/rocm/.info/version", text))
    assert toolchain.rocm == rocm
    assert how.get("rocm") == ("/opt/rocm/.info/version" if rocm else None)


def test_release_of_the_newer_layout(tree) -> None:
    tree.write("opt/rocm/core-7.13/.info/version", "7.13.0\n").link("opt/rocm/core", "core-7.13")
    toolchain, how, _ = found(tree)
    assert (toolchain.rocm, how["rocm"]) == ("7.13.0", "/opt/rocm/core/.info/version")


def test_release_from_the_link_and_from_the_folder(tree) -> None:
    tree.write("opt/rocm-7.2.1/bin/x").link("opt/rocm", "rocm-7.2.1")
    toolchain, how, _ = found(tree)
    assert (toolchain.rocm, how["rocm"]) == ("7.2.1", "the link /opt/rocm")
    (tree.top / "opt/rocm").unlink()
    toolchain, how, _ = found(tree)
    assert (toolchain.rocm, how["rocm"]) == ("7.2.1", "the name of /opt/rocm-7.2.1")


def test_several_releases_need_a_selection(tree) -> None:
    tree.write("opt/rocm-7.2.1/.info/version", "7.2.1").write("opt/rocm-6.4.4/.info/version", "6.4.4")
    toolchain, _, notes = found(tree)
    assert toolchain.rocm is None
    assert any("ROCM_PATH" in note for note in notes)
    toolchain, _, notes = found(tree, {"ROCM_PATH": "/opt/rocm-6.4.4/"})
    assert toolchain.rocm == "6.4.4"


def test_a_folder_from_the_environment_takes_precedence(tree) -> None:
    tree.write("opt/rocm/.info/version", "7.2.1").write("srv/rocm/.info/version", "6.4.4")
    assert found(tree, {"ROCM_HOME": "/srv/rocm"})[0].rocm == "6.4.4"
    assert found(tree, {"ROCM_PATH": "/absent", "ROCM_HOME": "relative"})[0].rocm == "7.2.1"


@pytest.mark.parametrize("inside", ["include", "lib/migraphx/include"])
@pytest.mark.parametrize(("tweak", "build"), [("20250912-17-195-g1afd1b89c", "20250912-17-195-g1afd1b89c"), ("", None)])
def test_header(tree, inside, tweak, build) -> None:
    tree.write(f"opt/rocm/{inside}/migraphx/version.h", HEADER.format(2, 15, 0, tweak))
    toolchain, how, _ = found(tree)
    assert toolchain == HostToolchain(None, "2.15.0", build)
    assert how["migraphx"] == f"/opt/rocm/{inside}/migraphx/version.h"


@pytest.mark.parametrize("text", ["", "#define MIGRAPHX_VERSION_MAJOR 2\n", HEADER.format("@X@", 1, 0, "")])
def test_an_incomplete_header_is_ignored(tree, text) -> None:
    assert found(tree.write("opt/rocm/include/migraphx/version.h", text))[0].migraphx is None


def test_packages(tree) -> None:
    tree.write("var/lib/dpkg/status", stanza("adduser", "3.1") + stanza("migraphx", "2.15.0.70200-43~24.04"))
    toolchain, how, _ = found(tree)
    assert toolchain == HostToolchain("7.2.0", "2.15.0", "70200-43~24.04")
    assert how == dict.fromkeys(("rocm", "migraphx", "migraphx_build"), "dpkg package migraphx")


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("migraphx7.2.1", "2.15.0.70201-81~24.04", HostToolchain("7.2.1", "2.15.0", "70201-81~24.04")),
        ("migraphx-rpath7.2.1", "2.15.0.70204-93~24.04", HostToolchain("7.2.4", "2.15.0", "70204-93~24.04")),
        ("migraphx", "1:2.15.0-2ubuntu1", HostToolchain(None, "2.15.0", "2ubuntu1")),
        ("rocm-core", "7.2.1.70201-81~24.04", HostToolchain("7.2.1")),
        ("migraphx-dev", "2.15.0.70200-43~24.04", HostToolchain()),
        ("migraphx", "weird", HostToolchain()),
    ],
)
def test_package_forms(tree, name, version, expected) -> None:
    assert found(tree.write("var/lib/dpkg/status", stanza(name, version)))[0] == expected


def test_a_removed_package_does_not_count(tree) -> None:
    text = stanza("migraphx", "2.15.0.70200-43~24.04", "deinstall ok config-files") + stanza("zlib", "1")
    assert found(tree.write("var/lib/dpkg/status", text))[0] == HostToolchain()


def test_the_last_stanza_may_lack_its_empty_line(tree) -> None:
    text = stanza("migraphx", "2.15.0.70200-43~24.04").rstrip("\n")
    assert found(tree.write("var/lib/dpkg/status", text))[0].migraphx == "2.15.0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libmigraphx.so.2015000.0.70200", HostToolchain("7.2.0", "2.15.0")),
        ("libmigraphx.so.2012003.0", HostToolchain(None, "2.12.3")),
        ("libmigraphx.so.2016000", HostToolchain(None, "2.16.0")),
        ("libmigraphx_c.so.3.0.70200", HostToolchain()),
        ("libmigraphx.so.2015000.0.70200.bak", HostToolchain()),
        ("libmigraphx.so", HostToolchain()),
    ],
)
def test_library_names(tree, name, expected) -> None:
    assert found(tree.write(f"{LIB}/{name}"))[0] == expected


def test_a_library_and_its_links_count_once(tree) -> None:
    tree.write(f"{LIB}/libmigraphx.so.2015000.0.70200")
    tree.link(f"{LIB}/libmigraphx.so.2015000", "libmigraphx.so.2015000.0.70200")
    toolchain, how, notes = found(tree)
    assert toolchain == HostToolchain("7.2.0", "2.15.0")
    assert how["migraphx"] == f"/{LIB}/libmigraphx.so.2015000.0.70200"
    assert not any("MIGraphX" in note for note in notes)


def test_two_libraries_need_a_selection(tree) -> None:
    tree.write(f"{LIB}/libmigraphx.so.2015000.0.70200").write(f"{LIB}/libmigraphx.so.2016000.0")
    toolchain, _, notes = found(tree)
    assert toolchain.migraphx is None
    assert any("2.15.0, 2.16.0" in note and "--migraphx" in note for note in notes)


def test_a_library_of_the_distribution(tree) -> None:
    assert found(tree.write("usr/lib64/libmigraphx.so.2014000.0"))[0].migraphx == "2.14.0"


def test_the_header_takes_precedence_and_a_contradiction_is_noted(tree) -> None:
    tree.write("opt/rocm/include/migraphx/version.h", HEADER.format(2, 16, 0, "g123"))
    tree.write("var/lib/dpkg/status", stanza("migraphx", "2.15.0.70200-43~24.04"))
    toolchain, _, notes = found(tree)
    assert toolchain == HostToolchain("7.2.0", "2.16.0", "g123")
    assert any("2.16.0" in note and "2.15.0" in note and "dpkg" in note for note in notes)


def test_the_driver_runs_last(tree, never_run) -> None:
    answers = []

    def run(words, seconds):
        answers.append(words)
        return "MIGraphX Version: 2.15.0.20250912-17-195-g1afd1b89c\n"

    toolchain, how, _ = found(tree.write("opt/rocm/bin/migraphx-driver"), run=run)
    assert toolchain == HostToolchain(None, "2.15.0", "20250912-17-195-g1afd1b89c")
    assert how["migraphx_build"] == "migraphx-driver --version"
    assert answers == [["/opt/rocm/bin/migraphx-driver", "--version"]]
    tree.write(f"{LIB}/libmigraphx.so.2016000.0")
    assert found(tree, run=never_run)[0].migraphx == "2.16.0"


@pytest.mark.parametrize(
    ("answer", "version", "build"),
    [
        ("MIGraphX Version: 2.12.0.db302aeb", "2.12.0", "db302aeb"),
        ("MIGraphX Version: 2.9.0.", "2.9.0", None),
        ("[ MIGraphX Version: 2.16.0.20250912-17-879-gef642c96e ] Complete: x", "2.16.0", "20250912-17-879-gef642c96e"),
        ("MIGraphX Version: 4", None, None),
        (None, None, None),
    ],
)
def test_answers_of_the_driver(tree, answer, version, build) -> None:
    tree.write("opt/rocm/bin/migraphx-driver")
    toolchain, _, _ = found(tree, run=lambda words, seconds: answer)
    assert (toolchain.migraphx, toolchain.migraphx_build) == (version, build)


def test_a_python_distribution_is_ignored(tree) -> None:
    for folder in ("usr/lib/python3/dist-packages", "opt/venv/lib/python3.12/site-packages"):
        tree.write(f"{folder}/migraphx-2.9.0.dist-info/METADATA", "Name: migraphx\nVersion: 2.9.0\n")
    assert found(tree)[0] == HostToolchain()


def test_hygons_toolkit_is_not_mixed_with_rocm(tree) -> None:
    tree.write("opt/dtk-25.04/.info/version", "24.1").write("opt/dtk-25.04/.info/rocm_version", "25.04.4\n")
    tree.link("opt/dtk", "dtk-25.04").write("opt/rocm/.info/version", "7.2.1")
    tree.write("opt/rocm/include/migraphx/version.h", HEADER.format(2, 15, 0, ""))
    tree.write("var/lib/dpkg/status", stanza("migraphx", "2.15.0.70200-43~24.04"))
    tree.write("usr/lib64/libmigraphx.so.2014000.0")
    assert found(tree)[0] == HostToolchain("25.04.4", vendor="hygon")
    tree.write("opt/dtk-25.04/lib/libmigraphx.so.4000000.0")
    assert found(tree)[0] == HostToolchain("25.04.4", "4.0.0", vendor="hygon")
    assert found(tree, {"ROCM_PATH": "/opt/rocm"})[0] == HostToolchain("7.2.1", "2.15.0", "70200-43~24.04")


def test_hygons_toolkit_is_detected_from_its_link(tree) -> None:
    tree.write("opt/dtk-25.04.1/bin/x").link("opt/dtk", "dtk-25.04.1")
    assert found(tree)[0] == HostToolchain("25.04.1", vendor="hygon")
    assert found(tree, {"ROCM_PATH": "/opt/dtk"})[0] == HostToolchain("25.04.1", vendor="hygon")
