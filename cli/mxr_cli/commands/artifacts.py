"""`mxr ls`, `show`, `promote` and `rm`: the artifacts in the registry."""

from __future__ import annotations

import sys
from typing import Any

import click

from mxr.artifact import matching
from mxr.artifact.compile_support import program_warnings
from mxr.artifact.key import key_words
from mxr.artifact.key import value_text as format_value
from mxr.artifact.records import INTACT
from mxr.artifact.target import FEATURES, GfxArch
from mxr.errors import UsageError
from mxr.protocol.artifacts import Artifact, ListedArtifact, message_document
from mxr_cli.help import ARTIFACTS, MODELS, command, completes
from mxr_cli.options import FOLLOW_LINKS, Session, common
from mxr_cli.output import confirm, echo, format_size, format_time, note, print_json, print_table
from mxr_cli.rows import model_cells, model_filter


def artifact_row(artifact: ListedArtifact) -> dict[str, Any]:
    """The JSON object of an artifact in a list: without its manifest and description, which can be large."""
    return {
        name: value for name, value in message_document(artifact).items() if name not in ("manifest", "description")
    }


def artifact_cells(artifact: ListedArtifact) -> tuple[str, ...]:
    """The table cells of an artifact: id, target, toolchain, inputs, precision, origin, size, time of publication."""
    key, attributes = artifact.key, artifact.attributes
    target = str(GfxArch.of(key.arch, attributes)) if key.kind == "gpu" else key.kind
    return (
        artifact.id[:12] + ("*" if artifact.promoted_at else ""),
        f"{target}/{attributes.num_cu}" if attributes.num_cu else target,
        *key_words(key)[1:],
        ", ".join([artifact.origin, *_states(artifact)]),
        format_size(artifact.size),
        format_time(artifact.published_at),
    )


def _states(artifact: ListedArtifact) -> list[str]:
    """What keeps an artifact from requests: its bytes are lost, or it was recalled."""
    recalled = [] if artifact.recall is None else [artifact.recall.word]
    return [*([] if artifact.state == INTACT else [artifact.state]), *recalled]


@command()
@click.option(
    "--model",
    shell_complete=completes(MODELS),
    metavar="MODEL",
    help="Only artifacts of this model: an ONNX file, its identity (sha256:...), or how its name begins.",
)
@click.option("--digest", metavar="DIGEST", help="Only artifacts with this key digest.")
@click.option("--kind", metavar="KIND", help="Only artifacts for this kind of target: gpu or ref.")
@click.option("--vendor", metavar="NAME", help="Only artifacts for GPUs of this vendor: amd or hygon.")
@click.option("--arch", metavar="ARCH", shell_complete=completes("arch"), help="Only artifacts for this architecture.")
@click.option("--migraphx", metavar="X.Y", help="Only artifacts of this MIGraphX version.")
@click.option("--rocm", metavar="X.Y", help="Only artifacts of this ROCm version.")
@click.option("--precision", metavar="P", help="Only artifacts with this precision, as in the key.")
@click.option("--state", metavar="STATE", help="Only artifacts in this state: intact, lost, yanked or quarantined.")
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
    found: list[ListedArtifact] = []
    after: Any = None
    while len(found) < limit:
        page = client.artifacts(input=input_, limit=min(limit - len(found), 1000), after=after, **filters)
        found += [item for item in page.items if arch is None or _serves(item, arch)]
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


def _show_statements(session: Session, identity: str) -> None:
    """What was signed of an artifact. Nothing is verified here, and it says so."""
    client = session.client()
    found = client.statements(identity)
    if session.as_json:
        print_json(message_document(found))
        return
    states = {key.id: f"{key.role}, {key.state}" for key in client.keys().items}
    echo(f"id         {found.id}")
    echo(f"statements {len(found.items)}  (shown, not verified)")
    for each in found.items:
        document = each.envelope.unverified()
        echo()
        brought = f"  (imported{', sigstore' if each.bundle is not None else ''})" if each.imported else ""
        echo(f"{each.kind}  {format_time(each.created_at)} UTC{brought}")
        for signature in each.envelope.signatures:
            echo(f"  {'signed by':<15} {signature.keyid or '-'}  ({states.get(signature.keyid, 'an unknown key')})")
        for row in document.get("subject") or ():
            echo(f"  {'file':<15} {format_value(row)}")
        for name, value in (document.get("predicate") or {}).items():
            echo(f"  {name:<15} {format_value(value)}")


def _show_recall(artifact: ListedArtifact) -> None:
    if recall := artifact.recall:
        said = f"{recall.word} {format_time(recall.recalled_at)} UTC by {recall.recalled_by}"
        echo(f"recall     {said}: {recall.reason}")


