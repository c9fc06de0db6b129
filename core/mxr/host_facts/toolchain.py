"""Detects the versions of ROCm (or Hygon's DTK) and MIGraphX from files, and from a tool as a last resort."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mxr.facts import stated

from .gpus import TIMEOUT
from .host import HostToolchain, Installation, describe
from .places import ROCM_VARIABLES, Place, is_hygon, other_places, rocm_folders
from .root import Root, Run

RELEASE = re.compile(r"([0-9]{1,6}\.[0-9]{1,6}(?:\.[0-9]{1,6}(?:(?:a|b|rc)[0-9]{1,12})?)?)(?![0-9])")
DRIVER = re.compile(r"MIGraphX Version: ([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})\.?([0-9A-Za-z.+~-]{0,80})")
LIBRARY = re.compile(r"libmigraphx\.so\.([0-9]{7,9})(?:\.0)?(?:\.([0-9]{5,6}))?")
PACKAGE = re.compile(
    r"(?:[0-9]+:)?([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})(?:\.([0-9]{5,6}))?(?:-([0-9A-Za-z.+~-]{1,60}))?"
)
DPKG = "/var/lib/dpkg/status"
DPKG_LIMIT = 64 * 1024 * 1024
WHEEL = re.compile(r"migraphx(?:_libs)?-([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})[0-9a-z.]*\+rocm([0-9a-z.]+)\.dist-info")
SDK_WHEEL = re.compile(r"rocm_sdk_core-([0-9][0-9a-z.]*)\.dist-info")
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


@dataclass(slots=True)
class PlaceFinds:
    """What one place has of ROCm and MIGraphX."""

    place: Place
    rocm: Finds = field(default_factory=Finds)
    migraphx: Finds = field(default_factory=Finds)
    build: Finds = field(default_factory=Finds)

    @property
    def version(self) -> str | None:
        """The version of MIGraphX."""
        return self.migraphx.first()[0]

    def installation(self, vendor: str) -> Installation:
        """Return it as a fact of the host."""
        values = HostToolchain(self.rocm.first()[0], self.version, self.build.first()[0], vendor)
        return Installation(values, self.migraphx.first()[1], named=self.place.named, python=self.place.active)


@dataclass(slots=True)
class ToolchainFinds:
    """The toolchain that counts, the source of each fact, notes for the user, and all installations of MIGraphX."""

    toolchain: HostToolchain
    found_by: dict[str, str]
    notes: list[str]
    installations: list[Installation] = field(default_factory=list)


def find_toolchain(root: Root, environ: Mapping[str, str], run: Run | None) -> ToolchainFinds:
    """Return the toolchain of this host.

    Installations of different versions leave the version open, unless MIGRAPHX_PATH names one of them, or one is in the
    active Python environment. Of wheels, only those count whose version names a ROCm: the package `migraphx` on the
    public index is an empty placeholder.
    """
    notes: list[str] = []
    folders = rocm_folders(root, environ, notes)
    hygon = is_hygon(root, folders)
    vendor = "hygon" if hygon else "amd"
    places = [Place("ROCm", tuple(folders), packages=not hygon)]
    # Facts of two toolchains must not be mixed: with DTK, packages and all other folders are ignored.
    places += [] if hygon else other_places(root, environ, folders)
    found = [_read_place(root, place, notes) for place in places]
    if run and not any(each.version for each in found):
        _run_driver(root, [folder for place in places for folder in place.folders], run, found[0])
    # A MIGraphX without a ROCm of its own runs on the ROCm that is installed, and not on that of a wheel.
    rocm = [row for each in found if not each.place.python for row in each.rocm.rows]
    holding = _narrowed(environ, [each for each in found if each.version])
    for each in holding or found[:1]:
        each.rocm.rows += rocm
    counts = _counting(holding)
    rows = [each.installation(vendor) for each in holding]
    if counts is None and holding:
        notes.append(
            f"{describe(rows)} Select one with MIGRAPHX_PATH, or state {stated('migraphx')} and {stated('rocm')}."
        )
        return ToolchainFinds(HostToolchain(vendor=vendor), {}, notes, rows)
    if counts and len({each.version for each in holding}) > 1:
        notes.append(f"{describe(rows)} The one in {counts.migraphx.first()[1]} counts here.")
    best = counts or found[0]
    best.build.rows += [row for each in holding if each.version == best.version for row in each.build.rows]
    values = {"rocm": best.rocm.first(), "migraphx": best.migraphx.first(), "migraphx_build": best.build.first()}
    toolchain = HostToolchain(**{fact: value for fact, (value, _) in values.items()}, vendor=vendor)
    return ToolchainFinds(toolchain, {fact: how for fact, (value, how) in values.items() if value}, notes, rows)


def _read_place(root: Root, place: Place, notes: list[str]) -> PlaceFinds:
    found = PlaceFinds(place)
    if place.python:
        for folder in place.folders:
            _read_wheels(root, folder, found, notes)
        return found
    for folder in place.folders:
        _read_release(root, folder, found.rocm)
    for folder in place.folders:
        _read_header(root, folder, found.migraphx, found.build)
    if place.packages:
        _read_dpkg(root, found.rocm, found.migraphx, found.build)
    for folder in place.folders:
        _read_libraries(root, folder, found.rocm, found.migraphx, notes)
    _compare(found.migraphx, notes)
    return found


def _narrowed(environ: Mapping[str, str], holding: list[PlaceFinds]) -> list[PlaceFinds]:
    """Leave out the other installations of the system where ROCM_PATH or ROCM_HOME chooses one."""
    chosen = [each for each in holding if each.place.packages and any(environ.get(name) for name in ROCM_VARIABLES)]
    if not chosen:
        return holding
    return [each for each in holding if each in chosen or each.place.named or each.place.python]


def _counting(holding: list[PlaceFinds]) -> PlaceFinds | None:
    """Return what counts for a program of which nothing is known; None where nothing decides."""
    named, active = ([each for each in holding if getattr(each.place, name)] for name in ("named", "active"))
    rows = named or active or holding
    return rows[0] if len({row.version for row in rows}) == 1 else None


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
        if "core" in name:
            rocm.add(found[1], how)
            continue
        migraphx.add(found[1], how)
        build.add("-".join(part for part in found.groups()[1:] if part) or None, how)
        rocm.add(_from_patch(found[2]), how)


def _packages(root: Root) -> Iterator[tuple[str, str]]:
    """Name and version of the relevant installed packages: MIGraphX and the core of ROCm, also with a release suffix.

    Source of the names since ROCm 7.14: AMD, "MIGraphX on Linux", such as amdrocm10-migraphx and amdrocm-core10.1.
    """
    text = root.read(DPKG, DPKG_LIMIT) or ""
    for found in re.finditer(
        r"(?m)^Package: ((?:migraphx|rocm-core|amdrocm[0-9.]*-migraphx|amdrocm-core)(?:-rpath)?[0-9.]*)$", text
    ):
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


def _read_libraries(
    root: Root,
    folder: str,
    rocm: Finds,
    migraphx: Finds,
    notes: list[str],
    inner: tuple[str, ...] = LIBRARY_FOLDERS,
) -> None:
    """Read the versions in the name of the library: libmigraphx.so.2015000.0.70200 is MIGraphX 2.15.0 of ROCm 7.2.0.

    Source: AMDMIGraphX, CMakeLists.txt: MIGRAPHX_SO_VERSION is major * 10^6 + minor * 10^3 + patch.
    """
    for inside in inner:
        names = [found for name in root.names(f"{folder}/{inside}") if (found := LIBRARY.fullmatch(name))]
        numbers = sorted({int(found[1]) for found in names})
        if len(numbers) > 1:
            shown = ", ".join(_from_soname(number) for number in numbers)
            notes.append(
                f"{folder}/{inside} has several MIGraphX libraries ({shown}): select one with {stated('migraphx')}."
            )
        elif numbers:
            path = f"{folder}/{inside}/{max(found[0] for found in names)}"
            migraphx.add(_from_soname(numbers[0]), path)
            rocm.add(next((release for found in names if (release := _from_patch(found[2]))), None), path)


def _from_soname(number: int) -> str:
    return f"{number // 10**6}.{number // 1000 % 1000}.{number % 1000}"


def _read_wheels(root: Root, folder: str, found: PlaceFinds, notes: list[str]) -> None:
    """Read the versions of AMD's wheels, such as migraphx 2.18.0+rocm10.1.0, in a folder of Python packages.

    Source: ROCm/AMDMIGraphX#5235; AMD, "MIGraphX on Linux", installation with pip.
    """
    for name in root.names(folder):
        if wheel := WHEEL.fullmatch(name):
            found.migraphx.add(wheel[1], f"{folder}/{name}")
            found.rocm.add(_release(wheel[2]), f"{folder}/{name}")
        elif sdk := SDK_WHEEL.fullmatch(name):
            found.rocm.add(_release(sdk[1]), f"{folder}/{name}")
    _read_release(root, f"{folder}/_rocm_sdk_core", found.rocm)
    _read_libraries(root, folder, found.rocm, found.migraphx, notes, ("migraphx_libs", "migraphx_libs/lib"))


def _run_driver(root: Root, folders: list[str], run: Run, found: PlaceFinds) -> None:
    for folder in folders:
        path = f"{folder}/bin/migraphx-driver"
        answer = DRIVER.search(run([path, "--version"], TIMEOUT) or "") if root.exists(path) else None
        if answer:
            found.migraphx.add(answer[1], "migraphx-driver --version")
            found.build.add(answer[2] or None, "migraphx-driver --version")
            return


def _compare(migraphx: Finds, notes: list[str]) -> None:
    taken, how = migraphx.first()
    for value, other in migraphx.rows[1:]:
        if value != taken:
            notes.append(
                f"MIGraphX is {taken} according to {how}, but {value} according to {other}. "
                f"If the first is wrong, set the version with {stated('migraphx')}."
            )
            return
