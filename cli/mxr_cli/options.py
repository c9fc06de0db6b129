"""The options that commands share, and the settings, cache, client and host made from them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from mxr.artifact.target import parse_input
from mxr.errors import Usage
from mxr.request.builder import Options
from mxr.settings import Settings, load
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from mxr.cache.store import Cache
    from mxr.client.registry import Client
    from mxr.host_facts import Host

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Session:
    """One call of the program: its settings, and how its answer is printed.

    `whole_node`: GPUs that this container was not given count too, as for an init container.
    """

    settings: Settings
    as_json: bool
    whole_node: bool = False

    def cache(self) -> Cache:
        """The local cache."""
        from mxr.cache.store import Cache

        return Cache(self.settings.cache_dir)

    def client(self) -> Client:
        """The registry; nothing is connected before it is asked."""
        from mxr.client.registry import Client

        return Client(self.settings)

    def host(self, options: Options | None = None) -> Host:
        """What this machine is, with a recorded set over it where one is given, as far as `options` leave it open."""
        from mxr.api import this_host

        return this_host(self.settings, options, whole_node=self.whole_node)


@dataclass(frozen=True, slots=True)
class PipelineEnvironment:
    """What a pipeline's environment has: variables for a matrix; whether GitHub runs it, and its step's summary."""

    variables: Mapping[str, str]
    github: bool = False
    step_summary: Path | None = None


def surroundings() -> PipelineEnvironment:
    """The environment of this call."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    github = os.environ.get("GITHUB_ACTIONS") == "true"
    return PipelineEnvironment(dict(os.environ), github, Path(summary) if summary else None)


class Batches(click.ParamType):  # type: ignore[type-arg]
    """`8`, or `1,2,4,8` where a command takes several; the numbers, each once, in their order."""

    name = "batch"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The batch sizes. Fails as click's own types do."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if any(not (part.isascii() and part.isdigit()) or not 1 <= int(part[:12]) < 2**31 for part in parts):
            self.fail(f"{value!r} is not a batch size: write 8, or 1,2,4,8.", param, ctx)
        return tuple(sorted({int(part) for part in parts}))


COMMON = (
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document; messages go to standard error."),
    click.option("--registry", metavar="URL", help="The registry [MXR_REGISTRY; default http://127.0.0.1:8765]."),
    click.option("--token", metavar="TOKEN", help="The token to show it [MXR_TOKEN]."),
    click.option("--cache-dir", metavar="DIR", help="The local cache [MXR_CACHE_DIR; default ~/.cache/mxr]."),
    click.option("--debug", is_flag=True, help="Show the traceback of a failure."),
)

REQUEST = (
    click.option("--arch", metavar="ARCH", help="The GPU: gfx908, or gfx90a:sramecc+:xnack-."),
    click.option("--vendor", metavar="NAME", help="amd (default) or hygon."),
    click.option("--kind", metavar="KIND", help="gpu (default), or ref: MIGraphX's CPU reference target."),
    click.option("--num-cu", type=click.IntRange(1), metavar="N", help="Compute units as MIGraphX counts them."),
    click.option("--chiplets", type=click.IntRange(1), metavar="N", help="Chiplets (XCCs) of the GPU."),
    click.option("--real-arch", metavar="ARCH", help="What it really is, where HSA_OVERRIDE_GFX_VERSION hides it."),
    click.option("--rocm", metavar="VERSION", help="ROCm (or DTK) version: 7.2, or 7.2.1."),
    click.option("--migraphx", metavar="VERSION", help="MIGraphX version: 2.15, or 2.15.0."),
    click.option("--batch", type=Batches(), metavar="N", help="The open first dim of every input is N."),
    click.option(
        "--input", "inputs", multiple=True, metavar="NAME=DIMS", help="x=1,3,224,224; dynamic: x=1..8@1/4/8,3."
    ),
    click.option("--precision", metavar="P", help="fp32 (default), or fp16 bf16 int8 fp8 int4w joined by +, in order."),
    click.option(
        "--calibration", type=click.Path(path_type=Path), metavar="FILE", help="Calibration data (int8, fp8)."
    ),
    click.option("--offload-copy/--no-offload-copy", default=None, help="Program copies its buffers itself."),
    click.option("--fast-math/--no-fast-math", default=None, help="Program uses fast math."),
    click.option("--env", "env", multiple=True, metavar="K=V", help="A MIGRAPHX_* variable that the compile sees."),
    click.option("--tuning", metavar="T", help="default, exhaustive, or cross (compiled without the GPU)."),
    click.option("--for", "consumer", metavar="CONSUMER", help="Who loads it: python, triton, ... (mxr consumers)."),
    click.option("--host", "host_file", metavar="FILE", help="Host facts recorded by `mxr host --json` [MXR_HOST]."),
)

MATCHING = (
    click.option("--exact", is_flag=True, help="Every quality that is given must be equal."),
    click.option("--allow", metavar="LIST", help="Let pass: cu, patch, cross, spoof (joined by commas)."),
)


def common(command: F) -> F:
    """Adds the options of every command; the function gets a `session` made of them."""
    names = command.__code__.co_varnames[: command.__code__.co_argcount]

    @functools.wraps(command)
    def run(**rest: Any) -> Any:
        rest.pop("debug")
        as_json = rest.pop("as_json")
        given = {name: rest.pop(name, None) for name in ("registry", "token", "cache_dir", "host_file")}
        session = Session(load(os.environ, given), as_json)
        return command(session, **_fold(rest, session.settings, names) if "options" in names else rest)

    return _decorate(cast(F, run), COMMON)


def request(command: F) -> F:
    """Adds the options of a request; the function gets them as one `options`."""
    return _decorate(command, REQUEST)


def matching(command: F) -> F:
    """Adds the options that loosen or tighten the match."""
    return _decorate(command, MATCHING)


def _decorate(command: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


SAID = (
    "arch",
    "vendor",
    "kind",
    "num_cu",
    "chiplets",
    "real_arch",
    "rocm",
    "migraphx",
    "batch",
    "precision",
    "calibration",
    "offload_copy",
    "fast_math",
    "tuning",
    "consumer",
)
"""The options that are fields of `Options` under the same name."""


def _fold(rest: dict[str, Any], settings: Settings, names: Sequence[str]) -> dict[str, Any]:
    """Folds what belongs to a request into one `Options`; a command that takes `batches` gets several apart."""
    said = {name: rest.pop(name) for name in SAID}
    sizes: tuple[int, ...] = said["batch"] or ()
    if "batches" in names:
        rest["batches"] = sizes if len(sizes) > 1 else ()
    elif len(sizes) > 1:
        raise Usage("This command takes one batch size.", hint="Write --batch 8.")
    said["batch"] = sizes[0] if len(sizes) == 1 else None
    inputs = tuple(parse_input(text) for text in rest.pop("inputs"))
    names = [name for name, _ in inputs]
    if len(set(names)) != len(names):
        raise Usage("One input is given twice.", hint="Give each --input once.")
    allow = tuple(part.strip() for part in (rest.pop("allow", None) or "").split(",") if part.strip())
    env = dict(_pair(text) for text in rest.pop("env"))
    if "exact" in rest:
        said["consumer"] = said["consumer"] or settings.consumer
    options = Options(**said, inputs=inputs, env=env, allow=allow, exact=rest.pop("exact", False))
    return {**rest, "options": options}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Usage(f"{text!r} is not a variable.", hint="Write --env MIGRAPHX_NAME=VALUE.")
    return name, value
