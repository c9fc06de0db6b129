"""Putting an artifact where `-o` says: one plain file, or the layout that its consumer looks for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from mxr import onnxfile
from mxr.artifact.manifest import check_name
from mxr.cache.store import Cache
from mxr.consumers import Delivery, Layout
from mxr.errors import NoSuchModel, NotAllowed, Usage
from mxr.onnxfile import OnnxModel
from mxr.request.builder import BuiltRequest
from mxr.request.model import ModelReference
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Connect, Fetched

from . import consumer_folder


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """How `-o` was asked for: the path, a hard link instead of a copy, over foreign files too, another stem.

    `said` is what is said for one consumer alone, by the names of the options.
    """

    output: str | os.PathLike[str]
    link: bool = False
    force: bool = False
    name: str | None = None
    said: Mapping[str, str] = field(default_factory=dict)

    def stem(self, subject: ModelReference) -> str:
        """What the model is called in the folder."""
        return self.name or subject.stem


@dataclass(frozen=True, slots=True)
class Placement:
    """What was placed: the path to tell, all files, and the settings that make the consumer use them."""

    path: Path
    files: tuple[Path, ...]
    settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A layout that is ready to be put down, and what it was made of."""

    layout: Layout
    made: Delivery
    consumer: str


def check(asked: BuiltRequest, subject: ModelReference, wish: OutputRequest, *, offline: bool = False) -> None:
    """Finds out before anything moves whether the output can be written as asked. Raises `Usage`."""
    consumer = asked.consumer
    if not os.fspath(wish.output):
        raise Usage("The output path is empty.", hint="Give -o PATH, or leave it out.")
    if not lays_out(asked, wish):
        if is_folder(wish.output):
            consumer.file_name(wish.stem(subject), asked.request.key)
        return
    if Path(wish.output).exists() and not Path(wish.output).is_dir():
        raise Usage(f"{consumer.name} needs a folder, and {wish.output} is a file.", hint="Give -o FOLDER/.")
    check_stem(wish.stem(subject))
    consumer.check(wish.stem(subject), asked.request.key)
    if consumer.needs_model and subject.path is None and offline:
        raise Usage(f"{consumer.name} needs the model itself.", hint="Give the ONNX file instead of its hash.")


def check_stem(stem: str) -> str:
    """`stem`, when a model can be called so in a folder. Raises `Usage`."""
    consumer_folder.check_part(stem)
    if "/" in check_name(stem):
        raise Usage(f"{stem!r} is no name of a model.", hint="Give --name without a slash.")
    return stem


def deliver(
    fetched: Fetched,
    cache: Cache,
    asked: BuiltRequest,
    subject: ModelReference,
    wish: OutputRequest,
    connect: Connect | None = None,
) -> Placement:
    """Puts a program where `wish` says, in the layout of its consumer. Raises `Usage`, `NotAllowed`, a disk fault."""
    if lays_out(asked, wish):
        return put(plan(fetched, cache, asked, subject, wish, connect), cache, wish)
    path = _place_file(fetched, cache, asked, wish, wish.stem(subject))
    tell = asked.consumer.tell
    return Placement(path, (path,), tell(path.absolute(), asked.request.key) if tell else ())


def plan(
    fetched: Fetched,
    cache: Cache,
    asked: BuiltRequest,
    subject: ModelReference,
    wish: OutputRequest,
    connect: Connect | None = None,
) -> PlacementPlan:
    """The layout of a program for its consumer; nothing is written yet. Raises `Usage`."""
    consumer = asked.consumer
    assert consumer.lay_out is not None
    if len(fetch_workflow.files_of(fetched.answer)) != 1:
        raise Usage(f"This artifact has several files, which {consumer.name} cannot use.", hint="Leave -o out.")
    onnx = subject.onnx
    if consumer.needs_model and subject.path is None:
        onnx = _kept_onnx(subject.model, cache, connect)
    made = Delivery(
        stem=wish.stem(subject),
        key=asked.request.key,
        demands=asked.request.demands,
        artifact=fetched.answer.artifact,
        inputs=onnx.inputs,
        outputs=onnx.outputs,
        folder=Path(wish.output).absolute(),
        model=subject.path,
        said=wish.said,
    )
    return PlacementPlan(consumer.lay_out(made), made, consumer.name)


def put(planned: PlacementPlan, cache: Cache, wish: OutputRequest) -> Placement:
    """Puts a layout down. Raises `NotAllowed` over files of others, or a disk fault."""
    layout, folder = planned.layout, Path(wish.output)
    consumer_folder.put(layout, planned.made, planned.consumer, cache, link=wish.link, force=wish.force)
    files = tuple(folder / piece.name for piece in layout.pieces)
    return Placement(folder / layout.path, files, layout.settings, layout.notes)


def lays_out(asked: BuiltRequest, wish: OutputRequest) -> bool:
    """Whether the consumer's own layout is wanted: with one plain file, a path that is no folder names that file."""
    consumer = asked.consumer
    if consumer.lay_out is None:
        return False
    return consumer.name_file is None or is_folder(wish.output)


def is_folder(output: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder, or is written as one (a `Path` forgets the slash)."""
    return os.fspath(output).endswith("/") or Path(output).is_dir()


def _place_file(fetched: Fetched, cache: Cache, asked: BuiltRequest, wish: OutputRequest, stem: str) -> Path:
    """Puts a program at the path itself, or in that folder under the name that the consumer looks for.

    What is put there is a reflink or a copy, so that nobody who writes to it harms the cache, unless a hard link is
    wished for.
    """
    files = fetch_workflow.files_of(fetched.answer)
    if len(files) != 1:
        raise Usage(f"This artifact has {len(files)} files, which mxr cannot lay out so.", hint="Leave -o out.")
    final = Path(wish.output)
    if is_folder(wish.output):
        final /= asked.consumer.file_name(stem, asked.request.key)
    source = cache.file(files[0].sha256)
    if final.exists() and final.samefile(source):
        if wish.link:
            return final
        raise NotAllowed(f"{final} is the file in the cache itself.", hint="Give another path with -o.")
    (disk.link_whole if wish.link else disk.copy_whole)(source, final)
    return final


def _kept_onnx(model: str, cache: Cache, connect: Connect | None) -> OnnxModel:
    """What the ONNX file says of a model that is known by its hash: the file that the registry keeps for compiling.

    Raises `NoSuchModel` where nobody has it, `Unreachable`.
    """
    known = connect().model(model) if connect else None
    files = {file.name: file for file in known.manifest.files} if known and known.manifest else {}
    file = files.get((known and known.onnx) or "")
    if file is None or connect is None:
        raise NoSuchModel(
            f"The ONNX file of {model} is needed, and the registry does not keep it.",
            hint="Give the ONNX file itself instead of its hash.",
        )
    if not cache.holds(file.sha256):
        from mxr.client import transfer

        transfer.download(connect(), file, cache.file(file.sha256))
    return onnxfile.read_model(cache.file(file.sha256))
