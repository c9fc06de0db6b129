"""`mxr import`: read a bundle into the cache or a registry, or publish the cache files of an ONNX Runtime."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from mxr.display.text import counted
from mxr.errors import UsageError
from mxr.plans.lockfile import save_lock
from mxr.request.builder import RequestOptions
from mxr_cli.fetching.fetch_options import ORT, OrtOptions, ort_options
from mxr_cli.help import command
from mxr_cli.options import Session, common, request
from mxr_cli.output import echo, note, print_json


@command(
    "import",
    usual=("into", "lock_file", "restore", "ort_cache", "model", "arch", "rocm", "migraphx", "batch", "ort"),
    groups={"ONNX Runtime": ORT},
)
@click.argument("bundle", metavar="[BUNDLE]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--into", type=click.Choice(["cache", "registry"]), help="Import into the local cache (default) or the registry."
)
@click.option("--restore", is_flag=True, help="Import also artifacts that were removed from the registry.")
@click.option(
    "--lock", "lock_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the lock of the bundle to FILE."
)
@click.option(
    "--ort-cache",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Publish the files that the MIGraphX provider of ONNX Runtime wrote to FOLDER, instead of a bundle.",
)
@click.option("--model", metavar="MODEL", help="With --ort-cache: the model that ONNX Runtime ran.")
@ort_options
@request
@common
def import_(  # noqa: PLR0913 - a parameter for each option
    session: Session,
    options: RequestOptions,
    batches: tuple[int, ...],
    ort: OrtOptions,
    bundle: Path | None,
    into: str | None,
    restore: bool,
    lock_file: Path | None,
    ort_cache: Path | None,
    model: str | None,
) -> None:
    """Import all artifacts of BUNDLE into the local cache or into a registry. BUNDLE is a tar file from `mxr export` or
    an OCI image layout folder.

    Every byte is verified before anything is written: a truncated or modified bundle is refused (exit code 65).
    Existing artifacts are skipped, so that you can run the same command again after an interruption. Afterwards
    `mxr fetch --locked` and `--offline` serve the requests of the lock in the bundle.

    \b
    mxr import bundle.tar --lock mxr.lock
    mxr import bundle.tar --into registry --registry https://registry.example.com

    With --ort-cache, publish the files of ONNX Runtime as one artifact. `mxr fetch --for ort` prefers such files to
    predicted file names. Describe the whole request: give --arch with all features (gfx942:sramecc+:xnack-), --rocm and
    --migraphx, and the ONNX Runtime that ran the model with --ort and the other --ort options.

    \b
    mxr import --ort-cache FOLDER --model model.onnx --arch gfx942:sramecc+:xnack- --rocm 7.2 --migraphx 2.15
    """
    if ort_cache is not None:
        if bundle is not None or lock_file is not None or into == "cache" or batches or restore:
            raise UsageError(
                "--ort-cache publishes one recorded set of files to the registry.",
                hint="Omit BUNDLE, --lock, --restore and --into cache, and give one batch size.",
            )
        if model is None:
            raise UsageError("--ort-cache needs the model that ONNX Runtime ran.", hint="Add --model model.onnx.")
        _publish_ort_cache(session, ort_cache, model, options, ort)
        return
    if bundle is None:
        raise UsageError("No bundle is given.", hint="Use mxr import BUNDLE, or mxr import --ort-cache FOLDER.")
    if options != RequestOptions(consumer=options.consumer) or batches or ort != OrtOptions() or model is not None:
        raise UsageError(
            "The options of a request need --ort-cache: a bundle describes its artifacts.", hint="Omit them."
        )
    if restore and into != "registry":
        raise UsageError("--restore is for an import into a registry.", hint="Add --into registry, or omit --restore.")
    _import_bundle(session, bundle, into or "cache", lock_file, restore=restore)


def _publish_ort_cache(session: Session, folder: Path, model: str, options: RequestOptions, ort: OrtOptions) -> None:
    from mxr.install.ort_cache import publish_recording
    from mxr.request import model as models

    known = models.find_model(model, session.cache(), session.client, follow_links=options.follow_links)
    artifact = publish_recording(folder, options, known, ort.as_mapping(), session.client())
    files = [file.name for file in artifact.manifest.files] if artifact.manifest else []
    if session.as_json:
        print_json({"id": artifact.id, "digest": artifact.digest, "key": artifact.key.to_json(), "files": files})
        return
    echo(artifact.id)
    for name in files:
        note(f"mxr: published {name}")


def _import_bundle(session: Session, bundle: Path, into: str, lock_file: Path | None, *, restore: bool) -> None:
    from mxr.bundle import importer
    from mxr.bundle.image_layout import open_layout

    with closing(open_layout(bundle)) as layout:
        contents = importer.check_bundle(layout)
        if lock_file is not None and contents.lock is None:
            raise UsageError(f"{bundle} was exported by IDs and contains no lock.", hint="Omit --lock.")
        if into == "cache":
            done = importer.into_cache(layout, contents, session.cache())
        else:
            done = importer.into_registry(layout, contents, session.client(), restore=restore)
    if lock_file is not None and contents.lock is not None:
        save_lock(contents.lock, lock_file)
    if session.as_json:
        print_json(
            {
                "bundle": str(bundle),
                "into": into,
                "lock": str(lock_file) if lock_file else None,
                "artifacts": [{"id": each.id, "new": each.new, "differs": each.differs} for each in done],
            }
        )
    else:
        echo(f"{bundle}: {counted(len(done), 'artifact')}, {sum(each.new for each in done)} new in the {into}")
        for each in done:
            if each.differs:
                note(f"mxr: {each.id[:12]} is in the registry with other attributes, which were kept")
