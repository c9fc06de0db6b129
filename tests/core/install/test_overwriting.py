"""No data loss: what `-o` and other commands write never takes the place of a model or of someone else's file."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import onnx
import pytest
from core.cache.test_store import opened
from core.consumers.parts import BATCH_64, delivery, held, place
from onnx import TensorProto, helper
from paths import DATA
from strategies import GPU

from mxr import consumers
from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.artifact.matching import Match
from mxr.cache.store import Answer, Cache
from mxr.errors import DiskFullError, MxrError, WouldOverwriteError
from mxr.install import ledger, variant_set
from mxr.install.placement import Destination, place_artifact, place_files
from mxr.onnxfile import read_model
from mxr.request.builder import PreparedRequest
from mxr.request.model import ModelReference
from mxr.util import disk, hashing
from mxr.workflows.fetch import Fetched
from mxr.workflows.freeze import freeze_batches

ONNX = (DATA / "models" / "convnet.onnx").read_bytes()
PYTHON, AMDINFER, TRITON, REPO = map(consumers.find_consumer, ("python", "amdinfer", "triton", "amdinfer-repo"))
OTHERS = {
    "model": replace(GPU, model="sha256:" + "ab" * 32),
    "arch": replace(GPU, arch="gfx908"),
    "shapes": replace(GPU, inputs=(("x", (8, 3, 96, 96)),)),
    "precision": replace(GPU, precision=("fp16",)),
}
NEWER = replace(GPU, migraphx="2.16", rocm="7.3")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return opened(tmp_path / "cache")


@pytest.fixture
def model(tmp_path: Path) -> ModelReference:
    """A model with external data."""
    path = tmp_path / "home" / "m.onnx"
    path.parent.mkdir()
    path.write_bytes(ONNX)
    (path.parent / "m.data").write_bytes(b"weights")
    return ModelReference(GPU.model, read_model(path), path, (("m.data", path.parent / "m.data"),))


def fetch(
    cache: Cache, model: ModelReference, where: object, key: Key = GPU, data: bytes = b"program", **how: bool
) -> Path:
    """`mxr fetch m.onnx -o WHERE` for the consumer python."""
    held(cache, data)
    made = delivery(Path("/"), key, data)
    fetched = Fetched(cache.file_path(made.program), "cache", Answer(made.artifact, Match()))
    asked = PreparedRequest.of(Request(key), model, PYTHON)
    return place_artifact(fetched, cache, asked, Destination(str(where), **how)).path


def other_names(path: Path, tmp_path: Path) -> Iterator[Path]:
    """Further names of a file: as it is, other spellings, links."""
    yield from (path, Path(f"{path.parent}/../{path.parent.name}/./{path.name}"))
    for name, make in (("hard", os.link), ("soft", os.symlink)):
        make(path, tmp_path / f"{name}-{path.name}")
        yield tmp_path / f"{name}-{path.name}"
    (tmp_path / f"folder-{path.name}").symlink_to(path.parent)
    yield tmp_path / f"folder-{path.name}" / path.name


@pytest.mark.parametrize("force", [False, True])
def test_the_model_is_never_replaced_by_whatever_name(
    cache: Cache, model: ModelReference, tmp_path: Path, force: bool
) -> None:
    for file in model.files:
        before = file.read_bytes()
        for name in (*other_names(file, tmp_path), Path(os.path.relpath(file))):
            with pytest.raises(WouldOverwriteError, match="the model"):
                fetch(cache, model, name, force=force)
            assert file.read_bytes() == before and file.samefile(name)
    lone = ModelReference(GPU.model, model.onnx)
    with pytest.raises(WouldOverwriteError, match="an ONNX model"):
        fetch(cache, lone, model.files[0], force=force)
    assert model.files[0].read_bytes() == ONNX, "a model by hash has no file, but this is one"
    assert not (tmp_path / "home" / ledger.NAME).exists()


def test_a_plain_file_replaces_only_what_was_placed_for_the_same_subject(
    cache: Cache, model: ModelReference, tmp_path: Path
) -> None:
    out = tmp_path / "out" / "m.mxr"
    for key, data in ((GPU, b"program"), (GPU, b"program"), (NEWER, b"newer toolchain")):
        assert fetch(cache, model, out, key, data).read_bytes() == data
    for what, key in OTHERS.items():
        with pytest.raises(WouldOverwriteError, match=f"{what} .* there") as caught:
            fetch(cache, model, out, key, what.encode())
        assert str(out) in caught.value.message and "--force" in caught.value.hint
    assert out.read_bytes() == b"newer toolchain"
    fetch(cache, model, out, OTHERS["arch"], b"forced", force=True)
    with pytest.raises(WouldOverwriteError, match="arch"):
        fetch(cache, model, out)
    out.write_bytes(b"edited")
    with pytest.raises(WouldOverwriteError, match="changed after mxr placed it"):
        fetch(cache, model, out, OTHERS["arch"], b"again")
    assert out.read_bytes() == b"edited"
    (out.parent / ledger.NAME).unlink()
    with pytest.raises(WouldOverwriteError, match="is not what mxr placed"):
        fetch(cache, model, out)


def test_strangers_files_links_pipes_and_folders_are_named_and_stay(
    cache: Cache, model: ModelReference, tmp_path: Path
) -> None:
    stranger = tmp_path / "precious.txt"
    stranger.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(stranger)
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    for name, says in (
        ("precious.txt", "exists and is not"),
        ("link", "a symbolic link to"),
        ("broken", "a symbolic link to"),
        ("pipe", "a device or a pipe"),
    ):
        with pytest.raises(WouldOverwriteError, match=says):
            fetch(cache, model, tmp_path / name)
    (tmp_path / "link-to-pipe").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link-to-pipe"):
        with pytest.raises(WouldOverwriteError, match="a device or a pipe"):
            fetch(cache, model, tmp_path / name, force=True)
    assert (tmp_path / "link-to-pipe").is_symlink()
    fetch(cache, model, tmp_path / "link", force=True)
    assert stranger.read_bytes() == b"precious" and not (tmp_path / "link").is_symlink()
    held(cache, b"program")
    inside = cache.file_path(sha256(b"program").hexdigest())
    with pytest.raises(WouldOverwriteError, match="inside the cache"):
        fetch(cache, model, inside, force=True)
    assert inside.read_bytes() == b"program"


@pytest.mark.parametrize("name", ["amdinfer", "triton", "amdinfer-repo"])
def test_two_archs_in_one_consumer_folder_do_not_replace_one_another(cache: Cache, tmp_path: Path, name: str) -> None:
    consumer, folder = consumers.find_consumer(name), tmp_path / "o"
    place(consumer, cache, delivery(folder, BATCH_64))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for what, key in OTHERS.items():
        if what == "shapes":
            key = replace(GPU, inputs=(("x", (64, 3, 96, 96)),))
        else:
            key = replace(key, inputs=BATCH_64.inputs)
        with pytest.raises(WouldOverwriteError, match=f"{what} .* there"):
            place(consumer, cache, delivery(folder, key, b"other"), b"other")
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    newer = replace(BATCH_64, migraphx="2.16")
    place(consumer, cache, delivery(folder, newer, b"newer"), b"newer")
    place(consumer, cache, delivery(folder, replace(newer, arch="gfx908"), b"forced"), b"forced", force=True)


def test_a_layout_never_replaces_the_model(cache: Cache, model: ModelReference) -> None:
    home = model.files[0].parent
    program = home / "m_b8.mxr"
    model.files[0].rename(program)
    assert AMDINFER.lay_out is not None
    made = delivery(home)
    held(cache, b"program")
    from mxr.install.consumer_folder import write_layout

    with pytest.raises(WouldOverwriteError, match="the model"):
        write_layout(AMDINFER.lay_out(made), made, "amdinfer", cache, force=True, model_files=(program,))
    assert program.read_bytes() == ONNX


@contextmanager
def meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> Iterator[None]:
    """Do something once, after mxr checked what it may replace and before it writes the first byte."""
    real, waiting = disk.partial_name, [action]

    def meddled(*arguments: Any) -> Path:
        while waiting:
            waiting.pop()()
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "partial_name", meddled)
        yield
    assert not waiting


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("how", [{}, {"force": True}, {"link": True}], ids=str)
def test_a_file_that_appears_while_a_program_is_copied_stays(
    cache: Cache,
    model: ModelReference,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, bool],
    links: bool,
) -> None:
    if not links and how.get("link"):
        return
    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "no links here")))
    out = tmp_path / "o" / "m.mxr"
    out.parent.mkdir()
    with (
        meanwhile(monkeypatch, lambda: out.write_bytes(b"precious")),
        pytest.raises(WouldOverwriteError, match="appeared while"),
    ):
        fetch(cache, model, out, **how)
    assert out.read_bytes() == b"precious"
    out.unlink()
    fetch(cache, model, out, **how)
    with (
        meanwhile(monkeypatch, lambda: disk.write_whole(out, b"precious")),
        pytest.raises(WouldOverwriteError, match="changed while"),
    ):
        fetch(cache, model, out, NEWER, b"newer", **how)
    assert out.read_bytes() == b"precious"
    assert [path.name for path in out.parent.iterdir() if path.name.startswith(disk.PARTIAL)] == []


def test_a_file_with_the_right_bytes_is_neither_read_nor_written_again(
    cache: Cache, model: ModelReference, on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, there = on_disk / "new" / "m.mxr", on_disk / "there" / "m.mxr"
    there.parent.mkdir()
    for out in (new, there):
        fetch(cache, model, out)
        before = out.stat()
        with monkeypatch.context() as patched:
            patched.setattr(hashing, "_hash_file", Mock(side_effect=AssertionError("it was read")))
            # As on a read-only file system: nothing new is needed beside it.
            patched.setattr(disk, "partial_name", Mock(side_effect=AssertionError("something was written")))
            fetch(cache, model, out)
        assert hashing.identity(out.stat()) == hashing.identity(before)
        # What changed is seen, however soon.
        disk.write_whole(out, b"PROGRAM")
        with pytest.raises(WouldOverwriteError, match="changed after mxr placed it"):
            fetch(cache, model, out)
        fetch(cache, model, out, force=True)
        assert out.read_bytes() == b"program"


def test_a_link_to_the_cache_becomes_a_copy_where_none_is_requested(
    cache: Cache, model: ModelReference, tmp_path: Path
) -> None:
    out, kept = tmp_path / "o" / "m.mxr", cache.file_path(sha256(b"program").hexdigest())
    fetch(cache, model, out, link=True)
    fetch(cache, model, out, link=True)
    assert out.samefile(kept)
    fetch(cache, model, out)
    assert not out.samefile(kept) and out.read_bytes() == b"program"


def test_a_folder_that_appears_while_a_program_is_copied_keeps_its_files(
    cache: Cache, model: ModelReference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "o" / "m.mxr"

    def appear(name: str) -> None:
        out.parent.mkdir()
        (out.parent / name).write_bytes(b"precious")

    with (
        meanwhile(monkeypatch, lambda: appear("m.mxr")),
        pytest.raises(WouldOverwriteError, match="is not what mxr placed"),
    ):
        fetch(cache, model, out)
    assert out.read_bytes() == b"precious" and len(list(out.parent.iterdir())) == 1
    shutil.rmtree(out.parent)
    with meanwhile(monkeypatch, lambda: appear("other")):
        fetch(cache, model, out)
    assert (out.parent / "other").read_bytes() == b"precious" and out.read_bytes() == b"program"
    assert sorted(path.name for path in out.parent.iterdir()) == [ledger.NAME, "m.mxr", "other"]


def test_a_full_disk_leaves_no_part_of_a_lock(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: delivery(Path("/"), GPU, name.encode()) for name in ("a.mxr", "b.mxr")}
    rows = {name: (each.artifact, Request(GPU), "python") for name, each in made.items()}
    for name in made:
        held(cache, name.encode())
    real = disk.copy_whole

    def full(source: Path, final: Path, before: Any = None) -> None:
        if final.name == "b.mxr":
            raise DiskFullError("full")
        real(source, final, before)

    new, there = tmp_path / "o" / "new", tmp_path / "o" / "there"
    there.mkdir(parents=True)
    for folder in (new, there):
        with monkeypatch.context() as patched, pytest.raises(DiskFullError):
            patched.setattr(disk, "copy_whole", full)
            place_files(folder, rows, cache)
        assert [path.name for path in (tmp_path / "o").rglob("*") if path.is_file()] in ([], [ledger.NAME])
        place_files(folder, rows, cache)
        assert sorted(path.name for path in folder.iterdir()) == [ledger.NAME, "a.mxr", "b.mxr"]
        shutil.rmtree(folder)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["amdinfer", "triton", "amdinfer-repo"])
def test_files_that_appear_or_change_while_a_layout_is_written_stay(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, force: bool
) -> None:
    consumer = consumers.find_consumer(name)
    newer = replace(BATCH_64, migraphx="2.16")
    whole = place(consumer, cache, delivery(tmp_path / "whole", BATCH_64))
    for piece in whole.pieces:
        folder = tmp_path / "new" / piece.name.replace("/", "-")
        stranger = folder / piece.name

        def appear(stranger: Path = stranger) -> None:
            stranger.parent.mkdir(parents=True, exist_ok=True)
            stranger.write_bytes(b"precious")

        with meanwhile(monkeypatch, appear), suppress(MxrError):
            place(consumer, cache, delivery(folder, BATCH_64), force=force)
        assert stranger.read_bytes() == b"precious"
        if piece.data is None:
            folder = tmp_path / "old" / piece.name.replace("/", "-")
            stranger = folder / piece.name
            place(consumer, cache, delivery(folder, BATCH_64))
            # Triton gets a new version in a folder of its own.
            refused = nullcontext() if name == "triton" else pytest.raises(WouldOverwriteError, match="changed while")
            with (
                meanwhile(monkeypatch, lambda stranger=stranger: disk.write_whole(stranger, b"precious")),
                refused,
            ):
                place(consumer, cache, delivery(folder, newer, b"newer"), b"newer", force=force)
            assert stranger.read_bytes() == b"precious"


def test_force_replaces_no_external_data_of_another_model(cache: Cache, model: ModelReference, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "data").mkdir(parents=True)
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="data/w.mxr")
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [y], initializer=[weights])
    onnx.save(helper.make_model(graph), other / "other.onnx")
    (other / "broken.onnx").write_bytes(b"not a model")
    os.mkfifo(other / "pipe.onnx")
    (other / "data" / "w.mxr").write_bytes(b"weights")
    for force in (False, True):
        with pytest.raises(
            WouldOverwriteError, match=r"external data of .*other\.onnx" if force else "is not what mxr"
        ):
            fetch(cache, model, other / "data" / "w.mxr", force=force)
    (other / "link.mxr").symlink_to(other / "data" / "w.mxr")
    with pytest.raises(WouldOverwriteError, match="external data of"):
        fetch(cache, model, other / "link.mxr", force=True)
    assert (other / "data" / "w.mxr").read_bytes() == b"weights"


def test_a_set_replaces_neither_another_set_nor_strangers(
    cache: Cache, model: ModelReference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "set"

    def put(key: Key = GPU, force: bool = False) -> None:
        held(cache, b"program")
        made = delivery(Path("/"), key, b"program")
        fetched = {8: Fetched(cache.file_path(made.program), "cache", Answer(made.artifact, Match()))}
        subject = replace(model, identity=key.model)
        variant_set.place_set(
            fetched, {8: PreparedRequest.of(Request(key), subject, PYTHON)}, str(folder), cache, force=force
        )

    folder.mkdir()
    (folder / variant_set.LIST).write_text("mine")
    with pytest.raises(WouldOverwriteError, match="belongs to something else"):
        put()
    assert (folder / variant_set.LIST).read_text() == "mine" and len(list(folder.iterdir())) == 1
    put(force=True)
    put()
    with pytest.raises(WouldOverwriteError, match="belongs to something else"):
        put(OTHERS["model"])
    for name in ("m.mxr", variant_set.LIST):
        shutil.rmtree(folder)
        folder.mkdir()
        for expected in ("appeared while", "changed while"):
            path = folder / name
            real = ledger.write_ledger

            def slow(*arguments: Any, path: Path = path, real: Any = real) -> None:
                real(*arguments)
                disk.write_whole(path, b"precious")

            with (
                monkeypatch.context() as patched,
                pytest.raises(WouldOverwriteError, match=rf"{expected}|belongs to something else"),
            ):
                patched.setattr(ledger, "write_ledger", slow)
                put(NEWER)
            assert path.read_bytes() == b"precious"
            shutil.rmtree(folder)
            folder.mkdir()
            put()
    (folder / "m.mxr").write_bytes(b"edited")
    with pytest.raises(WouldOverwriteError, match="changed after"):
        put()
    assert (folder / "m.mxr").read_bytes() == b"edited"


def test_freeze_never_writes_over_the_model(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(ONNX)
    (tmp_path / "m.b4.onnx").hardlink_to(model)
    with pytest.raises(WouldOverwriteError, match="the model itself"):
        freeze_batches(model, tmp_path, [4], force=True)
    (tmp_path / "m.b2.onnx").symlink_to(tmp_path / "nothing")
    with pytest.raises(WouldOverwriteError, match="already exists"):
        freeze_batches(model, tmp_path, [2])
    assert model.read_bytes() == ONNX


def test_documents_replace_only_documents_of_their_kind(tmp_path: Path) -> None:
    from mxr.bundle.exporter import _is_bundle
    from mxr.plans.lockfile import LockFile, save_lock

    def kept(path: Path, write: Callable[[], object]) -> None:
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises((WouldOverwriteError, MxrError)):
            write()
        assert before is None or path.read_bytes() == before

    save_lock(LockFile(()), tmp_path / "mxr.lock")
    save_lock(LockFile(()), tmp_path / "mxr.lock")
    (tmp_path / "m.onnx").write_bytes(ONNX)
    (tmp_path / "link.lock").symlink_to(tmp_path / "m.onnx")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("m.onnx", "link.lock", "folder", "pipe"):
        kept(tmp_path / name, lambda name=name: save_lock(LockFile(()), tmp_path / name))
        kept(tmp_path / name, lambda name=name: disk.refuse_other(tmp_path / name, "a bundle", _is_bundle))
    assert (tmp_path / "m.onnx").read_bytes() == ONNX
