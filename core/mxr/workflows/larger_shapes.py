"""A smaller shape on a larger program: Hygon's dynamic programs take every shape up to the one they were compiled for.

It is used where there is no program for exactly the requested shape. What a publisher states is not enough: the
registry must have found in the file that the program can be reshaped, or the request allows it (`--allow shape`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from mxr.artifact.attributes import Request
from mxr.artifact.matching import READER
from mxr.artifact.partial import PartialRequest
from mxr.artifact.target import DynamicDim, Inputs, Shape, show_dims
from mxr.client.registry import Client
from mxr.errors import NoSuchArtifactError
from mxr.facts import stated
from mxr.protocol.artifacts import Artifact
from mxr.util.frozen import dataclass

ALLOWANCE = "shape"


@dataclass(frozen=True, slots=True)
class LargerRequest:
    """A request for a program that takes the requested shapes and larger ones. `why`: a sentence for people."""

    request: Request
    why: str


def can_be_larger(request: Request) -> bool:
    """Return whether a larger program can serve a request: only Hygon's, and only for shapes without ranges."""
    dims = [dim for _, shape in request.key.inputs for dim in shape]
    return request.key.vendor == "hygon" and bool(dims) and all(isinstance(dim, int) for dim in dims)


def find_larger(request: Request, client: Client) -> LargerRequest | None:
    """Return the request for the smallest program that covers the requested shapes; None if there is none.

    Raises `UnreachableError` and `DamagedError`.
    """
    if not can_be_larger(request):
        return None
    key = request.key
    opened = tuple((name, None) for name, _ in key.inputs)
    try:
        listed = client.candidates(replace(PartialRequest.of(request), inputs=opened))
    except NoSuchArtifactError:
        return None
    fitting = [choice for choice in listed.candidates if covers(choice.key.inputs, key.inputs)]
    for choice in sorted(fitting, key=lambda each: _size(each.key.inputs)):
        shown = _is_shown(client.artifact(choice.id))
        if shown or ALLOWANCE in request.constraints.allow:
            inputs = choice.key.inputs
            return LargerRequest(Request(replace(key, inputs=inputs), request.constraints), _why(inputs, shown=shown))
    return None


def covers(larger: Inputs, asked: Inputs) -> bool:
    """Return whether a program for `larger`, some of whose dims are ranges, takes the shapes of `asked`."""
    found, wanted = dict(larger), dict(asked)
    ranges = any(isinstance(dim, DynamicDim) for shape in found.values() for dim in shape)
    same = found.keys() == wanted.keys()
    return ranges and same and all(_takes(found[name], shape) for name, shape in wanted.items())


def _takes(larger: Shape, asked: Shape) -> bool:
    return len(larger) == len(asked) and all(
        dim == wanted or (isinstance(dim, DynamicDim) and isinstance(wanted, int) and dim.least <= wanted <= dim.most)
        for dim, wanted in zip(larger, asked, strict=True)
    )


def _size(inputs: Inputs) -> int:
    return sum(prod(_largest(shape)) for _, shape in inputs)


def _largest(shape: Shape) -> Iterator[int]:
    return (dim.most if isinstance(dim, DynamicDim) else dim for dim in shape)


def _is_shown(artifact: Artifact) -> bool:
    """Whether the registry's reader found in the file that the program can be reshaped, and how large it may become."""
    return artifact.sources.get("inputs") == READER and (artifact.description or {}).get("reshapes") is True


def _why(inputs: Inputs, *, shown: bool) -> str:
    largest = " ".join(f"{name}={show_dims(tuple(_largest(shape)))}" for name, shape in inputs)
    accepted = f"as its publisher states; {stated('allow', 'shape')} accepted it"
    ground = "its file shows that it is dynamic" if shown else accepted
    return (
        f"the program is dynamic and takes inputs up to {largest} ({ground}): set MIGRAPHX_DYNAMIC_SHAPE=1, and call "
        "program.reshape with the shapes before a run"
    )
