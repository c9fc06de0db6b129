"""Close walls around this process and all that it starts: what it may read, write and do. Linux; needs no privilege.

Between fork and exec, a supervisor loads this file by its path, and in the namespaces of bubblewrap it becomes the
child: it uses the standard library only, and little of it, for which every child waits. Each layer that the kernel has
is closed; the probe of a worker (`compiler/walls.py`) shows what holds.

- Landlock (Linux 5.13 and later): files, TCP ports (ABI 4), signals and abstract sockets (ABI 6). Tracing, and reading
  the memory and environment of a process outside, are refused by it at every ABI.
- seccomp: sockets of every family, queues and memory of System V, tracing, namespaces, mounts, keys, io_uring, metadata
  of files by path; and what Landlock lacks before ABI 3 (truncate) and 6 (signals).
- Capabilities are dropped and cannot come back: a program of root is then one of any user.

Sources: Linux, include/uapi/linux/landlock.h, seccomp.h, filter.h, audit.h, capability.h and prctl.h; the tables of
system calls in arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 24, 38, 47
CLEAR_ALL, FILTER_MODE, LAST_CAPABILITY = 4, 2, 63
CAPABILITY_VERSION = 0x20080522

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (
    1 << bit for bit in range(4, 13)
)
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The rights of files that an ABI of Landlock knows; those of 5 and later are the same."""
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READS = EXECUTE | READ_FILE | READ_DIR
WRITES = READS | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER | TRUNCATE
"""In its own folder, a child makes no sockets, no pipes and no devices."""
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV
TCP, SCOPES = 3, 3
"""Binding and connecting; abstract sockets and signals."""

EPERM, ENOSYS = 1, 38
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NEW_NAMESPACES = 0x7E020080
"""CLONE_NEW* of clone."""
X32 = 0x40000000

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
DENIED = {
    # socket ptrace process_vm_* pidfd_getfd kcmp; mount umount2 pivot_root chroot unshare setns, the new calls of
    # mounting; bpf perf_event_open keys userfaultfd io_uring_setup open_by_handle_at modules; chmod chown utime xattr
    # by path; shmget semget msgget mq_open. From 424 on, numbers are those of every architecture.
    "x86_64": (
        *(41, 101, 310, 311, 438, 312, 165, 166, 155, 161, 272, 308, 428, 429, 430, 432, 442, 321, 298, 248, 249, 250),
        *(323, 425, 304, 175, 313, 176, 90, 268, 452, 92, 94, 260, 132, 235, 261, 280, 188, 189, 197, 198),
        *(29, 64, 68, 240, 463, 466, 467, 469),
    ),
    "aarch64": (
        *(198, 117, 270, 271, 438, 272, 40, 39, 41, 51, 97, 268, 428, 429, 430, 432, 442, 280, 241, 217, 218, 219),
        *(282, 425, 265, 105, 273, 106, 53, 452, 54, 88, 5, 6, 14, 15, 194, 190, 186, 180),
        *(463, 466, 467, 469),
    ),
}
CLONE, CLONE3, FCNTL, PRLIMIT = (
    {"x86_64": number, "aarch64": other} for number, other in ((56, 220), (435, 435), (72, 25), (302, 261))
)
TRUNCATES = {"x86_64": (76,), "aarch64": (45,)}
SIGNALS = {"x86_64": (62, 234), "aarch64": (129, 131)}
"""kill, tgkill: a process may send them to itself."""
OTHER_SIGNALS = {"x86_64": (200, 424, 129, 297), "aarch64": (130, 424, 138, 240)}
SET_OWNERS = (8, 15)
"""The commands of fcntl that have the kernel signal a process."""

libc = ctypes.CDLL(None, use_errno=True)


