"""`mxr ls`: the artifacts in the registry."""

from __future__ import annotations

from typing import Any

import click

from mxr.artifact.target import FEATURES, GfxArch
from mxr.protocol.artifacts import Artifact
from mxr_cli.artifact_rows import artifact_cells, artifact_row
from mxr_cli.model_labels import model_cells, model_filter
from mxr_cli.options import FOLLOW_LINKS, Session, common
from mxr_cli.output import note, print_json, print_table


@click.command
@click.option(
    "--model",
    metavar="MODEL",
    help="Only artifacts of this model: an ONNX file, its identity (sha256:...), or how its name begins.",
)
@click.option("--digest", metavar="DIGEST", help="Only artifacts with this key digest.")
@click.option("--kind", metavar="KIND", help="Only artifacts for this kind of target: gpu or ref.")
@click.option("--vendor", metavar="NAME", help="Only artifacts for GPUs of this vendor: amd or hygon.")
@click.option("--arch", metavar="ARCH", help="Only artifacts for this architecture.")
@click.option("--migraphx", metavar="X.Y", help="Only artifacts of this MIGraphX version.")
@click.option("--rocm", metavar="X.Y", help="Only artifacts of this ROCm version.")
@click.option("--precision", metavar="P", help="Only artifacts with this precision, as in the key.")
@click.option("--input", "input_", metavar="NAME", help="Only artifacts with an input of this name.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="List at most N artifacts."
)
@FOLLOW_LINKS
@common
def ls(
    session: Session, model: str | None, input_: str | None, limit: int, *, follow_links: bool, **filters: str | None
) -> None:
    """List the artifacts in the registry, newest first. A * marks a promoted artifact."""
    client = session.client()
    if model is not None:
        filters |= model_filter(session, model, follow_links=follow_links)
    # The registry filters by base architecture only; features such as xnack are filtered here.
    arch = GfxArch.parse(filters["arch"]) if filters["arch"] else None
    filters["arch"] = arch.base if arch else None
    found: list[Artifact] = []
    after: Any = None
    while len(found) < limit:
        page = client.artifacts(input=input_, limit=min(limit - len(found), 1000), after=after, **filters)
        found += [each for each in page.items if arch is None or _serves(each, arch)]
        after = page.next
        if after is None:
            break
    if session.as_json:
        print_json({"artifacts": [artifact_row(each) for each in found]})
        return
    header = ("ID", "MODEL", "TARGET", "TOOLCHAIN", "INPUTS", "PRECISION", "ORIGIN", "SIZE", "PUBLISHED")
    models = model_cells([(each.model_name, each.key.model) for each in found])
    rows = [artifact_cells(each) for each in found]
    print_table([(id, name, *cells) for (id, *cells), name in zip(rows, models, strict=True)], header)
    if not found and "name" in filters:
        note(f"mxr: no artifact is of a model whose name begins with {model}, and there is no such file")
    if after is not None:
        note(f"mxr: there are more artifacts; use --limit {limit * 10} to list them")


def _serves(artifact: Artifact, arch: GfxArch) -> bool:
    """Whether an artifact serves the features that `arch` states."""
    return all(
        getattr(arch, name) is None or getattr(artifact.attributes, name) in ("any", getattr(arch, name))
        for name in FEATURES
    )
