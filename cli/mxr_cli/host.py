"""`mxr host` and `mxr consumers`: what this machine is, and who loads programs."""

from __future__ import annotations

import click

from mxr.consumers import CONSUMERS

from .options import Session, common
from .output import document, note, say, table


@click.command(short_help="Show what this machine is, and how that was found.")
@click.option(
    "--host", "host_file", metavar="FILE", help="Facts recorded before: with the hardware of this node [MXR_HOST]."
)
@common
def host(session: Session) -> None:
    """Show what this machine is as far as programs care, and how each fact was found.

    Reads files and asks tools; never imports migraphx and never opens the GPU. Record the facts inside a serving image
    with `mxr host --json > host.json`, and give them elsewhere with --host host.json.
    """
    found = session.host()
    if session.as_json:
        document(found.to_json())
        return
    say(f"ROCm      {found.toolchain.rocm or 'not found'}")
    say(f"MIGraphX  {found.toolchain.migraphx or 'not found'} {found.toolchain.migraphx_build or ''}".rstrip())
    for gpu in found.targets:
        features = "".join(f":{name}{sign}" for name in ("sramecc", "xnack") if (sign := getattr(gpu, name)))
        real = f", really {gpu.real_arch}" if gpu.real_arch and gpu.real_arch != gpu.arch else ""
        counted = f"{gpu.num_cu or '?'} CUs as MIGraphX counts"
        say(f"GPU       {gpu.arch}{features}, {counted}, {gpu.name or gpu.vendor}{real}")
    if not found.targets:
        say("GPU       none found")
    if found.found_by:
        say("\nfound by")
    for fact, how in found.found_by.items():
        say(f"  {fact}: {how}")
    for line in found.notes:
        note(f"mxr: {line}")


@click.command(short_help="List the programs that load .mxr files, with their flags.")
@common
def consumers(session: Session) -> None:
    """List the programs that load .mxr files, with the compile flags that each needs (`--for NAME`), what `-o FOLDER/`
    writes for it, and its page in the documentation.
    """
    if session.as_json:
        rows = [
            {
                "name": c.name,
                "summary": c.summary,
                "offload_copy": c.offload_copy,
                "fast_math": c.fast_math,
                "folder": bool(c.tree),
                "layout": c.tree or None,
                "page": c.page,
                "source": c.source,
            }
            for c in CONSUMERS.values()
        ]
        document({"consumers": rows})
        return
    flags = {True: "on", False: "off"}
    table(
        [(c.name, flags[c.offload_copy], flags[c.fast_math], c.summary, c.page) for c in CONSUMERS.values()],
        ("NAME", "OFFLOAD_COPY", "FAST_MATH", "WHAT IT IS", "PAGE"),
    )
    say()
    table([(c.name, c.tree or "none yet: give -o FILE") for c in CONSUMERS.values()], ("NAME", "IN A FOLDER"))