def _answers(artifact: ListedArtifact) -> str:
    """Whether an artifact answers requests, and why."""
    if artifact.recall is not None:
        return f"no: it was {artifact.recall.word}"
    if artifact.state != INTACT:
        return f"no: it is {artifact.state}; push it again, or have it compiled again"
    yes = "yes" if artifact.answers_requests else "no"
    return f"{yes}: the namespace serves {matching.describe_rule(artifact.serve)}"


def _serves(artifact: ListedArtifact, arch: GfxArch) -> bool:
    """Whether an artifact serves the features that `arch` states."""
    return all(
        getattr(arch, name) is None or getattr(artifact.attributes, name) in ("any", getattr(arch, name))
        for name in FEATURES
    )


@command()
@click.argument("identity", metavar="ID", shell_complete=completes(ARTIFACTS))
@click.option("--statement", "signed", is_flag=True, help="Show what the registry signed of it instead.")
@common
def show(session: Session, identity: str, signed: bool) -> None:
    """Show artifact ID: what the registry knows of its publication, its key and attributes with who states each of them
    (reader: the registry read it from the file; worker; publisher: not verified), and the provenance, which nobody
    verified.
    """
    if signed:
        _show_statements(session, identity)
        return
    artifact = session.client().artifact(identity)
    if session.as_json:
        print_json(message_document(artifact))
    else:
        _show(artifact)


def _show(artifact: Artifact) -> None:
    echo(f"id         {artifact.id}")
    echo(f"digest     {artifact.digest}")
    echo(f"sha256     {artifact.sha256}  ({format_size(artifact.size)})")
    echo(f"published  {format_time(artifact.published_at)} UTC by {artifact.created_by}")
    built = f"built by worker {artifact.worker}, job {artifact.job}"
    echo(f"origin     {built if artifact.origin == matching.BUILT else artifact.origin}")
    if artifact.changed_at:
        echo(f"changed    {format_time(artifact.changed_at)} UTC")
    if artifact.restored_at:
        echo(f"restored   {format_time(artifact.restored_at)} UTC by {artifact.restored_by}, after a removal")
    echo(f"promoted   {format_time(artifact.promoted_at)} UTC" if artifact.promoted_at else "promoted   no")
    echo(f"answers    {_answers(artifact)}")
    _show_recall(artifact)
    compiled = "a worker compiled it from this model" if artifact.model == "verified" else "claimed by the publisher"
    echo(f"model      {artifact.key.model}  ({compiled})")
    if artifact.model_name:
        echo(f"name       {artifact.model_name}  (of the model; a label)")
    for title, rows in (("key", artifact.key.to_json()), ("attributes", artifact.attributes.to_json())):
        echo()
        echo(title)
        for name, value in rows.items():
            # Before the value, which a publisher may choose freely.
            source = artifact.sources.get(name, "-") if value is not None else "-"
            echo(f"  {name:<15} {source:<10} {format_value(value)}")
    warnings = [
        *((artifact.description or {}).get("warnings") or ()),
        *program_warnings(artifact.key, artifact.attributes),
    ]
    if warnings:
        echo()
        echo("warnings")
    for warning in warnings:
        echo(f"  {warning}")
    echo()
    echo(f"provenance  (stated by the {'worker' if artifact.origin == matching.BUILT else 'publisher'}, not verified)")
    for name, value in artifact.provenance.items():
        echo(f"  {name:<15} {format_value(value)}")


@command()
@click.argument("identity", metavar="ID", shell_complete=completes(ARTIFACTS))
@common
def promote(session: Session, identity: str) -> None:
    """Make artifact ID the first choice for its key: from now on, requests for the key get this artifact."""
    artifact = session.client().promote(identity)
    print_json(artifact_row(artifact)) if session.as_json else echo(artifact.id)


@command()
@click.argument("identity", metavar="ID", shell_complete=completes(ARTIFACTS))
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--force", is_flag=True, help="Remove it also if registered locks pin it, or it was used; for administrators."
)
@common
def rm(session: Session, identity: str, yes: bool, force: bool) -> None:
    """Remove artifact ID from the registry. Its data is deleted once no other artifact uses it.

    Locks that name it call it gone: `mxr lock --check` and `mxr fetch --locked` exit with 3. A removal reaches no copy
    in caches and bundles: an artifact that was used must be recalled first, with `mxr yank` or `mxr quarantine`.
    """
    client = session.client()
    artifact = client.artifact(identity)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("Confirmation required, but standard input is not a terminal.", hint="Add --yes.")
        facts = [*model_cells([(artifact.model_name, artifact.key.model)]), *artifact_cells(artifact)[1:3]]
        confirm(f"Remove {artifact.id[:12]} ({' '.join(facts)})?")
    client.remove(artifact.id, force=force)
    print_json({"id": artifact.id, "removed": True}) if session.as_json else echo(artifact.id)
