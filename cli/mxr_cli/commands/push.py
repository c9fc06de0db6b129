"""`mxr push`: publish a compiled program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mxr.artifact.serving import DESCRIPTIONS
from mxr.request.builder import Options
from mxr_cli.options import Session, common, request
from mxr_cli.output import echo, note, print_json, transfer_progress


@click.command
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="The ONNX file that FILE was compiled from, or its identity (sha256:...).",
)
@click.option(
    "--amend",
    is_flag=True,
    help="Replace the qualities and the provenance of an artifact with the same bytes that you pushed before.",
)
@request
@common
def push(session: Session, options: Options, file: Path, model: str, amend: bool) -> None:
    """Publish the compiled program FILE, so that every host that it fits can fetch it.

    Architecture and features, MIGraphX version, input shapes and target kind are read from the file. Give the rest as
    options: nothing is taken from this host. An option that contradicts the file is refused.

    Pushing the same file again changes nothing. With other qualities, it is refused (exit code 6) unless you add
    --amend, which also ends a promotion. A different file for the same key becomes another artifact; the older one
    stays the first choice until `mxr promote`, and what a worker built comes before what was pushed.

    \b
    mxr push model.mxr --model model.onnx --rocm 7.2.1 --for python
    mxr push model.mxr --model model.onnx --kind ref --for python --precision fp16
    """
    from mxr.program import describe_file
    from mxr.request import model as models
    from mxr.workflows.push import label
    from mxr.workflows.push import push as publish

    description = describe_file(file).to_json()
    cache, client = session.cache(), session.client()
    subject = models.find(model, cache, session.client, follow_links=options.follow_links)
    labels = label(options, subject, description)
    provenance: dict[str, Any] = {"tool": "mxr push"} | ({"warnings": list(labels.warnings)} if labels.warnings else {})
    progress = transfer_progress("pushing")
    artifact = publish(file, subject, labels, client, provenance, progress, amend=amend)
    warnings = list(dict.fromkeys([*labels.warnings, *(artifact.description or {}).get("warnings", ())]))
    if session.as_json:
        print_json(
            {
                "id": artifact.id,
                "digest": artifact.digest,
                "sha256": artifact.sha256,
                "size": artifact.size,
                "key": artifact.key.to_json(),
                "qualities": artifact.qualities.to_json(),
                "origin": artifact.origin,
                "serve": artifact.serve,
                "sources": dict(artifact.sources),
                "warnings": warnings,
            }
        )
        return
    for warning in warnings:
        note(f"mxr: warning: {warning}")
    if artifact.claimed:
        note("mxr: not verifiable from the file, taken from the options: " + ", ".join(artifact.claimed))
    if not artifact.answers_requests:
        note(
            f"mxr: it answers no request yet, because the namespace serves {DESCRIPTIONS[artifact.serve]}. "
            f"To promote it: mxr promote {artifact.id[:12]}"
        )
    echo(artifact.id)
