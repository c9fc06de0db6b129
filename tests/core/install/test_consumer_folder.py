"""A folder that a consumer watches: no partial state at any step, no foreign files overwritten, clear errors."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import tomllib
from core.consumers import configs
from core.consumers.parts import BATCH_64, FLAGS_OFF, delivery, place
from paths import TESTS
from strategies import GPU

from mxr import consumers
from mxr.artifact.attributes import Attributes
from mxr.cache.store import Cache
from mxr.errors import DamagedError, MxrError, NotAllowedError, TemporaryError, UsageError
from mxr.install import ledger

AMDINFER, REPO, TRITON, EPCONTEXT = map(consumers.find_consumer, ("amdinfer", "amdinfer-repo", "triton", "epcontext"))
DEVICE = Attributes(sramecc="+", xnack="-")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ledger.NAME
    }


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}


STEPS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate", "shutil.rmtree")
WATCH: list[Callable[[], None]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if WATCH and event in STEPS:
        look = WATCH.pop()
        try:
            look()
        finally:
            WATCH.append(look)


sys.addaudithook(_hook)


@contextmanager
def watched(look: Callable[[], None]) -> Iterator[None]:
    """Calls `look` before every file system operation of this process, and at the end: it sees every state
    that a watcher could see.
    """
    WATCH.append(look)
    try:
        yield
    finally:
        WATCH.clear()
    look()


def look_as_triton(folder: Path, programs: dict[str, bytes], seen: set[str]) -> None:
    """The version that `config.pbtxt` pins exists, is complete, and belongs to its artifact; versions are complete."""
    home = folder / "m"
    for version in home.glob("[0-9]*") if home.exists() else ():
        assert {path.name for path in version.iterdir()} == {"m.mxr", "model.py"}
    if (home / "config.pbtxt").exists():
        found = configs.read((home / "config.pbtxt").read_text())
        (version,) = found["version_policy"]["specific"]["versions"]
        artifact = found["parameters"]["mxr_artifact"]["string_value"]
        assert (home / version / "m.mxr").read_bytes() == programs[artifact]
        seen.add(artifact)


def look_as_amdinfer(folder: Path, shapes: dict[bytes, int], seen: set[str]) -> None:
    config = folder / "m" / "config.toml"
    if config.exists():
        found = tomllib.loads(config.read_text())
        program = (folder / "m" / "1" / "m_b64.mxr").read_bytes()
        assert found["inputs"][0]["shape"][-1] == shapes[program]
        seen.add(program.decode())


def look_as_onnxruntime(folder: Path, programs: dict[int, bytes], seen: set[str]) -> None:
    if (folder / "m_ctx.onnx").exists():
        model = onnx.load(folder / "m_ctx.onnx")
        (name,) = (each.s.decode() for each in model.graph.node[0].attribute if each.name == "ep_cache_context")
        width = model.graph.input[0].type.tensor_type.shape.dim[3].dim_value
        assert (folder / name).read_bytes() == programs[width]
        seen.add(name)


def test_triton_never_sees_a_partial_state(cache: Cache, folder: Path) -> None:
    made = [delivery(folder, replace(GPU, inputs=(("x", (n, 3, 224, 224)),)), f"p{n}".encode()) for n in (1, 2, 4, 8)]
    programs = {each.artifact.id: f"p{n}".encode() for n, each in zip((1, 2, 4, 8), made, strict=True)}
    seen: set[str] = set()
    with watched(lambda: look_as_triton(folder, programs, seen)):
        for n, each in zip((1, 2, 4, 8), made, strict=True):
            place(TRITON, cache, each, f"p{n}".encode(), force=True)
    assert seen == set(programs)
    versions = [path.name for path in (folder / "m").iterdir() if path.is_dir()]
    assert len(versions) == 2, "the one before stays for who reads it, older ones go"


def test_amdinfer_never_sees_a_partial_state(cache: Cache, folder: Path) -> None:
    shapes = {f"p{n}".encode(): n for n in (224, 256, 320)}
    seen: set[str] = set()
    with watched(lambda: look_as_amdinfer(folder, shapes, seen)):
        for data, n in shapes.items():
            key = replace(BATCH_64, inputs=(("x", (64, 3, n, n)),))
            place(REPO, cache, delivery(folder, key, data), data, force=True)
    assert seen == {"p224", "p256", "p320"}
    assert sorted(tree(folder)) == ["m/1/m_b64.mxr", "m/config.toml"]


def test_onnxruntime_never_sees_a_partial_state(cache: Cache, folder: Path) -> None:
    programs = {n: f"p{n}".encode() for n in (224, 256, 320)}
    seen: set[str] = set()
    with watched(lambda: look_as_onnxruntime(folder, programs, seen)):
        for n, data in programs.items():
            key = replace(FLAGS_OFF, inputs=(("x", (8, 3, n, n)),))
            place(EPCONTEXT, cache, delivery(folder, key, data, attributes=DEVICE), data, force=True)
    assert len(seen) == 3
    assert len(tree(folder)) == 3


def test_the_watcher_of_these_tests_does_see_partial_states(folder: Path) -> None:
    home = folder / "m"
    (home / "7").mkdir(parents=True)
    with pytest.raises(AssertionError), watched(lambda: look_as_triton(folder, {}, set())):
        (home / "7" / "m.mxr").write_bytes(b"p")


def test_a_second_call_changes_nothing(cache: Cache, folder: Path) -> None:
    for consumer, key in ((TRITON, GPU), (REPO, BATCH_64), (AMDINFER, GPU)):
        place(consumer, cache, delivery(folder, key))
        before = stamps(folder)
        place(consumer, cache, delivery(folder, key))
        assert stamps(folder) == before


def test_two_batches_coexist(cache: Cache, folder: Path) -> None:
    for batch in (1, 8, 1):
        key = replace(GPU, inputs=(("x", (batch, 3, 224, 224)),))
        place(AMDINFER, cache, delivery(folder, key, b"%d" % batch), b"%d" % batch)
    assert tree(folder) == {"m_b1.mxr": b"1", "m_b8.mxr": b"8"}


def test_only_files_that_mxr_placed_are_replaced(cache: Cache, folder: Path) -> None:
    place(AMDINFER, cache, delivery(folder))
    place(AMDINFER, cache, delivery(folder, data=b"newer"), b"newer")
    assert tree(folder) == {"m_b8.mxr": b"newer"}
    (folder / "m_b8.mxr").write_bytes(b"changed by hand")
    with pytest.raises(NotAllowedError, match="changed after mxr placed it") as caught:
        place(AMDINFER, cache, delivery(folder))
    assert "--force" in caught.value.hint and caught.value.context == {"files": ["m_b8.mxr"]}
    assert tree(folder) == {"m_b8.mxr": b"changed by hand"}
    place(AMDINFER, cache, delivery(folder), force=True)
    assert tree(folder) == {"m_b8.mxr": b"program"}


def test_a_stale_file_that_mxr_did_not_place(cache: Cache, folder: Path) -> None:
    folder.mkdir()
    (folder / "m_b8.mxr").write_bytes(b"somebody compiled it here")
    with pytest.raises(NotAllowedError, match=r"is not what mxr placed\. Nothing was written"):
        place(AMDINFER, cache, delivery(folder))
    assert [path.name for path in folder.iterdir()] == ["m_b8.mxr"]


def test_a_foreign_file_with_the_right_content_is_adopted(cache: Cache, folder: Path) -> None:
    folder.mkdir()
    (folder / "m_b8.mxr").write_bytes(b"program")
    place(AMDINFER, cache, delivery(folder))
    place(AMDINFER, cache, delivery(folder, data=b"newer"), b"newer")
    assert tree(folder) == {"m_b8.mxr": b"newer"}


@pytest.mark.parametrize(
    ("consumer", "key", "name"),
    [(REPO, BATCH_64, "m/config.toml"), (TRITON, GPU, "m/config.pbtxt")],
    ids=["amdinfer", "triton"],
)
def test_a_broken_configuration_in_the_repository(
    cache: Cache, folder: Path, consumer: Any, key: Any, name: str
) -> None:
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("name = [broken")
    with pytest.raises(NotAllowedError, match=re.escape(name)):
        place(consumer, cache, delivery(folder, key))
    assert tree(folder) == {name: b"name = [broken"}
    place(consumer, cache, delivery(folder, key), force=True)
    assert "broken" not in (folder / name).read_text()


@pytest.mark.parametrize("name", ["m/other.toml", "m/m/config.toml"])
def test_another_configuration_that_amdinfer_would_take(cache: Cache, folder: Path, name: str) -> None:
    """Source: Xilinx/inference-server, model_repository.cpp: any TOML file there may win."""
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text('name = "m"')
    with pytest.raises(NotAllowedError, match="beside or instead") as caught:
        place(REPO, cache, delivery(folder, BATCH_64))
    assert caught.value.context == {"files": [name]}
    place(REPO, cache, delivery(folder, BATCH_64), force=True)
    assert (folder / name).read_text() == 'name = "m"'
    assert (folder / "m" / "config.toml").exists()


def test_brackets_in_the_name_of_a_model_are_not_a_pattern(cache: Cache, folder: Path) -> None:
    for _ in range(2):
        place(REPO, cache, delivery(folder, BATCH_64, stem="m[1]?"))
    (folder / "m[1]?" / "b.toml").touch()
    with pytest.raises(NotAllowedError, match="beside or instead"):
        place(REPO, cache, delivery(folder, BATCH_64, stem="m[1]?"))


@pytest.mark.parametrize("inside", ["m", "m/1/m_b64.mxr"])
def test_folders_in_the_place_of_files(cache: Cache, folder: Path, inside: str) -> None:
    if inside == "m":
        folder.mkdir()
        (folder / "m").write_text("a file where a folder is to be")
    else:
        (folder / inside).mkdir(parents=True)
    with pytest.raises(MxrError, match=r"Not a directory|is a folder") as caught:
        place(REPO, cache, delivery(folder, BATCH_64))
    assert isinstance(caught.value, UsageError) and caught.value.hint


def test_a_broken_link_in_the_place_of_a_file_is_foreign(cache: Cache, folder: Path) -> None:
    folder.mkdir()
    (folder / "m_b8.mxr").symlink_to("nowhere")
    with pytest.raises(NotAllowedError):
        place(AMDINFER, cache, delivery(folder))
    place(AMDINFER, cache, delivery(folder), force=True)
    assert not (folder / "m_b8.mxr").is_symlink()


def test_a_name_that_is_too_long(cache: Cache, folder: Path) -> None:
    with pytest.raises(UsageError, match="too long") as caught:
        place(TRITON, cache, delivery(folder, stem="é" * 127))
    assert "--name" in caught.value.hint
    assert not folder.exists()


def test_placed_files_are_not_hard_links_unless_requested(cache: Cache, folder: Path) -> None:
    made = delivery(folder)
    place(AMDINFER, cache, made, link=True)
    assert (folder / "m_b8.mxr").samefile(cache.file_path(made.program))
    place(AMDINFER, cache, made)
    assert not (folder / "m_b8.mxr").samefile(cache.file_path(made.program))
    assert (folder / "m_b8.mxr").stat().st_nlink == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"v":1}', '{"slots":{"a":{"consumer":1}}}', '{"slots":{},"more":1}'])
def test_a_damaged_ledger(cache: Cache, folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / ledger.NAME).write_text(text)
    with pytest.raises(DamagedError, match="record of what mxr placed") as caught:
        place(AMDINFER, cache, delivery(folder))
    assert "Remove it" in caught.value.hint


def test_the_ledger_lists_what_was_placed(cache: Cache, folder: Path) -> None:
    made = delivery(folder)
    layout = place(TRITON, cache, made)
    slot = json.loads((folder / ledger.NAME).read_text())["slots"]["m/config.pbtxt"]
    assert (slot["consumer"], slot["id"], slot["digest"]) == ("triton", made.artifact.id, made.artifact.digest)
    assert slot["files"] == [{"name": each.name, "sha256": each.sha256} for each in layout.pieces]


class PowerCut(BaseException):
    """Stands for a power failure."""


@pytest.mark.parametrize(("consumer", "key"), [(REPO, BATCH_64), (TRITON, GPU), (AMDINFER, GPU)])
def test_after_an_interruption_at_any_step_the_same_command_completes(
    tmp_path: Path, cache: Cache, consumer: Any, key: Any
) -> None:
    """This also holds if the second attempt is for another artifact: the ledger lists the files of the first."""
    for stop in itertools.count(1):
        folder = tmp_path / f"models-{stop}"
        place(consumer, cache, delivery(folder, key))
        left = [stop]

        def count(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise PowerCut

        WATCH.append(count)
        try:
            place(consumer, cache, delivery(folder, key, b"newer"), b"newer")
            done = True
        except PowerCut:
            done = False
        finally:
            WATCH.clear()
        place(consumer, cache, delivery(folder, key, b"third"), b"third")
        found = tree(folder)
        assert b"third" in found.values()
        if done:
            break
    assert stop > 5


def test_a_concurrent_writer_is_detected(cache: Cache, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On file systems without locks, the placed files are checked at the end."""
    from mxr.install import consumer_folder

    real = consumer_folder._place_file

    def slow(piece: Any, path: Path, cache: Cache, before: Any, *, link: bool) -> None:
        real(piece, path, cache, before, link=link)
        if path.name == "config.toml":
            other = folder / "other"
            other.write_bytes(b"another program")
            other.replace(folder / "m" / "1" / "m_b64.mxr")

    monkeypatch.setattr(consumer_folder, "_place_file", slow)
    with pytest.raises(TemporaryError, match="Another program replaced"):
        place(REPO, cache, delivery(folder, BATCH_64))


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from core.consumers.parts import BATCH_64, delivery, place
from mxr import consumers
from mxr.cache.store import Cache
folder, data = Path(sys.argv[2]), sys.argv[3].encode()
for _ in range(20):
    place(consumers.find_consumer("amdinfer-repo"), Cache(Path(sys.argv[4])), delivery(folder, BATCH_64, data), data)
    place(consumers.find_consumer("triton"), Cache(Path(sys.argv[4])), delivery(folder, BATCH_64, data, stem="t"), data)
"""


@pytest.mark.process
def test_several_processes_in_one_folder(tmp_path: Path, folder: Path) -> None:
    tests = TESTS
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tests), str(folder), name, str(tmp_path / name)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two", "three")
    ]
    for process in started:
        _, said = process.communicate(timeout=170)
        assert process.returncode == 0, said
    found = tree(folder)
    assert found["m/1/m_b64.mxr"] in (b"one", b"two", b"three")
    config = configs.read(found["t/config.pbtxt"].decode())
    (version,) = config["version_policy"]["specific"]["versions"]
    names = {delivery(folder, BATCH_64, each).artifact.id: each for each in (b"one", b"two", b"three")}
    assert found[f"t/{version}/t.mxr"] == names[config["parameters"]["mxr_artifact"]["string_value"]]
    assert not [path for path in folder.rglob("*") if ".mxr-partial" in path.name]
