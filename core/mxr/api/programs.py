"""What a program, a model, an error or this host is: `mxr.inspect`, `check`, `explain`, `identity`, `host`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.target import DynamicDim
from mxr.cache.store import Cache
from mxr.host_facts import Host
from mxr.request import model as models
from mxr.request.defaults import this_host
from mxr.settings import Settings
from mxr.util.frozen import dataclass

from .calls import library_call, library_settings, make_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mxr.known_failures.explainer import Explanation
    from mxr.program import Description
    from mxr.request.builder import OptionArguments
    from mxr.request.compatibility import Requirement


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Whether a program loads on a host: each requirement with the needed and the found value."""

    requirements: tuple[Requirement, ...]

    @property
    def fits(self) -> bool:
        """Whether no requirement is violated; one that cannot be judged counts as met."""
        return not self.unmet

    @property
    def unmet(self) -> tuple[Requirement, ...]:
        """The requirements that are violated."""
        return tuple(row for row in self.requirements if row.ok is False)


@library_call
def check(
    file: str | os.PathLike[str],
    *,
    settings: Settings | None = None,
    inputs: Mapping[str, Sequence[int | DynamicDim]] | None = None,
    **options: Unpack[OptionArguments],
) -> Compatibility:
    """Check whether a .mxr file loads on this host, or on the target that the options state, as `mxr check` does.

    Other options, such as batch and precision, are compared with the file, too. Raises `DamagedError`, and `UsageError`
    where neither this host nor the options name a GPU.

        assert mxr.check("model.mxr", arch="gfx908", rocm="7.2", migraphx="2.15").fits
    """
    from mxr.install.folder_check import check_file

    settings = settings or library_settings()
    request = make_options(inputs, options, None)
    return Compatibility(check_file(Path(file), request, this_host(settings, request), Cache.of(settings).memo))


@library_call
def inspect(file: str | os.PathLike[str]) -> Description:
    """Return what a .mxr file was compiled for. Needs neither MIGraphX nor a GPU. Raises `DamagedError`, `UsageError`.

    print(mxr.inspect("model.mxr").archs)
    """
    from mxr.program import describe_file

    return describe_file(file)


@library_call
def explain(text: str | bytes) -> list[Explanation]:
    """Return the known failures in an error message or a log, each with its meaning and its fix; empty for none.

    for each in mxr.explain(open("pod.log", "rb").read()): print(each.means, each.fix)
    """
    from mxr.known_failures.explainer import find_failures

    return find_failures(text)


@library_call
def identity(model: str | os.PathLike[str], *, settings: Settings | None = None) -> str:
    """Return the identity of the model in an ONNX file: "sha256:" and 64 digits.

    Raises `DamagedError` and `UsageError`.

        assert mxr.identity("model.onnx") == mxr.identity("copy.onnx")
    """
    return models.file_identity(Path(model), Cache.of(settings or library_settings()).memo)


@library_call
def host(*, settings: Settings | None = None) -> Host:
    """Return the GPUs, ROCm and MIGraphX of this host. Never opens the GPU.

    print(mxr.host().targets, mxr.host().toolchain.migraphx)
    """
    return this_host(settings or library_settings(), None)
