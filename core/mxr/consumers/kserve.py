"""KServe: the `mxr://` URIs of its storage initializer, and the layout under /mnt/models.

    mxr://MODEL?for=amdinfer-repo&batch=64&rocm=7.2&migraphx=2.15

MODEL is the identity `sha256:...` of a model that the registry knows, or, if the operator allows it, a path in the
image of the initializer. Each parameter is an option of `mxr fetch` without its dashes; what is missing is detected on
the node, as on any host.

A URI comes from a tenant of the cluster, and the initializer works with the registry access of the operator. A URI sets
only the parameters in this module; what costs or reads more is refused unless the operator allows it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

import mxr.facts as facts
from mxr.artifact.key import MODEL_PREFIX
from mxr.display.text import shell_quoted
from mxr.errors import NotAllowedError, UsageError
from mxr.util.frozen import dataclass

from .amdinfer import AMDINFER_REPO, lay_out_repository
from .consumer import Consumer
from .layout import Delivery, Layout

SCHEME = "mxr://"
IDENTITY_LIKE = MODEL_PREFIX + "[0-9A-Za-z]*"
"""Cannot be a path or an option. Whether it is an identity is checked where a model is named."""

FACTS = {fact.word: fact for fact in facts.FACTS if fact.has(facts.URI, facts.URI_IF_ALLOWED)}
OTHERS = ("on-miss", "name", "host")
SWITCHES = ("refresh", "offline", "force")
"""Further parameters: those with a value, and those without."""

RESTRICTED = ("host", *(word for word, fact in FACTS.items() if fact.has(facts.URI_IF_ALLOWED)))
"""Parameters that the operator has to allow."""

ON, OFF = ("on", "true", "1", ""), ("off", "false", "0")

FREE_ACTIONS = ("fail", "continue")
"""The actions of on-miss that compile nothing and wait for nothing."""


@dataclass(frozen=True, slots=True)
class KServeUri:
    """A parsed URI: the model, and the other arguments of `mxr fetch`."""

    model: str
    words: tuple[str, ...]


def read_uri(uri: str, allowed: Collection[str] = ()) -> KServeUri:
    """Parse a URI. `allowed`: what the operator allows, as in `Settings.kserve_allow`.

    Raises `UsageError` with the faulty part, `NotAllowedError` for what the operator does not allow.
    """
    from urllib.parse import parse_qsl, unquote

    if not uri.startswith(SCHEME):
        raise UsageError(f"{uri!r} is not an mxr:// URI.", hint=f"Write {SCHEME}sha256:...?batch=64&rocm=7.2.")
    model, _, query = uri.removeprefix(SCHEME).partition("?")
    model = unquote(model).rstrip("/")
    if not model:
        raise UsageError(
            f"{uri!r} names no model.", hint=f"Write {SCHEME}sha256:... (`mxr identity MODEL.onnx` prints it)."
        )
    if not re.fullmatch(IDENTITY_LIKE, model) and "path" not in allowed:
        raise NotAllowedError(
            f"{model!r} is not the identity of a model, and a URI may not name a file of the initializer.",
            hint=f"Write {SCHEME}sha256:... (`mxr identity MODEL.onnx` prints it). {_operator('path')}",
        )
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=200)
    except ValueError:
        raise UsageError(
            f"{query!r} is not a list of name=value.", hint="Join the parameters by &, as in batch=64&rocm=7.2."
        ) from None
    names = [name for name, _ in pairs if name not in FACTS or FACTS[name].kind not in (facts.NAMES, facts.SHAPES)]
    if len(set(names)) != len(names):
        raise UsageError(f"{uri!r} has the same parameter twice.", hint="Give each parameter once.")
    for name, value in pairs:
        _check(name, value, allowed)
    words = [word for name, value in pairs for word in _option(name, value)]
    return KServeUri(model, tuple(words if "for" in names else [*words, "--for", "kserve"]))


def _check(name: str, value: str, allowed: Collection[str]) -> None:
    """Raise `NotAllowedError` for a parameter that the operator does not allow."""
    if name in RESTRICTED and name not in allowed:
        raise NotAllowedError(f"A URI may not set {name}.", hint=f"Omit it. {_operator(name)}")
    action = value.partition("=")[0]
    if name == "on-miss" and action not in (*FREE_ACTIONS, *allowed):
        hint = f"Use one of: {', '.join(FREE_ACTIONS)}. {_operator('wait')}"
        raise NotAllowedError(f"A URI may not set on-miss={value}.", hint=hint)


def _operator(word: str) -> str:
    return f"The operator allows it with MXR_KSERVE_ALLOW={word} in the ClusterStorageContainer."


def _option(name: str, value: str) -> tuple[str, ...]:
    if name == "arch" and value == "auto":
        return ()
    kind = FACTS[name].kind if name in FACTS else facts.SWITCH if name in SWITCHES else facts.TEXT
    if kind in (facts.FLAG, facts.SWITCH):
        if value in ON:
            return (f"--{name}",)
        if kind == facts.FLAG and value in OFF:
            return (f"--no-{name}",)
    elif name in FACTS or name in OTHERS:
        return (f"--{name}={value}",)
    known = ", ".join((*FACTS, *OTHERS, *SWITCHES))
    raise UsageError(
        f"{name}={value} is not a valid parameter of an mxr:// URI.", hint=f"Use these parameters: {known}."
    )


def lay_out(delivery: Delivery) -> Layout:
    """An amdinfer model repository at the root of the volume, where KServe's runtime for amdinfer reads it."""
    made = lay_out_repository(delivery)
    return replace(made, settings=(f"--model-repository={shell_quoted(delivery.folder)} in the ServingRuntime",))


KSERVE = Consumer(
    name="kserve",
    summary="KServe's volume for amdinfer; mxr://... with for=triton for Triton",
    offload_copy=True,
    fast_math=True,
    name_file=None,
    source="kserve.github.io, Storage Containers: the initializer is called with a URI and a folder",
    check_key=AMDINFER_REPO.check_key,
    lay_out=lay_out,
    needs_model=True,
    tree=AMDINFER_REPO.tree,
    batch=AMDINFER_REPO.batch,
)
