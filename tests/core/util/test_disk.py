"""Landing bytes: whole under the final name or not at all, whatever goes wrong; copies that share nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mxr.errors import DiskFullError, MxrError, NotAllowedError, TemporaryError, UsageError
from mxr.util import disk


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_lands_is_whole_and_readable_by_all(tmp_path: Path) -> None:
    final = tmp_path / "new" / "folders" / "file"
    with disk.atomic_file(final) as descriptor:
        disk.write_at(descriptor, b"world", 5)
        disk.write_at(descriptor, b"hello", 0)
        assert not final.exists(), "the final name appears last"
    assert final.read_bytes() == b"helloworld"
    assert final.stat().st_mode & 0o777 == 0o644
    assert names(final.parent) == ["file"]


def test_what_was_there_is_replaced_at_once(tmp_path: Path) -> None:
    final = tmp_path / "file"
    disk.write_whole(final, b"old")
    with final.open("rb") as reader:
        disk.write_whole(final, b"new", 0o444)
        assert reader.read() == b"old"
    assert final.read_bytes() == b"new"
    assert final.stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("problem", [ValueError(), KeyboardInterrupt(), OSError(errno.EIO, "io"), SystemExit(1)])
def test_an_error_while_writing_leaves_what_was_there(tmp_path: Path, problem: BaseException) -> None:
    final = tmp_path / "file"
    final.write_bytes(b"old")
    with pytest.raises(type(problem)), disk.atomic_file(final) as descriptor:
        os.write(descriptor, b"half")
        raise problem
    assert names(tmp_path) == ["file"]
    assert final.read_bytes() == b"old"


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EFBIG, DiskFullError),
        (errno.EROFS, NotAllowedError),
        (errno.EACCES, NotAllowedError),
        (errno.EPERM, NotAllowedError),
        (errno.ENOSYS, NotAllowedError),
        (errno.EOPNOTSUPP, NotAllowedError),
        (errno.EIO, TemporaryError),
        (errno.ESTALE, TemporaryError),
    ],
)
def test_faults_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, kind: type[MxrError]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(kind) as caught:
        disk.write_whole(tmp_path / "file", b"data")
    assert type(caught.value) is kind
    assert str(tmp_path / "file") in caught.value.message and os.strerror(number) in caught.value.message
    assert caught.value.hint
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_mount_without_modes_takes_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """gcsfuse, mountpoint-s3 and some CIFS mounts refuse chmod; the file is complete all the same."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fchmod", fail)
    disk.write_whole(tmp_path / "file", b"data", mode=0o444)
    assert (tmp_path / "file").read_bytes() == b"data" and names(tmp_path) == ["file"]


def test_a_mount_that_refuses_renames_is_named_and_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    for call in ("rename", "replace"):
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(NotAllowedError, match=f"the file system of {disk.mount_point(tmp_path)} refuses it") as caught:
        disk.write_whole(tmp_path / "file", b"data")
    assert not caught.value.retry and names(tmp_path) == []


