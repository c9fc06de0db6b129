"""`mxr host`: the GPUs and the toolchain of this host."""

from __future__ import annotations

import click

from mxr.artifact.target import userland
from mxr_cli.options import Session, local
from mxr_cli.output import echo, note, print_json


@click.command
@click.option(
    "--host",
    "host_file",
    metavar="FILE",
    help="Combine the toolchain recorded in FILE with the GPUs of this host [env: MXR_HOST].",
)
@local
def host(session: Session) -> None:
    """Show the GPUs, ROCm and MIGraphX of this host, and how each fact was found.

    The command reads files and runs tools. It never imports migraphx and never opens the GPU. To use the facts of a
    serving image elsewhere, record them in the image with `mxr host --json > host.json`, then pass --host host.json.
    """
    found = session.host()
    if session.as_json:
        print_json(found.to_json())
        return
    echo(f"{userland(found.toolchain.vendor):<9} {found.toolchain.rocm or 'not found'}")
    echo(f"MIGraphX  {found.toolchain.migraphx or 'not found'} {found.toolchain.migraphx_build or ''}".rstrip())
    for gpu in found.targets:
        features = "".join(f":{name}{sign}" for name in ("sramecc", "xnack") if (sign := getattr(gpu, name)))
        actual = f", actually {gpu.real_arch}" if gpu.real_arch and gpu.real_arch != gpu.arch else ""
        units = f"{gpu.num_cu or '?'} CUs as counted by MIGraphX"
        echo(f"GPU       {gpu.arch}{features}, {units}, {gpu.name or gpu.vendor}{actual}")
    if not found.targets:
        echo("GPU       none found")
    if found.found_by:
        echo()
        echo("found by")
    for fact, source in found.found_by.items():
        echo(f"  {fact}: {source}")
    for line in found.notes:
        note(f"mxr: {line}")
