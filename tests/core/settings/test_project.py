"""Files of a project set request defaults and nothing else; what others can change is not used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mxr.configuration.config_file import MAX_BYTES
from mxr.errors import UsageError
from mxr.request.defaults import ELSEWHERE, ProjectDefaults, find_defaults

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
Find = Callable[..., ProjectDefaults]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a folder of models, below a home folder."""
    root = tmp_path / "home" / "project"
    (root / "models").mkdir(parents=True)
    (root / ".git").mkdir()
    return root


@pytest.fixture
def find(project: Path) -> Find:
    def run(start: Path | None = None, home: Path | None = None) -> ProjectDefaults:
        return find_defaults(start or project / "models", home or project.parent, ELSEWHERE)

    return run


def test_the_nearest_file_that_sets_a_value_wins(project: Path, find: Find) -> None:
    (project / "mxr.toml").write_text('rocm = "7.1"\nbatch = [8, 1]\n[inputs]\nx = ["N", 3]\ny = [4]\n')
    (project / "models" / "mxr.toml").write_text('rocm = "7.2.1"\n[inputs]\nx = ["1..8@1/4", 5]\n')
    (project / "models" / "pyproject.toml").write_text('[tool.mxr]\nrocm = "6.0"\nconsumer = "triton"\n')
    found = find()
    near, inner = (str(project / "models" / name) for name in ("mxr.toml", "pyproject.toml"))
    outer = str(project / "mxr.toml")
    defaults = found.defaults
    assert (defaults.rocm, defaults.migraphx, defaults.consumer, defaults.batch) == ("7.2.1", None, "triton", (1, 8))
    assert defaults.inputs["y"] == (4,) and defaults.inputs["x"][1] == 5
    assert defaults.sources == {
        **{"rocm": near, "consumer": inner, "batch": outer},
        **{"inputs.x": near, "inputs.y": outer},
    }
    assert list(map(str, found.files)) == [near, inner, outer] and not found.unused


def test_nothing_above_the_repository_or_home_is_read(project: Path, find: Find, tmp_path: Path) -> None:
    for folder in (tmp_path, project.parent):
        (folder / "mxr.toml").write_text('rocm = "1.0"')
    assert find().files == ()
    (project / ".git").rmdir()
    assert find().files == (project.parent / "mxr.toml",), "home itself counts"
    # Outside of both, only the folder itself counts.
    assert find(home=tmp_path / "elsewhere").files == ()
    (project / "models" / "mxr.toml").write_text('rocm = "2.0"')
    assert find(home=tmp_path / "elsewhere").defaults.rocm == "2.0"
    # The .git of a worktree is a file.
    (project / ".git").write_text("gitdir: /elsewhere")
    assert find().files == (project / "models" / "mxr.toml",)


def test_other_projects_are_no_files_of_mxr(project: Path, find: Find) -> None:
    (project / "pyproject.toml").write_text('[tool.ruff]\nline-length = 120\n[tool.other]\nmxr = "a word"\n')
    (project / "models" / "pyproject.toml").write_text("this is = not [TOML")
    assert find() == ProjectDefaults(find().defaults)
    assert find().files == () and find().unused == ()
    for data in (b'[tool.other\nmxr = "a word"', b'mxr = "\xff"', b"#" * (MAX_BYTES + 1), b"mxr = " + b"[" * 5000):
        (project / "pyproject.toml").write_bytes(data)
        assert find().files == () and find().unused == ()
    (project / "pyproject.toml").write_text('[tool.mxr]\nrocm = "7.2"\nbroken\n')
    with pytest.raises(UsageError, match=r"pyproject\.toml is not valid TOML: .*line 3"):
        find()


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ('rocm = "7.2"\nmigrahpx = "2.15"', ":2: unknown setting 'migrahpx'.", "Did you mean migraphx?"),
        ('registry = "http://evil"', ":1: a project file cannot set registry.", "mxr config"),
        ('\ntoken = "hunter2hunter2"', ":2: a project file cannot set token.", "mxr config"),
        ('cache_dir = "/tmp"', ":1: a project file cannot set cache_dir.", "batch, inputs"),
        ('host_file = "/tmp"', ":1: a project file cannot set host_file.", "batch, inputs"),
        ('on_miss = "local"', ":1: unknown setting 'on_miss'.", "Known settings"),
        ('namespace = "other"', ":1: unknown setting 'namespace'.", "Known settings"),
        ('python = "/bin/sh"', ":1: unknown setting 'python'.", "Known settings"),
        ("rocm = 7.2", ":1: rocm must be a version in quotes", "Correct rocm"),
        ('rocm = "seven"', ":1: rocm must be a version such as", "Correct rocm"),
        ("batch = [0]", ":1: batch must be a batch size such as 8", "Correct batch"),
        ("batch = []", ":1: batch must be a batch size, or a list of 1 to 1000", "Correct batch"),
        ("batch = 9999999999999", ":1: batch must be", "Correct batch"),
        ("consumer = ['triton']", ":1: consumer must be the name", "Correct consumer"),
        ("inputs = 5", ":1: inputs must be a table", "Correct inputs"),
        ('# models\n[inputs]\ny = [1]\nx = ["N", -1]', ":4: inputs.x must be a list of dims", "Correct"),
        ("inputs.x = [1.5]", ":1: inputs.x must be a list of dims", "Correct"),
        ('inputs.x = ["1,2"]', ":1: inputs.x must be", "Correct"),
        ("inputs = {x = 5}", ":1: inputs.x must be", "Correct"),
        ("rocm =", " is not valid TOML: ", "Correct the file"),
        ("a = " + "[" * 5000, " is not valid TOML: ", "Correct the file"),
        ("#" * (MAX_BYTES + 1), " is larger than 1048576 bytes.", "Correct the file"),
    ],
    ids=lambda value: value[:24],
)
def test_what_is_wrong_is_named_with_its_line(project: Path, find: Find, text: str, where: str, words: str) -> None:
    (project / "mxr.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        find()
    error = caught.value
    assert error.message.startswith(f"{project / 'mxr.toml'}{where}") and error.message.endswith("."), error.message
    assert words.partition(", ")[0] in error.hint
    assert "hunter2" not in str(error.to_json())


def test_a_line_is_looked_for_in_the_own_table(project: Path, find: Find) -> None:
    text = '[tool.other]\nrokm = 1\n\n[tool.mxr]\nrokm = "7.2"\n'
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=r"pyproject\.toml:5: unknown setting 'rokm'"):
        find()
    (project / "pyproject.toml").write_text("[tool]\nmxr = 5\n")
    with pytest.raises(UsageError, match=r"pyproject\.toml:\d: tool\.mxr must be a table"):
        find()


