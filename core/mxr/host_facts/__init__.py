"""What this machine is: GPUs and toolchain, read from files and tools, without MIGraphX and without a GPU library.

facts       the values: Host, HostTarget, HostToolchain; recorded, read back, combined
root        reading below a root folder, whatever lies there
kfd         the kernel's topology: nodes
features    what its numbers mean: sramecc, xnack, CUs as MIGraphX counts them, the overridden arch
visible     what the environment hides
rocminfo    the tool's output, where the kernel says too little
gpus        all of these together: the GPUs that a program would see
toolchain   ROCm, DTK and MIGraphX versions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .facts import Host, HostTarget, HostToolchain, combine, read_recorded, record
from .root import Root, Run

__all__ = [
    "Host",
    "HostTarget",
    "HostToolchain",
    "combine",
    "detect",
    "read_recorded",
    "record",
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
    """The facts of the host whose file system is below `root`, for a process with `environ` (default: an empty one).

    Never raises for what it finds: what cannot be read is unknown, and a sentence in `notes` where a person can do
    something about it. Tools run through `run(words, seconds)`, by default only for the real root and only where files
    do not tell. `whole_node` counts every GPU of the node instead of those that this container was given: for an init
    container, which prepares files for another one. Without `toolchain` its versions are not looked for.
    """
    from .gpus import find_gpus
    from .toolchain import find_toolchain, find_vendor

    environ = environ or {}
    seen = Root(root)
    if run is None and root == Path("/"):
        run = run_tool
    if toolchain:
        userland, found_by, notes = find_toolchain(seen, environ, run)
    else:
        userland, found_by, notes = HostToolchain(vendor=find_vendor(seen, environ)), {}, []
    hygon = userland.vendor == "hygon"
    gpus = find_gpus(seen, environ, run, hygon=hygon, whole_node=whole_node)
    found_by |= gpus.found_by()
    if hygon or gpus.targets:
        found_by["vendor"] = "Hygon's DTK is installed" if hygon else "PCI vendor id, and no DTK"
    return Host(tuple(gpus.targets), userland, found_by, (*gpus.notes, *notes))


def run_tool(words: Sequence[str], seconds: float) -> str | None:
    """What a tool prints on standard output; None when it is absent, fails or takes longer than `seconds`."""
    import subprocess

    try:
        done = subprocess.run(words, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
