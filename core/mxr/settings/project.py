"""Finds the files of a project that set request defaults: `mxr.toml`, and `[tool.mxr]` in `pyproject.toml`.

They are looked for in the folder of the model and above it, up to the root of the repository or the home folder. The
nearest file that sets a value wins; in one folder, `mxr.toml` wins. A file that another user owns or can write, or that
a download brought, is not used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mxr.artifact.request_defaults import NAMES, RequestDefaults
from mxr.configuration.config_file import ConfigFile, UntrustedFileError, read_config
from mxr.errors import UsageError
from mxr.util.frozen import dataclass

FILES = (("mxr.toml", ""), ("pyproject.toml", "tool.mxr"))
"""The files of a project, each with the table that has the settings."""

HUB_FOLDERS = ("models--", "datasets--", "spaces--")
"""How the folders of a Hugging Face cache begin. Source: huggingface_hub, "Understand caching"."""

DOWNLOAD_MARKS = (".cache/huggingface/download", ".huggingface/download", ".msc", "._____temp")
"""What a download into a folder leaves there. Sources: huggingface_hub, _local_folder.py, and pull request 2262;
modelscope, hub/utils/caching.py, and hub/snapshot_download.py."""


@dataclass(frozen=True, slots=True)
class ProjectDefaults:
    """What the files of a project set. `unused`: a sentence for each file that is not used."""

    defaults: RequestDefaults
    files: tuple[Path, ...] = ()
    unused: tuple[str, ...] = ()


def find_defaults(start: Path, home: Path | None, elsewhere: tuple[str, ...]) -> ProjectDefaults:
    """Return the defaults for models in the folder `start`.

    `home`: the home folder of the user. `elsewhere`: names of settings that exist and that no project file may set.
    Raises `UsageError` for an invalid file, with the line.
    """
    defaults = RequestDefaults()
    files: list[Path] = []
    unused: list[str] = []
    for folder in _folders(start, home):
        for name, within in FILES:
            path = folder / name
            try:
                file = read_config(path, within)
                # Parsing takes longer than looking for the name, and most projects have no such table.
                if file is None or (within and "mxr" not in file.text):
                    continue
                table = file.table()
                if table is None:
                    continue
                _refuse_download(folder)
            except UntrustedFileError as reason:
                if not within:
                    unused.append(f"{path} is not used: {reason}")
                continue
            defaults = defaults.over(_read(file, table, elsewhere))
            files.append(path)
    return ProjectDefaults(defaults, tuple(files), tuple(unused))


def _folders(start: Path, home: Path | None) -> Iterator[Path]:
    """Yield the folder, and those above it up to the repository or home; without these, only the folder itself."""
    found = []
    for folder in (start, *start.parents):
        found.append(folder)
        if folder == home or os.path.lexists(folder / ".git"):
            yield from found
            return
    yield start


def _refuse_download(folder: Path) -> None:
    """Raise `UntrustedFileError` for a folder that a download brought, by the marks of the tools that download.

    They stand at the top of the download, which the search for settings need not reach.
    """
    if any(part.startswith(HUB_FOLDERS) or part == ".cache" for part in folder.parts):
        raise UntrustedFileError("it came with a download, into a cache")
    for above in (folder, *folder.parents):
        if any(os.path.lexists(above / mark) for mark in DOWNLOAD_MARKS):
            raise UntrustedFileError(f"it came with a download, into {above}")


def _read(file: ConfigFile, table: dict[str, object], elsewhere: tuple[str, ...]) -> RequestDefaults:
    for name in table:
        if name in elsewhere:
            raise file.error(
                name,
                f"a project file cannot set {name}",
                f"Set it for yourself: `mxr config` shows where. A project file can set: {', '.join(NAMES)}.",
            )
    file.check_names(table, NAMES)
    found = RequestDefaults()
    for name, value in table.items():
        try:
            found = RequestDefaults.of({name: value}, str(file.path)).over(found)
        except UsageError as problem:
            # A problem with inputs begins with `inputs.NAME`.
            raise file.error(problem.message.partition(" ")[0], problem.message, problem.hint) from None
    return found
