"""`mxr ls`, `show`, `promote`, `rm`: what the registry has."""

from __future__ import annotations

from typing import Any

import click

from mxr.artifact.key import show as words
from mxr.artifact.target import FEATURES, GfxArch
from mxr.errors import Usage
from mxr.protocol.artifacts import Artifact
from mxr.protocol.artifacts import document as wire_document

from .options import Session, common
from .output import day, document, key_cells, note, say, size, table


@click.command(short_help="List what the registry has.")
@click.option("--model", metavar="MODEL", help="Of this model: an ONNX file, or xxh3:....")
@click.option("--digest", metavar="DIGEST", help="With this key digest.")
@click.option("--kind", metavar="KIND", help="gpu or ref.")
@click.option("--vendor", metavar="NAME", help="amd or hygon.")
@click.option("--arch", metavar="ARCH", help="For this base arch.")
@click.option("--migraphx", metavar="X.Y", help="Of this MIGraphX.")
@click.option("--rocm", metavar="X.Y", help="Of this ROCm.")
@click.option("--precision", metavar="P", help="With this precision, as in the key.")
@click.option("--input", "input_", metavar="NAME", help="With an input of this name.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most this many.")
@common
def ls(session: Session, model: str | None, input_: str | None, limit: int, **filters: str | None) -> None:
    """List what the registry has, the newest first."""
    client = session.client()
    if model is not None and not model.startswith("xxh3:"):
        from mxr.request.model import find

        model = find(model, session.cache(), session.client).model
    said = GfxArch.parse(filters["arch"]) if filters["arch"] else None
    filters["arch"] = said.base if said else None
    found: list[Artifact] = []
    after = None
    while len(found) < limit:
        page = client.artifacts(model=model, input=input_, limit=min(limit - len(found), 1000), after=after, **filters)
        found += [each for each in page.artifacts if said is None or _serves(each, said)]
        after = page.next
        if after is None:
            break
    if session.as_json:
        document({"artifacts": [_row(each) for each in found]})
        return
    table([_cells(each) for each in found], ("ID", "TARGET", "TOOLCHAIN", "INPUTS", "PRECISION", "SIZE", "PUBLISHED"))
    if after is not None:
        note(f"mxr: there are more; --limit {limit * 10} shows them")


def _serves(artifact: Artifact, said: GfxArch) -> bool:
    """Whether an artifact is for the features that are said."""
    return all(
        getattr(said, name) is None or getattr(artifact.qualities, name) in ("any", getattr(said, name))
        for name in FEATURES
    )


def _row(artifact: Artifact) -> dict[str, Any]:
    row = wire_document(artifact)
    del row["manifest"], row["description"]
    return row


def _cells(artifact: Artifact) -> tuple[str, ...]:
    key, has = artifact.key, artifact.qualities
    features = "".join(f":{name}{sign}" for name in ("sramecc", "xnack") if (sign := getattr(has, name)) != "any")
    where = f"{key.arch}{features}" if key.kind == "gpu" else key.kind
    return (
        artifact.id[:12] + ("*" if artifact.promoted_at else ""),
        f"{where}/{has.num_cu}" if has.num_cu else where,
        *key_cells(key)[1:],
        size(artifact.size),
        day(artifact.published_at),
    )


@click.command(short_help="Show one artifact.")
@click.argument("identity", metavar="ID")
@common
def show(session: Session, identity: str) -> None:
    """Show one artifact: its key, its qualities, where it comes from, and which of that rests on a word alone."""
    artifact = session.client().artifact(identity)
    if session.as_json:
        document(wire_document(artifact))
        return
    say(f"id         {artifact.id}")
    say(f"digest     {artifact.digest}")
    say(f"sha256     {artifact.sha256}  ({size(artifact.size)})")
    say(f"published  {day(artifact.published_at)} UTC")
    say(f"promoted   {day(artifact.promoted_at)} UTC" if artifact.promoted_at else "promoted   no")
    for title, rows in (("key", artifact.key.to_json()), ("qualities", artifact.qualities.to_json())):
        say(f"\n{title}")
        for name, value in rows.items():
            on_word = "  (stated, the file does not tell)" if name in artifact.stated and value is not None else ""
            say(f"  {name:<15} {words(value)}{on_word}")
    say("\nprovenance")
    for name, value in artifact.provenance.items():
        say(f"  {name:<15} {words(value)}")


@click.command(short_help="Make an artifact the first choice for its key.")
@click.argument("identity", metavar="ID")
@common
def promote(session: Session, identity: str) -> None:
    """Make an artifact the first choice for its key: from now on the fleet gets it."""
    artifact = session.client().promote(identity)
    document(_row(artifact)) if session.as_json else say(artifact.id)


@click.command(short_help="Take an artifact out of the registry.")
@click.argument("identity", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def rm(session: Session, identity: str, yes: bool) -> None:
    """Take an artifact out of the registry. Its bytes go when nothing else needs them."""
    import sys

    client = session.client()
    artifact = client.artifact(identity)
    if not yes:
        if not sys.stdin.isatty():
            raise Usage("rm asks before it removes, and here is nobody to ask.", hint="Add --yes.")
        click.confirm(f"Remove {artifact.id[:12]} ({' '.join(_cells(artifact)[1:3])})?", abort=True, err=True)
    client.remove(artifact.id)
    document({"id": artifact.id, "removed": True}) if session.as_json else say(artifact.id)
