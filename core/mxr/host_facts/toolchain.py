"""Detects the versions of ROCm (or Hygon's DTK) and MIGraphX from files, and from a tool as a last resort."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .facts import HostToolchain
from .gpus import TIMEOUT
from .root import Root, Run

RELEASE = re.compile(r"([0-9]{1,6}\.[0-9]{1,6}(?:\.[0-9]{1,6}(?:(?:a|b|rc)[0-9]{1,12})?)?)(?![0-9])")
DRIVER = re.compile(r"MIGraphX Version: ([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})\.?([0-9A-Za-z.+~-]{0,80})")
LIBRARY = re.compile(r"libmigraphx\.so\.([0-9]{7,9})(?:\.0)?(?:\.([0-9]{5,6}))?")
PACKAGE = re.compile(
    r"(?:[0-9]+:)?([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})(?:\.([0-9]{5,6}))?(?:-([0-9A-Za-z.+~-]{1,60}))?"
)
DPKG = "/var/lib/dpkg/status"
DPKG_LIMIT = 64 * 1024 * 1024
LIBRARY_FOLDERS = ("lib/migraphx/lib", "lib", "lib64", "lib/x86_64-linux-gnu")


@dataclass(slots=True)
class Finds:
    """Candidate values of one fact with their sources. The first one wins."""

    rows: list[tuple[str, str]] = field(default_factory=list)

    def add(self, value: str | None, how: str) -> None:
        """Add `value` unless it is None."""
        if value is not None:
            self.rows.append((value, how))

    def first(self) -> tuple[str | None, str]:
        """Return the winning value and its source; (None, "") if there is none."""
        return self.rows[0] if self.rows else (None, "")


def find_toolchain(
    root: Root, environ: Mapping[str, str], run: Run | None
) -> tuple[HostToolchain, dict[str, str], list[str]]:
    """Return the toolchain, the source of each of its facts, and notes for the user.

    The version of the Python package `migraphx` is never used: the package on the public index is an empty placeholder.
    """
    notes: list[str] = []
    folders = _folders(root, environ, notes)
    vendor = "hygon" if _is_hygon(root, folders) else "amd"
    # Facts of two toolchains must not be mixed: with DTK, packages and the folders of the distribution are ignored.
    places = folders if vendor == "hygon" else [*folders, "/usr"]
    rocm, migraphx, build = Finds(), Finds(), Finds()
    for folder in folders:
        _read_release(root, folder, rocm)
    for folder in places:
        _read_header(root, folder, migraphx, build)
    if vendor == "amd":
        _read_dpkg(root, rocm, migraphx, build)
    for folder in places:
        _read_libraries(root, folder, rocm, migraphx, notes)
    if run and not migraphx.rows:
        _run_driver(root, places, run, migraphx, build)
    _compare(migraphx, notes)
    found = {"rocm": rocm.first(), "migraphx": migraphx.first(), "migraphx_build": build.first()}
    values = {fact: value for fact, (value, _) in found.items()}
    return HostToolchain(**values, vendor=vendor), {fact: how for fact, (value, how) in found.items() if value}, notes


def find_vendor(root: Root, environ: Mapping[str, str]) -> str:
    """Return the vendor of the toolchain: hygon if DTK is in use, otherwise amd."""
    return "hygon" if _is_hygon(root, _folders(root, environ, [])) else "amd"


def _folders(root: Root, environ: Mapping[str, str], notes: list[str]) -> list[str]:
    """The folders where ROCm or DTK may be, most likely first; only those in ROCM_PATH and ROCM_HOME if they exist."""
    named = [environ[name].rstrip("/") for name in ("ROCM_PATH", "ROCM_HOME") if environ.get(name, "").startswith("/")]
    existing = [folder for folder in dict.fromkeys(named) if folder and root.exists(folder)]
    if existing:
        return [each for folder in existing for each in (folder, f"{folder}/core")]
    versions = [name for name in root.names("/opt") if re.fullmatch(r"rocm-[0-9][0-9a-z.]*", name)]
    if root.exists("/opt/dtk"):
        return ["/opt/dtk"]
    folders = [folder for folder in ("/opt/rocm", "/opt/rocm/core") if root.exists(folder)]
    if not folders and len(versions) > 1:
        notes.append(f"Several ROCm versions are installed ({', '.join(versions)}): select one with ROCM_PATH.")
    return folders or ([f"/opt/{versions[0]}", f"/opt/{versions[0]}/core"] if len(versions) == 1 else [])


def _is_hygon(root: Root, folders: list[str]) -> bool:
    names = [(root.link(folder) or folder).rpartition("/")[2] for folder in folders]
    return any(re.fullmatch(r"dtk(-.*)?", name) for name in names) or "/opt/dtk" in folders


def _read_release(root: Root, folder: str, rocm: Finds) -> None:
    # On some DTK releases `version` has another numbering; `rocm_version` contains the DTK version (25.04.4).
    names = ("rocm_version", "version") if "dtk" in folder.rpartition("/")[2] else ("version",)
    for name in names:
        path = f"{folder}/.info/{name}"
        rocm.add(_release(root.line(path) or ""), path)
    link = (root.link(folder) or folder).rpartition("/")[2]
    named = re.fullmatch(r"(?:rocm|dtk|core)-(.+)", link)
    rocm.add(_release(named[1]) if named else None, f"the name of {folder}" if link in folder else f"the link {folder}")


def _release(text: str) -> str | None:
    found = RELEASE.match(text.strip())
    return found[1] if found else None


def _read_header(root: Root, folder: str, migraphx: Finds, build: Finds) -> None:
    """Read MIGRAPHX_VERSION_* from the header. Source: AMDMIGraphX, src/version.h.in."""
    for inside in ("include", "lib/migraphx/include"):
        path = f"{folder}/{inside}/migraphx/version.h"
        text = root.read(path) or ""
        macros = dict(
            re.findall(r'(?m)^[ \t]*#define[ \t]+MIGRAPHX_VERSION_(\w+)[ \t]+"?([0-9A-Za-z.+~-]{0,80})', text)
        )
        parts = [macros.get(name, "") for name in ("MAJOR", "MINOR", "PATCH")]
        if all(re.fullmatch("[0-9]{1,6}", part) for part in parts):
            migraphx.add(".".join(parts), path)
            build.add(macros.get("TWEAK") or None, path)


def _read_dpkg(root: Root, rocm: Finds, migraphx: Finds, build: Finds) -> None:
    for name, version in _packages(root):
        found = PACKAGE.fullmatch(version)
        how = f"dpkg package {name}"
        if not found:
            continue
        if name.startswith("rocm-core"):
            rocm.add(found[1], how)
            continue
        migraphx.add(found[1], how)
        build.add("-".join(part for part in found.groups()[1:] if part) or None, how)
        rocm.add(_from_patch(found[2]), how)


def _packages(root: Root) -> Iterator[tuple[str, str]]:
    """Name and version of the relevant installed packages: `migraphx` or `rocm-core`, also with a release suffix."""
    text = root.read(DPKG, DPKG_LIMIT) or ""
    for found in re.finditer(r"(?m)^Package: ((?:migraphx|rocm-core)(?:-rpath)?[0-9.]*)$", text):
        stanza = text[found.start() :].partition("\n\n")[0]
        version = re.search(r"(?m)^Version: (\S+)$", stanza)
        if version and re.search(r"(?m)^Status: \S+ ok installed$", stanza):
            yield found[1], version[1]


def _from_patch(number: str | None) -> str | None:
    """The ROCm release in the numeric suffix of ROCm's packages and libraries: 70200 is 7.2.0."""
    if number is None:
        return None
    value = int(number)
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}" if value >= 10000 else None


