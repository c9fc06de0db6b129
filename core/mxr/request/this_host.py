"""The facts of this host, as far as a request needs them."""

from __future__ import annotations

import os

from mxr.host_facts import Host, combine, read_recorded
from mxr.request.builder import RequestOptions
from mxr.settings import Settings


def this_host(settings: Settings, options: RequestOptions | None = None, *, whole_node: bool = False) -> Host:
    """Return the facts of this host, overridden by the recorded host facts in `settings.host_file`, if any.

    Skips the detection of facts that `options` give. A configured `host_file` must be readable in any case.
    `whole_node`: include the GPUs of the node that this container cannot use.
    """
    recorded = read_recorded(settings.host_file) if settings.host_file else None
    if options is not None and options.migraphx is not None and options.kind == "ref":
        return Host()
    from mxr.host_facts import detect

    toolchain = options is None or options.migraphx is None or options.rocm is None
    local = detect(environ=os.environ, toolchain=toolchain, whole_node=whole_node)
    return local if recorded is None else combine(recorded, local)
