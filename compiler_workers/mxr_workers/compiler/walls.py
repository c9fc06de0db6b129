"""What the walls around a child hold: it tries what a hostile model would, and tells what it could do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .report import ChildReport

PTRACE_SEIZE = 0x4206
"""It does not stop the process, which is free again when this one ends. Source: Linux, include/uapi/linux/ptrace.h."""
STREAM, DATAGRAM, PACKETS = 1, 2, 5
FAMILIES = {
    **{"AF_UNIX": (1, STREAM), "AF_INET": (2, DATAGRAM), "AF_INET6": (10, STREAM), "AF_NETLINK": (16, DATAGRAM)},
    **{"AF_ALG": (38, PACKETS), "AF_VSOCK": (40, STREAM)},
}
"""Families of sockets, with a type that each has. Source: Linux, include/linux/socket.h."""

SETTING = "/proc/sys/kernel/core_pattern"
"""A program of root needs no capability to change it."""

Attempt = tuple[str, str, Callable[[], object]]


def probe(request: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Try to leave, and return `{"open": [{"property","what"}]}`.

    The request: `{"worker": PID, "namespace": TEXT, "protected": [[PATH, DEVICE, INODE]]}`: the namespace is that of
    the PID, and another folder may be at a path in here. Nothing of the host is changed: a file that could be made is
    removed, and a process that could be signalled gets none.
    """
    del report
    found = []
    others = [("worker", int(request["worker"])), ("supervisor", os.getppid())]
    if _alone(request["namespace"]):
        others = []
    protected = [(Path(path), *identity) for path, *identity in request["protected"]]
    for name, what, attempt in _attempts(others, protected):
        with contextlib.suppress(OSError, ValueError):
            attempt()
            found.append({"property": name, "what": what})
    return {"open": found}


def _alone(namespace: str) -> bool:
    """Whether this process sees only processes of a namespace of its own, where no number means one outside."""
    own = Path("/proc/self")
    return str((own / "ns" / "pid").readlink()) != namespace and str(own.readlink()) == str(os.getpid())


def _attempts(others: list[tuple[str, int]], protected: list[tuple[Path, int, int]]) -> Iterator[Attempt]:
    for path, device, inode in protected:
        yield "files", f"read {path}", partial(_read_known, path, (device, inode))
        yield "writes", f"write into {path}", partial(_write, path if path.is_dir() else path.parent)
    for name, pid in others:
        for file in ("environ", "mem", "fd"):
            yield "memory", f"open {file} of the {name}", partial(_read, Path(f"/proc/{pid}/{file}"))
        yield "memory", f"trace the {name}", partial(_trace, pid)
        yield "signals", f"signal the {name}", partial(os.kill, pid, 0)
    for family, (number, kind) in FAMILIES.items():
        yield "network", f"open a socket of {family}", partial(_open_socket, number, kind)
    yield "writes", f"open {SETTING} to write", partial(_open_to_write, Path(SETTING))
    for folder in ("/tmp", "/var/tmp", "/dev/shm", str(Path(__file__).parent)):
        yield "writes", f"write into {folder}", partial(_write, Path(folder))


def _open_socket(family: int, kind: int) -> None:
    socket.socket(family, kind).close()


def _read_known(path: Path, identity: tuple[int, int]) -> None:
    found = path.stat()
    if (found.st_dev, found.st_ino) != identity:
        raise FileNotFoundError(path)
    _read(path)


def _read(path: Path) -> None:
    if path.is_dir():
        next(path.iterdir(), None)
    else:
        with path.open("rb") as file:
            file.read(1)


def _open_to_write(path: Path) -> None:
    path.open("r+b").close()


def _write(folder: Path) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".mxr-probe-", dir=folder)
    os.close(descriptor)
    Path(name).unlink()


def _trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
