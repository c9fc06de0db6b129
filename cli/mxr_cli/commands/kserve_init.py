"""`mxr kserve-init`: a KServe storage initializer for `mxr://` URIs."""

from __future__ import annotations

from dataclasses import replace

import click

from mxr.consumers import kserve
from mxr_cli.help import command
from mxr_cli.options import Session, common
from mxr_cli.output import note

from .fetch import fetch


@command("kserve-init")
@click.argument("uri", metavar="URI")
@click.argument("folder", metavar="FOLDER")
@common
def kserve_init(session: Session, uri: str, folder: str) -> None:
    """Act as a KServe storage initializer: write what an mxr:// URI names to FOLDER.

    The parameters of the URI are the options of `mxr fetch` without their dashes. Without `arch`, or with `arch=auto`,
    the GPUs of the node are detected, although an init container is given none. The ROCm and MIGraphX versions are
    those of the serving image, which this container cannot see: state them in the URI, or set MXR_HOST to the recorded
    facts of the image. Set the registry and the token with MXR_REGISTRY and MXR_TOKEN.

    The URI comes from a tenant. By default it cannot set `env` and `host`, name a model by path, or compile: `on-miss`
    is fail or continue. MXR_KSERVE_ALLOW lists what it may: ask, wait, local, env, host, path.

    \b
    mxr kserve-init "mxr://sha256:0123...?for=amdinfer-repo&batch=64&rocm=7.2&migraphx=2.15" /mnt/models
    """
    location = kserve.read_uri(uri, session.settings.kserve_allow)
    note(f"mxr: fetch {' '.join(location.words)} {location.model}")
    # After `--`, nothing in a URI is an option. The session has the settings, so no argument holds the token.
    fetch.main(
        [*location.words, "-o", f"{folder}/", "--whole-node", "--", location.model],
        prog_name="mxr fetch",
        standalone_mode=False,
        obj=replace(session, takes_open=False),
    )
