"""Detects the GPUs and the toolchain of a host from files and tools, without MIGraphX and without a GPU library.

host        data types: Host, HostTarget, HostToolchain; to record, read back and combine them
root        reads files below a root folder
kfd         nodes of the kernel's KFD topology, and what rocminfo adds
gpus        the GPUs that a program sees, without those that environment variables hide
places      where ROCm and MIGraphX may be
toolchain   versions of ROCm, DTK and MIGraphX
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .host import Hardware, Host, HostTarget, HostToolchain, Installation, combine, describe, read_recorded
from .root import Root, Run

__all__ = [
    "Hardware",
    "Host",
    "HostTarget",
    "HostToolchain",
    "Installation",
    "combine",
    "describe",
    "detect",
    "read_recorded",
    "run_tool",
]


def detect(
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
    run: Run | None = None,
    *,
    whole_node: bool = False,
    toolchain: bool = True,
) -> Host:
    """Return the facts of the host with the file system `root`, for a process with the environment `environ` (or none).

    Never raises because of what it finds: an unreadable fact is unknown, and `notes` explains it if the user can change
    that. `run(words, seconds)` runs tools. By default tools run only for the real root, and only for facts that are not
    in files. `whole_node` includes all GPUs of the node, not only those of this container: for an init container that
    prepares files for another container. If `toolchain` is false, versions are not detected.
    """
    from .gpus import find_gpus

    environ = environ or {}
    seen = Root(root)
    if run is None and root == Path("/"):
        run = run_tool
    if toolchain:
        from .toolchain import find_toolchain

        finds = find_toolchain(seen, environ, run)
        found = Host((), finds.toolchain, finds.found_by, tuple(finds.notes), tuple(finds.installations))
    else:
        from .places import find_vendor

        found = Host(toolchain=HostToolchain(vendor=find_vendor(seen, environ)))
    hygon, found_by = found.toolchain.vendor == "hygon", dict(found.found_by)
    gpus = find_gpus(seen, environ, run, hygon=hygon, whole_node=whole_node)
    found_by |= gpus.found_by()
    if hygon or gpus.targets:
        found_by["vendor"] = "Hygon's DTK is installed" if hygon else "PCI vendor id, no DTK installed"
    return replace(found, targets=tuple(gpus.targets), found_by=found_by, notes=(*gpus.notes, *found.notes))


def run_tool(words: Sequence[str], seconds: float) -> str | None:
    """Return the standard output of a tool; None if it does not exist, fails or takes longer than `seconds`."""
    import subprocess

    try:
        done = subprocess.run(words, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
