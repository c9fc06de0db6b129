"""`mxr host`: the GPUs and the toolchain of this host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import click

from mxr.artifact.target import FEATURES, GfxArch, userland
from mxr.host_facts.host import HostTarget
from mxr_cli.help import command
from mxr_cli.options import Session, local
from mxr_cli.output import echo, note, print_json

PREFIX = "mxr.dev/"
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
"""Source: kubernetes.io, "Labels and Selectors", syntax and character set."""
SIGNS = {"+": "on", "-": "off"}


def node_labels(targets: Iterable[HostTarget]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the labels of a node with these GPUs, and the labels that are left out because its GPUs differ in them.

    A pod can get any GPU of its node. So a label says what holds for each of them: `gfx`, `num-cu` (as MIGraphX counts
    them), `sramecc` and `xnack` (`on` or `off`), `vendor`, `partition`. `gpus` is their number.
    """
    rows = [_facts(target) for target in targets]
    if not rows:
        return {}, ()
    names = sorted(set().union(*rows))
    same = [name for name in names if len({row.get(name) for row in rows}) == 1]
    labels = {PREFIX + name: rows[0][name] for name in same}
    return labels | {PREFIX + "gpus": str(len(rows))}, tuple(PREFIX + name for name in names if name not in same)


def _facts(gpu: HostTarget) -> Mapping[str, str]:
    found = {
        "gfx": gpu.arch,
        "num-cu": str(gpu.num_cu or ""),
        **{name: SIGNS.get(getattr(gpu, name) or "", "") for name in FEATURES},
        "vendor": gpu.vendor,
        "partition": gpu.partition or "",
    }
    return {name: value for name, value in found.items() if LABEL_VALUE.fullmatch(value)}


@command()
@click.option(
    "--host",
    "host_file",
    metavar="FILE",
    help="Combine the toolchain recorded in FILE with the GPUs of this host [env: MXR_HOST].",
)
@click.option(
    "--node-labels",
    is_flag=True,
    help="Print the labels of a Kubernetes node for all GPUs of this host, as `kubectl label` and Node Feature "
    "Discovery take them.",
)
@local
def host(session: Session, node_labels: bool) -> None:
    """Show the GPUs, ROCm and MIGraphX of this host, and how each fact was found.

    The command reads files and runs tools. It never imports migraphx and never opens the GPU. To use the facts of a
    serving image elsewhere, record them in the image with `mxr host --json > host.json`, then pass --host host.json.

    \b
      kubectl label node NODE $(mxr host --node-labels)
    """
    if node_labels:
        print_labels(replace(session, whole_node=True))
        return
    found = session.host()
    if session.as_json:
        print_json(found.to_json())
        return
    echo(f"{userland(found.toolchain.vendor):<9} {found.toolchain.rocm or 'not found'}")
    version = found.toolchain.migraphx or ("which of several is not known" if found.installations else "not found")
    echo(f"MIGraphX  {version} {found.toolchain.migraphx_build or ''}".rstrip())
    if len({installation.toolchain.migraphx for installation in found.installations}) > 1:
        for installation in found.installations:
            echo(f"  {installation}")
    for gpu in found.targets:
        actual = f", actually {gpu.real_arch}" if gpu.real_arch and gpu.real_arch != gpu.arch else ""
        units = f"{gpu.num_cu or '?'} CUs as counted by MIGraphX"
        echo(f"GPU       {GfxArch.of(gpu.arch, gpu)}, {units}, {gpu.name or gpu.vendor}{actual}")
    if not found.targets:
        echo("GPU       none found")
    if found.found_by:
        echo()
        echo("found by")
    for fact, source in found.found_by.items():
        echo(f"  {fact}: {source}")
    for line in found.notes:
        note(f"mxr: {line}")


def print_labels(session: Session) -> None:
    """Print the labels of this node, one on each line."""
    labels, differing = node_labels(session.host().targets)
    if session.as_json:
        print_json(labels)
    else:
        for name, value in labels.items():
            echo(f"{name}={value}")
    if not labels:
        note("mxr: no GPU found: there are no labels.")
    if differing:
        note(f"mxr: the GPUs of this host differ in {', '.join(differing)}, which a label of the node cannot say.")
