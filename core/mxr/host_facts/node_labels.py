"""The labels of a Kubernetes node that say which programs its GPUs run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mxr.artifact.target import FEATURES

from .host import HostTarget

PREFIX = "mxr.dev/"
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
"""Source: kubernetes.io, "Labels and Selectors", syntax and character set."""
SIGNS = {"+": "on", "-": "off"}


def node_labels(targets: Iterable[HostTarget]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the labels of a node with these GPUs, and the labels that are left out because its GPUs differ in them.

    A pod can get any GPU of its node. So a label says what holds for each of them: `gfx`, `num-cu` (as MIGraphX counts
    them), `sramecc` and `xnack` (`on` or `off`), `vendor`, `partition`. `gpus` is their number.
    """
    rows = [_facts(each) for each in targets]
    if not rows:
        return {}, ()
    names = sorted(set().union(*rows))
    same = [name for name in names if len({row.get(name) for row in rows}) == 1]
    labels = {PREFIX + name: rows[0][name] for name in same}
    return labels | {PREFIX + "gpus": str(len(rows))}, tuple(PREFIX + name for name in names if name not in same)


def _facts(gpu: HostTarget) -> Mapping[str, str]:
    found = {
        "gfx": gpu.arch,
        "num-cu": str(gpu.num_cu or ""),
        **{name: SIGNS.get(getattr(gpu, name) or "", "") for name in FEATURES},
        "vendor": gpu.vendor,
        "partition": gpu.partition or "",
    }
    return {name: value for name, value in found.items() if LABEL_VALUE.fullmatch(value)}
