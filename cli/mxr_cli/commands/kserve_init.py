"""`mxr kserve-init`: a KServe storage initializer for `mxr://` URIs."""

from __future__ import annotations

import click

from mxr.consumers import kserve
from mxr_cli.options import Session, common
from mxr_cli.output import note

from .fetch import fetch


@click.command("kserve-init")
@click.argument("uri", metavar="URI")
@click.argument("folder", metavar="FOLDER")
@common
def kserve_init(session: Session, uri: str, folder: str) -> None:
    """Act as a KServe storage initializer: write what an mxr:// URI names to FOLDER.

    The parameters of the URI are the options of `mxr fetch` without their dashes. Without `arch`, or with `arch=auto`,
    the GPUs of the node are detected, although an init container is given none. The ROCm and MIGraphX versions are
    those of the serving image, which this container cannot see: state them in the URI, or set MXR_HOST to the recorded
    facts of the image. Set the registry and the token with MXR_REGISTRY and MXR_TOKEN.

    \b
    mxr kserve-init "mxr://xxh3:0123...?for=amdinfer-repo&batch=64&rocm=7.2&migraphx=2.15" /mnt/models
    """
    location = kserve.read(uri)
    note(f"mxr: fetch {location.model} {' '.join(location.words)}")
    settings = session.settings
    arguments = ["--registry", settings.registry, "--cache-dir", str(settings.cache_dir)]
    arguments += ["--token", settings.token] if settings.token else []
    arguments += ["--json"] if session.as_json else []
    fetch.main(
        [location.model, *location.words, "-o", f"{folder}/", "--whole-node", *arguments],
        prog_name="mxr fetch",
        standalone_mode=False,
    )
