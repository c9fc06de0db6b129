"""Determines which naming contract an ONNX Runtime follows, and with which MIGraphX its provider was built.

The version alone is not sufficient: ROCm's builds of a version differ from upstream's. The provider's library is the
source of truth. It is read as a file; nothing is imported or loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from mxr.artifact.target import ROCM_OF
from mxr.errors import UsageError
from mxr.facts import stated

GENERATIONS = {
    "A": "ONNX Runtime 1.19 to 1.22: one literal path",
    "B": "ONNX Runtime 1.23 to 1.27: a folder of hashed names",
    "B'": "ROCm's builds with pull request 235: like B, with every byte of the shape hashed",
    "C": "ROCm's builds of 2026 with dynamic batches",
    "D": "the provider as a plugin (onnxruntime-ep-migraphx)",
}
LIBRARY = "libonnxruntime_providers_migraphx.so"
PLUGIN = re.compile(r"(lib)?(onnxruntime-ep-)?(migraphx-ep|migraphx-backend|amdgpu).*\.so.*")
PLUGIN_PACKAGES = ("onnxruntime_ep_migraphx", "onnxruntime_ep_amdgpu")
"""The Python packages that hold the plugin's library, beside a plain onnxruntime. Source: onnxruntime-ep-amdgpu,
src/migraphx/pyproject.toml and src/migraphx/CMakeLists.txt; AMD's installation pages of ROCm 10.0."""
MAX_LIBRARY_BYTES = 256 * 1024 * 1024

BUILT_WITH = {rocm: f"{migraphx}.0" for migraphx, rocm in ROCM_OF.items()}
"""The MIGraphX version of each ROCm release, for a provider whose library names only the folder of its ROCm. The entry
for 7.2 is confirmed by the file names of the public wheel of 1.27.1."""


@dataclass(frozen=True, slots=True)
class Contract:
    """A naming contract: its generation, the ONNX Runtime version if known, the MIGraphX version that the provider was
    built with if known, and notes on how they were determined.
    """

    generation: str
    version: str | None = None
    provider: str | None = None
    notes: tuple[str, ...] = ()


def choose_contract(runtime: str | None, provider: str | None = None) -> Contract:
    """The contract for the value of `--ort`: a generation, a version, or the path of the provider's library.

    None selects the installed ONNX Runtime. `provider` overrides the MIGraphX version that the provider was built with.
    Raises `UsageError` if the contract cannot be determined.
    """
    if runtime is None:
        found = installed()
    elif runtime.upper() in GENERATIONS:
        found = Contract(runtime.upper())
    elif re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)?", runtime):
        found = of_version(runtime)
    else:
        found = of_library(Path(runtime))
    return replace(found, provider=provider or found.provider)


def _hint() -> str:
    given = f"{stated('ort', 'GENERATION')} ({', '.join(GENERATIONS)})"
    return f"Use {given}, or {stated('ort', 'PATH')} with the path of the provider's library."


def of_version(version: str) -> Contract:
    """The contract of an upstream release. Raises `UsageError` if builds of that version have different contracts."""
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) <= (1, 21):
        return Contract("A", version)
    if major == 1 and 24 <= minor <= 27:
        return Contract("B", version)
    raise UsageError(
        f"Builds of ONNX Runtime {version} use different file names, so its version does not determine them.",
        hint=_hint(),
    )


def installed() -> Contract:
    """The contract of the onnxruntime that this interpreter would import: of the provider in it, else of a plugin.

    Raises `UsageError`.
    """
    runtime = [folder / "capi" for folder in _folders("onnxruntime")]
    for folder in runtime:
        if (library := folder / LIBRARY).is_file():
            return of_library(library)
    for package in PLUGIN_PACKAGES:
        for folder in _folders(package):
            for library in sorted(folder.glob("*.so*")):
                if PLUGIN.fullmatch(library.name) and library.is_file():
                    found = of_library(library)
                    return replace(found, version=next(filter(None, map(_version_in, runtime)), None))
    raise UsageError("No ONNX Runtime with a MIGraphX provider is installed in mxr's environment.", hint=_hint())


def _folders(package: str) -> list[Path]:
    """The folders of a package. It is not imported."""
    from importlib.util import find_spec

    spec = find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def of_library(library: Path) -> Contract:
    """The contract of a provider's library, determined from its strings. Raises `UsageError`."""
    try:
        if library.stat().st_size > MAX_LIBRARY_BYTES:
            raise UsageError(f"{library} is too large to be a provider's library.", hint=_hint())
        data = library.read_bytes()
    except OSError as problem:
        raise UsageError(f"{library} cannot be read: {problem.strerror}.", hint=_hint()) from None
    generation = _generation(data, library.name)
    if generation is None:
        raise UsageError(f"{library} is not the library of a MIGraphX provider.", hint=_hint())
    rocm = re.search(rb"/opt/rocm-([0-9]+\.[0-9]+)\.", data)
    provider = BUILT_WITH.get(rocm[1].decode()) if rocm else None
    notes = [f"{library.name} has generation {generation} ({GENERATIONS[generation]})"]
    if provider and rocm:
        notes.append(f"it was built for ROCm {rocm[1].decode()}, which has MIGraphX {provider}")
    return Contract(generation, _version_in(library.parent), provider, tuple(notes))


def _generation(data: bytes, name: str) -> str | None:
    """Each generation reads an option or variable that the earlier ones do not have. B' cannot be told from B."""
    if b"ORT_MIGRAPHX_DISABLE_COMPILED_MODEL_CACHING" in data or (PLUGIN.fullmatch(name) and b"cache_dir" in data):
        return "D"
    if b"migraphx_compile_batches" in data or b"migraphx_max_dynamic_batch" in data:
        return "C"
    if b"migraphx_model_cache_dir" in data:
        return "B"
    return "A" if b"migraphx_load_compiled_model" in data or b"ORT_MIGRAPHX_LOAD_COMPILED_MODEL" in data else None


def _version_in(folder: Path) -> str | None:
    """The version of the wheel that has this folder, from the name of the runtime's own library in it."""
    for each in folder.glob("libonnxruntime.so.*"):
        if found := re.fullmatch(r"libonnxruntime\.so\.([0-9]+\.[0-9]+\.[0-9]+)", each.name):
            return found[1]
    return None
