"""The identity of models against the words of docs/keys.md, files that change meanwhile, and pieces of any shape."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.meddling import Meddler, grow
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st
from identities import model_of

from mxr.artifact import model_files
from mxr.artifact.manifest import Blob, File, Manifest
from mxr.artifact.model_files import PIECE, ModelFiles, PiecedFile, model_identity
from mxr.errors import TemporaryError, UsageError

FILES = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5),
    st.binary(max_size=9),
    max_size=4,
)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the many files that hypothesis makes."""
    return tmp_path_factory.mktemp("models")


def test_known_answers() -> None:
    """Two identities computed by hand with sha256sum, so that no later change moves them."""
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    empty = ModelFiles(PiecedFile(0, ()))
    assert empty.model == "sha256:108c664ed4670560b26adc89987f945bc2b73702cc6f5538275bca865db7208d"
    two = ModelFiles(PiecedFile(3, (abc,)), (("é", PiecedFile(0, ())), ("b", PiecedFile(3, (abc,)))))
    assert two.model == "sha256:a92c18e572231ef396174e1132e6676d19a892ea96db639a6abf17ed39e6f6ac"


@given(st.binary(max_size=20), FILES, st.randoms(use_true_random=False))
def test_the_identity_is_as_documented_in_any_order(
    folder: Path, onnx: bytes, external: dict[str, bytes], rng: random.Random
) -> None:
    model = written(folder / "model.onnx", onnx)
    files = [(name, written(folder / f"data{at}", content)) for at, (name, content) in enumerate(external.items())]
    rng.shuffle(files)
    assert model_identity(model, files) == model_of(onnx, external)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_pieces_of_large_files_in_any_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Sizes around the piece, here of 64 KiB: the words of the documentation are the same for any size."""
    monkeypatch.setattr(model_files, "threads", lambda: count)
    for module in ("mxr.artifact.model_files.PIECE", "identities.PIECE"):
        monkeypatch.setattr(module, 1 << 16)
    external = {f"d{size}": random.Random(size).randbytes(size) for size in (0, 1, 65535, 65536, 65537, 200_000)}
    files = [(name, written(tmp_path / name, data)) for name, data in external.items()]
    onnx = random.Random(0).randbytes(131_072)
    assert model_identity(written(tmp_path / "m", onnx), files) == model_of(onnx, external)


def test_a_real_piece_has_64_mib(tmp_path: Path) -> None:
    model = tmp_path / "m"
    model.touch()
    os.truncate(model, PIECE + 1)
    assert PIECE == 67_108_864
    assert model_identity(model, ()) == model_of(bytes(PIECE + 1))


def test_names_and_places_of_bytes_matter(tmp_path: Path) -> None:
    model, empty = written(tmp_path / "m", b"onnx"), written(tmp_path / "e", b"")
    data, longer = written(tmp_path / "d", b"data"), written(tmp_path / "l", b"onnxdata")
    asked: list[tuple[Path, list[tuple[str, Path]]]] = [
        (model, []),
        (longer, []),
        (model, [("d", data)]),
        (model, [("e", data)]),
        (model, [("./d", data)]),
        (model, [("d", data), ("e", empty)]),
        (model, [("d", empty), ("e", data)]),
        (longer, [("d", empty)]),
    ]
    assert len({model_identity(*each) for each in asked}) == len(asked)
    assert model_identity(model, []) == model_identity(written(tmp_path / "other name", b"onnx"), [])


def test_files_that_cannot_be_read_are_usage(tmp_path: Path) -> None:
    model = written(tmp_path / "m", b"onnx")
    for asked in ((tmp_path / "absent", ()), (model, [("d", tmp_path / "absent")])):
        with pytest.raises(UsageError, match=r"There is no file .*absent"):
            model_identity(*asked)
    with pytest.raises(UsageError, match="Cannot read"):
        model_identity(tmp_path, ())


MEDDLINGS: list[Callable[[Path], object]] = [
    grow,
    lambda path: written(path.with_name("other"), b"other").replace(path),
    lambda path: os.truncate(path, 3),
    lambda path: path.write_bytes(b"NEW!!"),
    lambda path: os.utime(path, ns=(2, 2)),
]


@pytest.mark.parametrize("meddle", MEDDLINGS)
@pytest.mark.parametrize("victim", ["model", "data", "empty"])
def test_a_file_that_changes_while_the_model_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meddle: Callable[[Path], object], victim: str
) -> None:
    contents = {"model": b"bytes", "data": b"bytes", "empty": b""}
    files = {name: written(tmp_path / name, data) for name, data in contents.items()}
    for path in files.values():
        os.utime(path, ns=(1, 1))  # so that the change shows, however coarse the clock of the file system is
    monkeypatch.setattr(model_files, "threads", lambda: 1)  # one thread, so that it meddles once at a time
    real = hashlib.sha256

    def begin(*data: bytes) -> object:
        return real(*data) if data else Meddler(lambda: meddle(files[victim]))

    monkeypatch.setattr(hashlib, "sha256", begin)
    with pytest.raises(TemporaryError, match=f"{victim} changed while it was being read") as caught:
        model_identity(files["model"], [("data", files["data"]), ("empty", files["empty"])])
    assert caught.value.exit == 75


SHA = "ab" * 32
ONE = PiecedFile(1, (SHA,))


@for_each(
    [
        (1, ()),
        (0, (SHA,)),
        (PIECE, (SHA, SHA)),
        (PIECE + 1, (SHA,)),
        (-1, ()),
        (2**60, ()),
        (1, (SHA.upper(),)),
        (1, (SHA + "\n",)),
        (1, ("",)),
    ]
)
def test_files_that_have_no_such_pieces(size: int, pieces: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        PiecedFile(size, pieces)


@pytest.mark.parametrize(
    ("onnx", "external"),
    [
        (ONE, [("a", ONE), ("a", ONE)]),
        (ONE, [("", ONE)]),
        (ONE, [("a\0", ONE)]),
        (ONE, [("\ud800", ONE)]),
        (ONE, [(str(at), PiecedFile(0, ())) for at in range(1000)]),
        (PiecedFile(20_001 * PIECE, (SHA,) * 20_001), []),
    ],
    ids=range(6),
)
def test_files_that_are_no_model(onnx: PiecedFile, external: list[tuple[str, PiecedFile]]) -> None:
    with pytest.raises(UsageError):
        ModelFiles(onnx, tuple(external))


def test_a_manifest_of_other_pieces_is_no_model() -> None:
    def manifest(*sizes: int) -> Manifest:
        blobs = tuple(Blob(SHA, size) for size in sizes)
        return Manifest((File("m.onnx", sum(sizes), SHA if len(sizes) == 1 else "cd" * 32, blobs),))

    assert ModelFiles.of(manifest(PIECE, 1), "m.onnx").onnx == PiecedFile(PIECE + 1, (SHA, SHA))
    for sizes in ((1, 1), (1, PIECE), (PIECE - 1, 2), (PIECE + 1,)):
        with pytest.raises(UsageError, match="64 MiB"):
            ModelFiles.of(manifest(*sizes), "m.onnx")
