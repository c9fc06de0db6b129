"""`mxr push`: publish a compiled program, or those that lie in a folder beside their models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.artifact.matching import describe_rule
from mxr.errors import DamagedError, MismatchError, MxrError, UsageError
from mxr.protocol.artifacts import PublicationIntent
from mxr.request.builder import RequestOptions
from mxr.util import disk
from mxr_cli.help import command, completes
from mxr_cli.options import Session, common, request
from mxr_cli.output import echo, note, print_json

if TYPE_CHECKING:
    from mxr.protocol.artifacts import Artifact


@command(usual=("model", "rocm", "consumer", "arch", "migraphx", "precision", "batch", "kind", "amend", "also_for"))
@click.argument("path", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--model",
    shell_complete=completes("model"),
    metavar="MODEL",
    help="The ONNX file that FILE was compiled from, or its identity (sha256:...). For a FOLDER: the ONNX file beside "
    "each program, unless given.",
)
@click.option(
    "--amend",
    is_flag=True,
    help="Replace the attributes and the provenance of an artifact with the same bytes that you pushed before.",
)
@click.option(
    "--restore", is_flag=True, help="Publish an artifact again that was removed from the registry; its history says so."
)
@click.option(
    "--also-for",
    is_flag=True,
    help="Publish bytes that are published for another model, or that mxr placed for another one: two ONNX files with "
    "one graph and the same weights give one program.",
)
@request
@common
def push(
    session: Session,
    options: RequestOptions,
    path: Path,
    model: str | None,
    amend: bool,
    also_for: bool,
    restore: bool,
) -> None:
    """Publish the compiled program FILE for every host that can run it.

    \b
    mxr push model.mxr --model model.onnx --rocm 7.2.1 --for python
    mxr push model.mxr --model model.onnx --kind ref --for python --precision fp16
    mxr push /models/ --rocm 7.2.1 --for amdinfer

    The architecture with its features, the MIGraphX version, the input shapes and the target kind are read from the
    file. State the rest with options: nothing is taken from this host. An option that contradicts the file is an error.

    \f
    Pushing the same file again has no effect. With other attributes it is an error (exit code 6), unless --amend is
    given, which also ends a promotion. A different file with the same key becomes a second artifact: the first one is
    served until `mxr promote`. What a worker built is preferred to what was pushed.

    The weights are in a program. Bytes that are published for another model are therefore refused (exit code 6), and so
    is a program that mxr placed in the folder for another model than the ONNX file that lies there now; --also-for says
    that it is meant. A warning says if the program holds none of the weights of an fp32 model.

    With a FOLDER, publish every program below it, each with the model beside it: model.onnx for model.mxr, and also for
    model_b8.mxr, as AMD Inference Server names it. The options apply to all of them. Programs that cannot be published
    are listed, and the others are published all the same.
    """
    intent = PublicationIntent(amend=amend, also_for=also_for, restore=restore)
    if path.is_dir():
        _push_folder(session, options, path, model, intent)
        return
    if model is None:
        raise UsageError("No model is given.", hint="Add --model MODEL: the ONNX file that FILE was compiled from.")
    artifact, warnings = _publish(session, options, path, model, path.parent, intent)
    if session.as_json:
        print_json(_document(artifact, warnings))
        return
    _describe(artifact, warnings)
    echo(artifact.id)


def _publish(
    session: Session, options: RequestOptions, file: Path, model: str, folder: Path, intent: PublicationIntent
) -> tuple[Artifact, list[str]]:
    """Publish one program of a folder. Returns its artifact, and warnings about its label."""
    from mxr.install.publishing import publish_file

    done = publish_file(file, model, options, session.cache(), session.client, intent, folder=folder)
    session.say_once(done.notes)
    return done.artifact, list(done.warnings)


def _push_folder(
    session: Session, options: RequestOptions, folder: Path, model: str | None, intent: PublicationIntent
) -> None:
    """Publish the programs of a folder. Raises the first error at the end, after all others were published."""
    from mxr.install.folder_check import programs

    rows: list[dict[str, Any]] = []
    errors: list[MxrError] = []
    for path in programs(folder):
        name = str(path.relative_to(folder))
        try:
            artifact, warnings = _publish_beside(session, options, path, model, folder, intent)
        except (DamagedError, MismatchError, UsageError) as error:
            note(f"mxr: {name}: {error.message}")
            errors.append(error)
            rows.append({"file": name, "error": error.to_json()})
            continue
        rows.append({"file": name, **_document(artifact, warnings)})
        if not session.as_json:
            for warning in warnings:
                note(f"mxr: warning: {name}: {warning}")
            echo(f"{artifact.id}  {name}")
    if not rows:
        raise UsageError(f"{folder} holds no program (*.mxr).", hint="Give the folder in which the programs lie.")
    if session.as_json and not errors:
        print_json({"folder": str(folder), "files": rows})
    if errors:
        first = errors[0]
        raise type(first)(
            f"{len(errors)} of the {len(rows)} programs in {folder} were not published. {first.message}",
            hint=first.hint,
            context={"files": rows},
        )


def _publish_beside(
    session: Session, options: RequestOptions, path: Path, model: str | None, folder: Path, intent: PublicationIntent
) -> tuple[Artifact, list[str]]:
    """Publish one program of a folder with the model beside it. Raises `UsageError` where there is none."""
    from mxr.install.folder_check import misnamed
    from mxr.install.model_beside import model_beside
    from mxr.program import describe_file

    if path.is_symlink():
        raise UsageError("It is a symbolic link, which is not read.", hint="Push the file that it leads to.")
    beside = None if model else model_beside(path)
    if model is None and beside is None:
        raise UsageError(
            f"There is no ONNX file beside {path.name}.",
            hint="Put the model there, or push this file alone with --model MODEL.",
        )
    if wrong := misnamed(path.name, describe_file(path).to_json()):
        raise MismatchError(
            f"{path.name} has another name than its program: {wrong}.",
            hint="Rename the file, or push it alone: mxr push FILE --model MODEL.",
        )
    with disk.faults(path, "read"):
        newer = beside is not None and beside.stat().st_mtime_ns > path.stat().st_mtime_ns
    artifact, warnings = _publish(session, options, path, str(model or beside), folder, intent)
    if beside is not None and newer:
        warnings.append(f"{beside.name} is newer than {path.name}: check that the program was compiled from it.")
    return artifact, warnings


def _document(artifact: Artifact, warnings: list[str]) -> dict[str, Any]:
    return {
        "id": artifact.id,
        "digest": artifact.digest,
        "sha256": artifact.sha256,
        "size": artifact.size,
        "key": artifact.key.to_json(),
        "attributes": artifact.attributes.to_json(),
        "origin": artifact.origin,
        "serve": artifact.serve,
        "sources": dict(artifact.sources),
        "warnings": warnings,
    }


def _describe(artifact: Artifact, warnings: list[str]) -> None:
    """Print what a publisher must know."""
    for warning in warnings:
        note(f"mxr: warning: {warning}")
    if artifact.claimed:
        note("mxr: not verifiable from the file, taken from the options: " + ", ".join(artifact.claimed))
    if not artifact.answers_requests:
        note(
            "mxr: requests do not get this artifact yet, because the namespace serves "
            f"{describe_rule(artifact.serve)}. To promote it: mxr promote {artifact.id[:12]}"
        )