def close_walls(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Close what this kernel has. Returns `{"landlock": ABI, "seccomp": BOOL}`, with 0 and false for what it lacks.

    `policy`: `{"read": [PATH], "write": [PATH], "devices": [PATH], "file_size": BYTES}`. Raises `OSError` where a layer
    that the kernel has cannot be closed.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if policy.get("file_size"):
        limits = [policy["file_size"], *resource.getrlimit(resource.RLIMIT_FSIZE)]
        most = min(each for each in limits if each != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    drop_capabilities()
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    abi = landlock_abi()
    if abi:
        _restrict_files(abi, policy)
    machine = os.uname().machine
    if machine in AUDIT:
        _filter_calls(machine, abi)
    return {"landlock": abi, "seccomp": machine in AUDIT}


def landlock_abi() -> int:
    """Return the ABI of Landlock that this kernel has; 0 for none."""
    return max(0, int(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def hide_process() -> None:
    """Let no other process of this user read the memory and environment of this one, or trace it."""
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def drop_capabilities() -> None:
    """Drop all capabilities for good."""
    for number in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, CLEAR_ALL, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION, 0))
    held = ctypes.create_string_buffer(24)
    _call("capget", header, held)
    # Without any, a service manager may refuse the call itself.
    if any(held.raw):
        _call("capset", header, bytes(24))


def _restrict_files(abi: int, policy: Mapping[str, Any]) -> None:
    handled = HANDLED[min(abi, 5)]
    attributes = struct.pack("=QQQ", handled, TCP, SCOPES)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    rules = _checked(libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock")
    try:
        for name, rights in (("read", READS), ("devices", DEVICE), ("write", WRITES)):
            for path in policy.get(name, ()):
                _allow(rules, path, rights & handled)
        _checked(libc.syscall(RESTRICT_SELF, rules, 0), "landlock")
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    """Allow these rights on a path and all below it; one that is not there needs no rule."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= OF_FILES
        attributes = struct.pack("=Qi", rights, descriptor)
        _checked(libc.syscall(ADD_RULE, rules, 1, attributes, 0), f"landlock: {path}")
    finally:
        os.close(descriptor)


def _filter_calls(machine: str, abi: int) -> None:
    own = os.getpid()
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, AUDIT[machine]), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    if machine == "x86_64":
        program += [(AT_LEAST, 0, 1, X32), _fail(ENOSYS)]
    for number in DENIED[machine] + (TRUNCATES[machine] if abi < 3 else ()):
        program += [(EQUAL, 0, 1, number), _fail(EPERM)]
    # Its flags are in memory, which no filter can look at; libraries fall back to clone.
    program += [(EQUAL, 0, 1, CLONE3[machine]), _fail(ENOSYS)]
    program += _with_argument(CLONE[machine], 0, [(ANY_BIT, 0, 1, NEW_NAMESPACES), _fail(EPERM), (RETURN, 0, 0, ALLOW)])
    program += _with_argument(PRLIMIT[machine], 0, _only((0, own)))
    if abi < 6:
        for number in OTHER_SIGNALS[machine]:
            program += [(EQUAL, 0, 1, number), _fail(EPERM)]
        for number in SIGNALS[machine]:
            program += _with_argument(number, 0, _only((own,)))
        refused = [row for command in SET_OWNERS for row in ((EQUAL, 0, 1, command), _fail(EPERM))]
        program += _with_argument(FCNTL[machine], 1, [*refused, (RETURN, 0, 0, ALLOW)])
    program.append((RETURN, 0, 0, ALLOW))
    rows = b"".join(struct.pack("=HBBI", *row) for row in program)
    held = ctypes.create_string_buffer(rows)
    pointer = struct.pack("@HP", len(program), ctypes.addressof(held))
    _call("prctl", PR_SET_SECCOMP, FILTER_MODE, pointer, 0, 0)


Row = tuple[int, int, int, int]


def _fail(number: int) -> Row:
    return (RETURN, 0, 0, ERRNO | number)


def _only(values: Iterable[int]) -> list[Row]:
    """Allow a call for these values of the argument, and refuse it for others."""
    return [row for value in values for row in ((EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW))] + [_fail(EPERM)]


def _with_argument(number: int, index: int, rows: Sequence[Row]) -> list[Row]:
    """Look at the low half of an argument of a call. `rows` end the filter."""
    return [(EQUAL, 0, 1 + len(rows), number), (LOAD, 0, 0, 16 + 8 * index), *rows]


def become(words: list[str]) -> None:
    """Close walls and become a command. `words`: `FILE_SIZE [read|write|devices PATH]... -- COMMAND [WORD]...`."""
    end = words.index("--")
    policy: dict[str, Any] = {"file_size": int(words[0])}
    for name, path in zip(words[1:end:2], words[2:end:2], strict=True):
        policy.setdefault(name, []).append(path)
    close_walls(policy)
    os.execv(words[end + 1], words[end + 1 :])


def _call(name: str, *arguments: Any) -> None:
    _checked(getattr(libc, name)(*arguments), name)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
