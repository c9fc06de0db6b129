"""KServe: the `mxr://` URIs of its storage initializer, and the layout under /mnt/models.

    mxr://MODEL?for=amdinfer-repo&batch=64&rocm=7.2&migraphx=2.15

MODEL is the hash `xxh3:...` of a model that the registry stores, or a path in the image of the initializer. Each
parameter is an option of `mxr fetch` without its dashes; what is missing is detected on the node, as on any host.
"""

from __future__ import annotations

from dataclasses import replace

from mxr.errors import Usage
from mxr.util.frozen import dataclass

from .amdinfer import AMDINFER_REPO, lay_out_repository
from .consumer import Consumer
from .layout import Delivery, Layout

SCHEME = "mxr://"
REPEATED = ("input", "env")
SINGLE = (
    *(
        "arch",
        "vendor",
        "kind",
        "num-cu",
        "chiplets",
        "real-arch",
        "rocm",
        "migraphx",
        "batch",
        "precision",
        "tuning",
        "for",
    ),
    *("allow", "on-miss", "name", "host"),
)
SWITCHES = ("offload-copy", "fast-math", "exact", "refresh", "offline", "force")


@dataclass(frozen=True, slots=True)
class KServeUri:
    """A parsed URI: the model, and the other arguments of `mxr fetch`."""

    model: str
    words: tuple[str, ...]


def read(uri: str) -> KServeUri:
    """Parses a URI. Raises `Usage` with the faulty part."""
    from urllib.parse import parse_qsl, unquote

    if not uri.startswith(SCHEME):
        raise Usage(f"{uri!r} is not an mxr:// URI.", hint=f"Write {SCHEME}xxh3:...?batch=64&rocm=7.2.")
    model, _, query = uri.removeprefix(SCHEME).partition("?")
    model = unquote(model).rstrip("/")
    if not model:
        raise Usage(f"{uri!r} names no model.", hint=f"Write {SCHEME}xxh3:... (`mxr key MODEL` prints the hash).")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=200)
    except ValueError:
        raise Usage(
            f"{query!r} is not a list of name=value.", hint="Join the parameters by &, as in batch=64&rocm=7.2."
        ) from None
    names = [name for name, _ in pairs if name not in REPEATED]
    if len(set(names)) != len(names):
        raise Usage(f"{uri!r} has the same parameter twice.", hint="Give each parameter once.")
    words = [word for name, value in pairs for word in _option(name, value)]
    return KServeUri(model, tuple(words if "for" in names else [*words, "--for", "kserve"]))


def _option(name: str, value: str) -> tuple[str, ...]:
    if name == "arch" and value == "auto":
        return ()
    if name in SWITCHES and value in ("on", "true", "1", ""):
        return (f"--{name}",)
    if name in ("offload-copy", "fast-math") and value in ("off", "false", "0"):
        return (f"--no-{name}",)
    if name in SINGLE or name in REPEATED:
        return (f"--{name}={value}",)
    known = ", ".join((*SINGLE, *REPEATED, *SWITCHES))
    raise Usage(f"{name}={value} is not a valid parameter of an mxr:// URI.", hint=f"Use these parameters: {known}.")


def lay_out(delivery: Delivery) -> Layout:
    """An amdinfer model repository at the root of the volume, where KServe's runtime for amdinfer reads it."""
    made = lay_out_repository(delivery)
    return replace(made, settings=(f"--model-repository={delivery.folder} in the ServingRuntime",))


KSERVE = Consumer(
    name="kserve",
    summary="KServe's volume for amdinfer; mxr://... with for=triton for Triton",
    offload_copy=True,
    fast_math=True,
    name_file=None,
    source="kserve.github.io, Storage Containers: the initializer is called with a URI and a folder",
    fit=AMDINFER_REPO.fit,
    lay_out=lay_out,
    needs_model=True,
    tree=AMDINFER_REPO.tree,
)