@pytest.mark.parametrize("call", ["open", "mkdir"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(NotAllowedError, match="Read-only"):
        disk.write_whole(tmp_path / "deep" / "er" / "file", b"data")


@pytest.mark.parametrize("below", ["x", "x/y", "x/y/z"])
def test_a_path_below_a_file_is_the_callers_mistake(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_bytes(b"keep")
    final = tmp_path / "file" / below
    for write in (lambda: disk.write_whole(final, b""), lambda: disk.link_whole(tmp_path / "file", final)):
        with pytest.raises(UsageError) as caught:
            write()
        assert caught.value.exit == 2
    assert (tmp_path / "file").read_bytes() == b"keep"


def test_other_paths_where_nothing_can_land(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for final in (tmp_path / "folder", tmp_path / ("n" * 256), Path("/proc/mxr/file")):
        with pytest.raises((UsageError, NotAllowedError)):
            disk.write_whole(final, b"data")
    assert names(tmp_path) == ["folder"]


FILL = """
import resource, signal, sys
from pathlib import Path
from mxr.util import disk
from mxr.errors import DiskFullError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
folder = Path(sys.argv[1])
for write in (lambda: disk.write_whole(folder / "new", bytes(200_000)),
              lambda: disk.write_whole(folder / "old", bytes(200_000)),
              lambda: disk.copy_whole(folder / "source", folder / "copy")):
    try:
        write()
    except DiskFullError as problem:
        print(problem.exit)
"""


@pytest.mark.process
def test_a_real_process_that_may_write_no_more(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "source").write_bytes(os.urandom(300_000))
    done = subprocess.run([sys.executable, "-c", FILL, tmp_path], capture_output=True, text=True, timeout=60)
    # Where the file system has reflinks, the copy writes nothing, and lands.
    assert (done.stdout.split(), done.stderr) in ((["75", "75", "75"], ""), (["75", "75"], ""))
    assert (tmp_path / "old").read_bytes() == b"old"
    left = {"old", "source"} | ({"copy"} if len(done.stdout.split()) == 2 else set())
    assert set(names(tmp_path)) == left


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: whole(descriptor, data[:3], offset))
    disk.write_whole(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_folder_that_cannot_be_synced_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def open_files_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECTORY:
            raise PermissionError(errno.EACCES, "a drop folder")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", open_files_only)
    disk.write_whole(tmp_path / "file", b"data")
    assert (tmp_path / "file").read_bytes() == b"data"


@pytest.mark.parametrize("size", [0, 1, 5_000_001])
@pytest.mark.parametrize("plain", [False, True], ids=["as the file system can", "by reading and writing"])
def test_a_copy_never_shares_an_inode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, plain: bool) -> None:
    if plain:
        import fcntl

        def fail(*_: object) -> int:
            raise OSError(errno.EXDEV, "no")

        monkeypatch.setattr(fcntl, "ioctl", fail)
        monkeypatch.setattr(os, "copy_file_range", fail)
    source, final = tmp_path / "source", tmp_path / "out" / "final"
    data = os.urandom(size)
    source.write_bytes(data)
    source.chmod(0o444)
    disk.copy_whole(source, final)
    disk.copy_whole(source, final)
    assert final.read_bytes() == data
    assert not final.samefile(source) and source.stat().st_nlink == 1
    assert final.stat().st_mode & 0o200, "the copy is the person's own"
    assert names(final.parent) == ["final"]


def test_a_copy_over_a_link_to_its_source_parts_them(tmp_path: Path) -> None:
    source, final = tmp_path / "source", tmp_path / "final"
    source.write_bytes(b"data")
    os.link(source, final)
    disk.copy_whole(source, final)
    final.write_bytes(b"mine")
    assert source.read_bytes() == b"data"


def test_a_copy_replaces_a_symbolic_link_and_not_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"data")
    (tmp_path / "precious").write_bytes(b"keep")
    (tmp_path / "final").symlink_to("precious")
    disk.copy_whole(tmp_path / "source", tmp_path / "final")
    assert (tmp_path / "precious").read_bytes() == b"keep"
    assert (tmp_path / "final").read_bytes() == b"data" and not (tmp_path / "final").is_symlink()


def test_a_source_that_is_gone(tmp_path: Path) -> None:
    for put in (disk.copy_whole, disk.link_whole):
        with pytest.raises(UsageError):
            put(tmp_path / "gone", tmp_path / "final")
    assert names(tmp_path) == []


def test_a_source_that_becomes_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").write_bytes(b"data")
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    monkeypatch.setattr("fcntl.ioctl", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOTTY, "no")))
    with pytest.raises(TemporaryError, match="shorter"):
        disk.copy_whole(tmp_path / "source", tmp_path / "final")
    assert names(tmp_path) == ["source"]


def test_a_link_shares_the_inode(tmp_path: Path) -> None:
    source, final = tmp_path / "source", tmp_path / "out" / "final"
    source.write_bytes(b"data")
    for _ in range(2):
        disk.link_whole(source, final)
        assert final.samefile(source) and names(final.parent) == ["final"]


def test_a_link_to_another_file_system_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    (tmp_path / "source").write_bytes(b"data")
    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(UsageError, match="link") as caught:
        disk.link_whole(tmp_path / "source", tmp_path / "final")
    assert "--link" in caught.value.hint
    assert names(tmp_path) == ["source"]


def test_many_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    final = tmp_path / "file"
    contents = [bytes([n]) * 50_000 for n in range(8)]
    threads = [threading.Thread(target=disk.write_whole, args=(final, data)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert final.read_bytes() in contents
    assert names(tmp_path) == ["file"]


def test_temporary_names_differ_and_are_known_by_their_beginning(tmp_path: Path) -> None:
    found = {disk.partial_name(tmp_path, "é" * 255) for _ in range(50)}
    assert len(found) == 50
    assert all(path.name.startswith(disk.PARTIAL) and len(path.name.encode()) <= 255 for path in found)
