"""`mxr push`: publish a compiled program under the key that it really has."""

from __future__ import annotations

from pathlib import Path

import click

from mxr.request.builder import Options

from .options import Session, common, request
from .output import document, note, say, watch


@click.command(short_help="Publish a compiled program.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--model", required=True, metavar="MODEL", help="The ONNX file it was compiled from, or xxh3:... of it.")
@request
@common
def push(session: Session, options: Options, file: Path, model: str) -> None:
    """Publish FILE, a compiled program, so that everyone whose host it fits can fetch it.

    What the file tells (arch and features, MIGraphX version, input shapes, kind) is taken from it; nothing is taken
    from this host, so the rest must be said. A label that the file contradicts is refused. Pushing the same again is
    fine; another file for the same key is another artifact, and the first stays first until `mxr promote`.

    \b
    mxr push model.mxr --model model.onnx --rocm 7.2.1 --for python
    mxr push model.mxr --model model.onnx --kind ref --for python --precision fp16
    """
    from mxr.program import describe_file
    from mxr.request import model as subjects
    from mxr.workflows.push import label
    from mxr.workflows.push import push as publish

    description = describe_file(file).to_json()
    cache, client = session.cache(), session.client()
    subject = subjects.find(model, cache, session.client)
    found = label(options, subject, description)
    artifact = publish(file, subject, found, client, {"tool": "mxr push"}, watch("pushing"))
    if session.as_json:
        document(
            {
                "id": artifact.id,
                "digest": artifact.digest,
                "sha256": artifact.sha256,
                "size": artifact.size,
                "key": artifact.key.to_json(),
                "qualities": artifact.qualities.to_json(),
                "stated": list(artifact.stated),
            }
        )
        return
    if artifact.stated:
        note("mxr: on your word, since the file does not tell: " + ", ".join(artifact.stated))
    say(artifact.id)