def _read_libraries(root: Root, folder: str, rocm: Finds, migraphx: Finds, notes: list[str]) -> None:
    """Read the versions in the name of the library: libmigraphx.so.2015000.0.70200 is MIGraphX 2.15.0 of ROCm 7.2.0.

    Source: AMDMIGraphX, CMakeLists.txt: MIGRAPHX_SO_VERSION is major * 10^6 + minor * 10^3 + patch.
    """
    for inside in LIBRARY_FOLDERS:
        names = [found for name in root.names(f"{folder}/{inside}") if (found := LIBRARY.fullmatch(name))]
        numbers = sorted({int(found[1]) for found in names})
        if len(numbers) > 1:
            shown = ", ".join(_from_soname(number) for number in numbers)
            notes.append(f"{folder}/{inside} has several MIGraphX libraries ({shown}): select one with --migraphx.")
        elif numbers:
            path = f"{folder}/{inside}/{max(found[0] for found in names)}"
            migraphx.add(_from_soname(numbers[0]), path)
            rocm.add(next((release for found in names if (release := _from_patch(found[2]))), None), path)


def _from_soname(number: int) -> str:
    return f"{number // 10**6}.{number // 1000 % 1000}.{number % 1000}"


def _run_driver(root: Root, places: list[str], run: Run, migraphx: Finds, build: Finds) -> None:
    for folder in places:
        path = f"{folder}/bin/migraphx-driver"
        found = DRIVER.search(run([path, "--version"], TIMEOUT) or "") if root.exists(path) else None
        if found:
            migraphx.add(found[1], "migraphx-driver --version")
            build.add(found[2] or None, "migraphx-driver --version")
            return


def _compare(migraphx: Finds, notes: list[str]) -> None:
    taken, how = migraphx.first()
    for value, other in migraphx.rows[1:]:
        if value != taken:
            notes.append(
                f"MIGraphX is {taken} according to {how}, but {value} according to {other}. "
                "If the first is wrong, set the version with --migraphx."
            )
            return
