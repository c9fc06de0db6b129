"""The options of one call of `mxr fetch`, as a typed value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from mxr.artifact.request_defaults import NO_DEFAULTS, RequestDefaults
from mxr.display.text import shell_quoted
from mxr.plans.plan import OnMiss
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from mxr.artifact.key import Key
    from mxr.install.placement import Destination
    from mxr.request.builder import RequestOptions
    from mxr_cli.options import Session


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OrtOptions:
    """Which ONNX Runtime opens the model, and how."""

    ort: str | None = None
    ort_python: str | None = None
    ort_migraphx: str | None = None
    ort_level: str | None = None
    ort_bytes: bool = False

    def as_mapping(self) -> dict[str, str]:
        """The options that are set, by name, as `mxr.install.placement.Destination` takes them."""
        values = {
            "ort": self.ort,
            "ort_python": self.ort_python,
            "ort_migraphx": self.ort_migraphx,
            "ort_level": self.ort_level,
            "ort_bytes": self.ort_bytes,
        }
        return {name: str(value) for name, value in values.items() if value}


ORT = ("ort", "ort_python", "ort_migraphx", "ort_level", "ort_bytes")

OPTIONS = (
    click.option(
        "--ort",
        metavar="ORT",
        help="For ort: the ONNX Runtime to serve: its version, its generation (A, B, B', C, D), "
        "or the path of its provider library.",
    ),
    click.option("--ort-python", metavar="PATH", help="For ort: a Python interpreter that has this ONNX Runtime."),
    click.option(
        "--ort-migraphx", metavar="VERSION", help="For ort: the MIGraphX version that the provider was built with."
    ),
    click.option(
        "--ort-level",
        metavar="LEVEL",
        help="For ort: the graph optimization level of the session: all (default), basic, disable.",
    ),
    click.option(
        "--ort-bytes", is_flag=True, help="For ort: the session opens the model from memory, not from a file."
    ),
)


def ort_options(command: F) -> F:
    """Add the options that describe an ONNX Runtime. The function receives them as one `OrtOptions` named `ort`."""

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        given = {name: values.pop(name) for name in ORT}
        return command(ort=OrtOptions(**given), **values)

    decorated = cast(F, run)
    for option in reversed(OPTIONS):
        decorated = option(decorated)
    return decorated


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What one call of `mxr fetch` asks for. The fields are its command line options, except for these:

    `request`: the options that describe the request, with one batch size at most. `batches`: the batch sizes when there
    are several, else empty. `locked`: None without --locked, else the lock file, or "" for the default one. `defaults`:
    of the settings and of the project of the model.
    """

    request: RequestOptions
    batches: tuple[int, ...]
    on_miss: OnMiss
    ort: OrtOptions
    model: str | None = None
    genai_config: str | None = None
    locked: str | None = None
    tag: str | None = None
    output: str | None = None
    per_arch: bool = False
    name: str | None = None
    force: bool = False
    link: bool = False
    offline: bool = False
    refresh: bool = False
    defaults: RequestDefaults = NO_DEFAULTS

    @property
    def placing_words(self) -> str:
        """The options that say where to write the program, as the end of a command line."""
        words = ["-o", self.output] if self.output is not None else []
        words += ["--name", self.name] if self.name is not None else []
        flags = (("--per-arch", self.per_arch), ("--force", self.force), ("--link", self.link))
        words += [flag for flag, given in flags if given]
        return "".join(f" {shell_quoted(word)}" for word in words)

    def folder_of(self, key: Key) -> str:
        """The output path for a request: with `per_arch`, a folder in it with the name of the GPU arch."""
        assert self.output is not None
        return f"{self.output.rstrip('/') or '/'}/{key.arch or key.kind}/" if self.per_arch else self.output

    def destination(self, key: Key) -> Destination | None:
        """Where to write the program for this key; None without --output."""
        if self.output is None:
            return None
        from mxr.install.placement import Destination

        return Destination(self.folder_of(key), self.link, self.force, self.name, self.ort.as_mapping())


def with_defaults(session: Session, options: FetchOptions) -> FetchOptions:
    """The options with the defaults of the settings and of the project, of which several batch sizes make a set."""
    model = options.model
    assert model is not None
    defaults = session.defaults(model)
    options = replace(options, defaults=defaults)
    if len(defaults.batch) < 2 or options.batches or options.request.batch is not None:
        return options
    from mxr.request import model as models

    request, connect = options.request, session.connect(offline=options.offline)
    known = models.find_model(model, session.cache(), connect, follow_links=request.follow_links)
    return replace(options, batches=session.default_batches(request, defaults, known))