def test_bytes_that_are_no_text(project: Path, find: Find) -> None:
    (project / "mxr.toml").write_bytes(b'rocm = "\xff"')
    with pytest.raises(UsageError, match="not UTF-8 at byte 8"):
        find()


def unused(found: ProjectDefaults, project: Path) -> str:
    """Why the only file there is not used."""
    (line,) = found.unused
    path, separator, reason = line.partition(" is not used: ")
    assert separator and Path(path) == project / "mxr.toml" and found.files == ()
    assert found.defaults.rocm is None
    return reason


@as_root
def test_a_file_of_another_user_is_not_used(project: Path, find: Find) -> None:
    # What is in it does not matter: nobody asks whether it is valid.
    (project / "mxr.toml").write_text('rocm = "7.2"\ntoken = "x"')
    os.chown(project / "mxr.toml", 12345, 12345)
    assert unused(find(), project) == "it belongs to user 12345"


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_a_file_that_everyone_can_write_is_not_used(project: Path, find: Find, mode: int) -> None:
    (project / "mxr.toml").write_text('rocm = "7.2"')
    (project / "mxr.toml").chmod(mode)
    assert unused(find(), project) == f"other users can write it (mode {mode:04o}; fix it with `chmod go-w`)"


@as_root
def test_a_file_that_a_group_can_write(project: Path, find: Find) -> None:
    """The group that only this user is in is no other user: with the umask 002, each file of a checkout has it."""
    (project / "mxr.toml").write_text('rocm = "7.2"')
    (project / "mxr.toml").chmod(0o664)
    assert find().defaults.rocm == "7.2"
    os.chown(project / "mxr.toml", -1, 12345)
    assert "other users can write it" in unused(find(), project)


def test_links_and_pipes_are_not_used(project: Path, find: Find, tmp_path: Path) -> None:
    secret = tmp_path / "secret.toml"
    secret.write_text('password = "hunter2"')
    (project / "mxr.toml").symlink_to(secret)
    assert unused(find(), project) == "it is a symbolic link"
    (project / "mxr.toml").unlink()
    os.mkfifo(project / "mxr.toml")
    assert unused(find(), project) == "it is not a regular file"
    (project / "mxr.toml").unlink()
    (project / "mxr.toml").mkdir()
    assert find().unused == ()


@pytest.mark.parametrize(
    "start",
    [
        "hub/models--amd--resnet/snapshots/0123abcd",
        ".cache/kagglehub/models/resnet",
        "downloads/resnet",
        "old/resnet",
    ],
)
def test_what_a_download_brought_is_not_used(project: Path, find: Find, start: str) -> None:
    folder = project / start
    folder.mkdir(parents=True)
    (folder / "mxr.toml").write_text('rocm = "7.2"')
    (project / "downloads" / "resnet" / ".cache" / "huggingface" / "download").mkdir(parents=True)
    (project / "old" / ".huggingface" / "download").mkdir(parents=True)
    found = find(folder)
    assert found.defaults.rocm is None
    (line,) = found.unused
    assert line.startswith(f"{folder / 'mxr.toml'} is not used: it came with a download, into ")
    # The own file above the download still counts.
    (project / "mxr.toml").write_text('rocm = "7.1"')
    assert find(folder).defaults.rocm == "7.1"


@pytest.mark.parametrize("mark", [".cache/huggingface/download", ".huggingface/download", ".msc", "._____temp"])
@pytest.mark.parametrize(("name", "text"), [("mxr.toml", ""), ("pyproject.toml", "[tool.mxr]\n")])
def test_the_mark_of_a_download_counts_above_a_subfolder_of_it(tmp_path: Path, mark: str, name: str, text: str) -> None:
    """Most repositories keep the ONNX file in a subfolder; servers keep downloads outside of home and repositories."""
    folder = tmp_path / "data" / "download" / "onnx"
    folder.mkdir(parents=True)
    (folder.parent / mark).mkdir(parents=True)
    (folder / name).write_text(f"{text}batch = 64\nrocm = '6.0'\n")
    found = find_defaults(folder, tmp_path / "home", ELSEWHERE)
    assert (found.defaults.batch, found.defaults.rocm, found.files) == ((), None, ())
