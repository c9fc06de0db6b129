"""Where ROCm and MIGraphX may be on a host: each place is a row, with the source of the fact.

A place is searched for headers, libraries and packages by `toolchain`. To add one, add a row to `PLACES`, or to
`INSIDE_ROCM` for a folder inside an installation of ROCm, and a case to tests/core/host_facts/test_places.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import NamedTuple

from .root import Root

MIGRAPHX_PATH = "MIGRAPHX_PATH"
"""Names the folder of MIGraphX. Source: AMD, "MIGraphX on Linux", installation of 2.18 for ROCm 10.1."""

ROCM_VARIABLES = ("ROCM_PATH", "ROCM_HOME")


class Place(NamedTuple):
    """One place: its name for people, its folders, most likely first, and what names it.

    `named`: MIGRAPHX_PATH names it. `python`: its folders are the `site-packages` of one Python environment.
    `active`: that environment is activated, or is the one that runs mxr. `packages`: the packages of dpkg belong to it.
    """

    name: str
    folders: tuple[str, ...]
    named: bool = False
    python: bool = False
    active: bool = False
    packages: bool = False


INSIDE_ROCM = ("core", "core-*", "extras", "extras-*")
"""Folders inside /opt/rocm since ROCm 7.14; the plain names are links to the version in use.

Source: AMD, "MIGraphX on Linux" for ROCm 10.1; ROCm/TheRock, docs/rfcs, the folder of extras.
"""

PLACES: tuple[tuple[str, str], ...] = (
    # Source: Fedora's packages rocm-* and migraphx; darktable-org/darktable#20926.
    ("Fedora's ROCm", "/usr/lib64/rocm"),
    ("the distribution", "/usr"),
    # The default prefix of CMake and of rbuild. Source: AMDMIGraphX, README.md, "Building from source".
    ("a build from source", "/usr/local"),
    # Source: Nix, "Profiles"; NixOS/nixpkgs#498371.
    ("a Nix profile", "/run/current-system/sw"),
    ("a Nix profile", "/nix/var/nix/profiles/default"),
    ("the Nix store", "/nix/store/*-migraphx-[0-9]*"),
)
"""Name and folder of other places. A star or a bracket in the last part is a pattern."""


def rocm_folders(root: Root, environ: Mapping[str, str], notes: list[str]) -> list[str]:
    """Return the folders where ROCm or DTK may be, most likely first; only those in ROCM_PATH and ROCM_HOME if they
    exist.
    """
    named = [environ[name].rstrip("/") for name in ROCM_VARIABLES if environ.get(name, "").startswith("/")]
    existing = [folder for folder in dict.fromkeys(named) if folder and root.exists(folder)]
    if existing:
        return [each for folder in existing for each in _with_inner(root, folder)]
    if root.exists("/opt/dtk"):
        return ["/opt/dtk"]
    versions = [name for name in root.names("/opt") if re.fullmatch(r"rocm-[0-9][0-9a-z.]*", name)]
    if root.exists("/opt/rocm"):
        return _with_inner(root, "/opt/rocm")
    if len(versions) > 1:
        notes.append(f"Several ROCm versions are installed ({', '.join(versions)}): select one with ROCM_PATH.")
    return _with_inner(root, f"/opt/{versions[0]}") if len(versions) == 1 else []


def find_vendor(root: Root, environ: Mapping[str, str]) -> str:
    """Return the vendor of the toolchain: hygon if DTK is in use, otherwise amd."""
    return "hygon" if is_hygon(root, rocm_folders(root, environ, [])) else "amd"


def is_hygon(root: Root, folders: list[str]) -> bool:
    """Return whether these are the folders of Hygon's DTK, by their names or what they link to."""
    names = [(root.link(folder) or folder).rpartition("/")[2] for folder in folders]
    return any(re.fullmatch(r"dtk(-.*)?", name) for name in names) or "/opt/dtk" in folders


def _with_inner(root: Root, folder: str) -> list[str]:
    """Return a folder of ROCm and those inside it; beside `core-10.1`, the extras of that major release."""
    top, _, name = folder.rpartition("/")
    core = re.fullmatch(r"core(?:-([0-9]+).*)?", name)
    if core:
        beside = [f"{top}/extras-{core[1]}"] if core[1] else []
        return [folder, *(each for each in (*beside, f"{top}/extras") if root.exists(each))]
    return [folder, *_inner(root, folder)]


def _inner(root: Root, folder: str) -> Iterator[str]:
    """The folders inside ROCm. Without a link that chooses, a version counts only if it is the only one."""
    names = root.names(folder)
    for plain, pattern in zip(INSIDE_ROCM[::2], INSIDE_ROCM[1::2], strict=True):
        found = [plain] if plain in names else [name for name in names if fnmatch(name, pattern)]
        if len(found) == 1:
            yield f"{folder}/{found[0]}"


def other_places(root: Root, environ: Mapping[str, str], rocm: list[str]) -> list[Place]:
    """Return all other places that exist, the named one first. `rocm`: the folders that are searched in any case."""
    places = []
    if environ.get(MIGRAPHX_PATH, "").startswith("/"):
        places.append(Place(MIGRAPHX_PATH, (environ[MIGRAPHX_PATH].rstrip("/"),), named=True))
    places += _environments(root, environ)
    # Several extras without a link that chooses are an installation each.
    places += [
        Place(f"{folder}/{name}", (f"{folder}/{name}",))
        for folder in rocm
        for name in root.names(folder)
        if fnmatch(name, "extras-*") and "extras" not in root.names(folder) and f"{folder}/{name}" not in rocm
    ]
    if "CONDA_PREFIX" in environ:
        places.append(Place("the conda environment", (environ["CONDA_PREFIX"].rstrip("/"),)))
    if "HOME" in environ:
        places.append(Place("a Nix profile", (f"{environ['HOME'].rstrip('/')}/.nix-profile",)))
    places += [Place(name, (folder,)) for name, pattern in PLACES for folder in _expanded(root, pattern)]
    # What is started by its name is an installation, wherever it lies.
    for path in environ.get("PATH", "").split(":"):
        if path.startswith("/") and path.endswith("/bin") and root.exists(f"{path}/migraphx-driver"):
            places.append(Place("PATH", (path.removesuffix("/bin") or "/",)))
    return [place for place in places if place.named or not set(place.folders) <= set(rocm)]


def _environments(root: Root, environ: Mapping[str, str]) -> list[Place]:
    """The Python environments: the active one, that of conda, that which runs mxr, and those of the system."""
    active = [environ[name].rstrip("/") for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    places = []
    for prefix in dict.fromkeys([*active, sys.prefix, "/usr/local", "/usr"]):
        folders = [
            f"{prefix}/lib/{name}/{inside}"
            for name in root.names(f"{prefix}/lib")
            if re.fullmatch(r"python3(\.[0-9]+)?", name)
            for inside in ("site-packages", "dist-packages")
            if root.exists(f"{prefix}/lib/{name}/{inside}")
        ]
        if folders:
            # Debian's Python has its own packages in /usr, and what pip installs in /usr/local.
            mine = prefix in active or prefix == sys.prefix or (prefix, sys.prefix) == ("/usr/local", "/usr")
            places.append(Place(f"the Python environment {prefix}", tuple(folders), python=True, active=mine))
    return places


def _expanded(root: Root, pattern: str) -> list[str]:
    folder, _, last = pattern.rpartition("/")
    if not set("*[") & set(last):
        return [pattern] if root.exists(pattern) else []
    return [f"{folder}/{name}" for name in root.names(folder) if fnmatch(name, last)]
