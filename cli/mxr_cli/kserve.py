"""`mxr kserve-init`: KServe's storage initialiser for `mxr://` URIs."""

from __future__ import annotations

import click

from mxr.consumers import kserve

from .fetch import fetch
from .options import Session, common
from .output import note


@click.command("kserve-init", short_help="Be KServe's storage initialiser for mxr:// URIs.")
@click.argument("uri", metavar="URI")
@click.argument("folder", metavar="FOLDER")
@common
def kserve_init(session: Session, uri: str, folder: str) -> None:
    """Lay out in FOLDER what an mxr:// URI names, as KServe calls its storage initialiser.

    Parameters of the URI are the options of `mxr fetch` without their dashes; `arch=auto` is what happens anyway: the
    GPU of this node, although an init container is given none. Versions of ROCm and MIGraphX are those of the serving
    image, which this container does not see: say them, or give their record with MXR_HOST. Registry and token are
    MXR_REGISTRY and MXR_TOKEN.

    \b
    mxr kserve-init "mxr://xxh3:0123...?for=amdinfer-repo&batch=64&rocm=7.2&migraphx=2.15" /mnt/models
    """
    location = kserve.read(uri)
    note(f"mxr: fetch {location.model} {' '.join(location.words)}")
    settings = session.settings
    words = ["--registry", settings.registry, "--cache-dir", str(settings.cache_dir)]
    words += ["--token", settings.token] if settings.token else []
    words += ["--json"] if session.as_json else []
    fetch.main(
        [location.model, *location.words, "-o", f"{folder}/", "--whole-node", *words],
        prog_name="mxr fetch",
        standalone_mode=False,
    )
