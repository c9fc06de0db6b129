"""What a walled child may read and write: the system and its interpreter, and never the files of who starts it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import walls

SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store", "/sys"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/alternatives"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/os-release", "/etc/OpenCL"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys"),
)
"""What every program of a system reads. `/proc/self` is the process that closes the walls, and its threads."""

VENDORS = ("rocm*", "dtk*", "hyhal*", "amdgpu*")
"""Folders of toolchains in /opt."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """Paths that a child may read, write, and use as devices, with all below them. `file_size`: bytes of one file.

    `bubblewrap`: the path of the program that makes its namespaces; without one, Landlock closes the files.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    devices: tuple[str, ...] = DEVICES
    file_size: int = 0
    bubblewrap: str = ""

    def more(
        self, *, read: Iterable[object] = (), write: Iterable[object] = (), devices: Iterable[object] = ()
    ) -> SandboxPolicy:
        """Return a policy that allows these as well."""
        return replace(
            self,
            read=(*self.read, *map(str, read)),
            write=(*self.write, *map(str, write)),
            devices=(*self.devices, *map(str, devices)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return what `walls.close_walls` takes."""
        names = ("read", "write", "devices", "file_size")
        return {name: getattr(self, name) for name in names}


def policy_for(roots: Iterable[str], protected: Iterable[Path], file_size: int) -> SandboxPolicy:
    """Return the policy of an interpreter with these folders. What is `protected` stays closed, though it is in one."""
    opt = [str(path) for pattern in VENDORS for path in sorted(Path("/opt").glob(pattern))]
    hidden = {each.resolve() for each in protected}
    found = (path for root in dict.fromkeys([*roots, *opt]) for path in around(Path(root), hidden))
    return SandboxPolicy((*SYSTEM, *map(str, found)), file_size=file_size)


def around(root: Path, protected: set[Path]) -> Iterator[Path]:
    """Yield a folder, or where protected paths are below it, all else in it; nothing of a protected one."""
    whole = root.resolve()
    if whole in protected or not whole.exists():
        return
    if not any(each.is_relative_to(whole) for each in protected):
        yield root
    elif whole.is_dir():
        for each in sorted(whole.iterdir()):
            yield from around(each, protected)


def close_reader(*paths: Path) -> None:
    """Close walls around this process, which reads these files of strangers: it writes nothing and needs no network.

    It can still import modules of its packages. Nothing is closed that this kernel or a container refuses to close.
    """
    here = Path.cwd()
    own = [Path(walls.__file__).parents[1], *(each for each in map(Path, filter(None, sys.path)) if each != here)]
    policy = SandboxPolicy().more(read=(*SYSTEM, sys.prefix, sys.base_prefix, *own, *paths))
    with suppress(OSError):
        walls.close_walls(policy.to_json())
