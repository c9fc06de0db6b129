"""The options of one call of `mxr fetch`, as a typed value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mxr.artifact.request_defaults import NO_DEFAULTS, RequestDefaults
from mxr.display.text import shell_quoted
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from mxr.artifact.key import Key
    from mxr.install.placement import Destination
    from mxr.request.builder import RequestOptions
    from mxr_cli.on_miss import OnMiss
    from mxr_cli.options import Session

    from .ort_options import OrtOptions


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
