"""The consumers: programs that load .mxr files, with the compile flags that each needs and the files that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from mxr.errors import UsageError

from .consumer import Consumer
from .python import PYTHON

MODULES = {
    "python": "python",
    "driver": "python",
    "amdinfer": "amdinfer",
    "amdinfer-repo": "amdinfer",
    "ort": "ort",
    "epcontext": "epcontext",
    "triton": "triton",
    "kserve": "kserve",
}
"""The module of each consumer."""


class _Consumers(Mapping[str, Consumer]):
    """The consumers by name. The module of each is imported with its first use: a fetch uses one."""

    def __getitem__(self, name: str) -> Consumer:
        module = import_module(f"{__name__}.{MODULES[name]}")
        found: Consumer = getattr(module, name.replace("-", "_").upper())
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


CONSUMERS: Mapping[str, Consumer] = _Consumers()
DEFAULT = PYTHON

__all__ = ["CONSUMERS", "DEFAULT", "Consumer", "find_consumer"]


WITHOUT_LAYOUT = ("comfyui", "frigate", "immich", "vs-mlrt")
"""Programs whose page says how to use programs of mxr, with the options that there are."""


def find_consumer(name: str) -> Consumer:
    """The consumer of this name. Raises `UsageError`."""
    if name not in CONSUMERS:
        from mxr.display.text import did_you_mean

        if name.lower() in WITHOUT_LAYOUT:
            raise UsageError(
                f"mxr has no layout for {name}.",
                hint=f"docs/consumers/{name.lower()}.md says which file goes where, and what states its flags.",
            )
        raise UsageError(
            f"There is no consumer {name!r}.{did_you_mean(name, CONSUMERS)}",
            hint="Use one of: " + ", ".join(CONSUMERS) + " (`mxr consumers`).",
        )
    return CONSUMERS[name]
