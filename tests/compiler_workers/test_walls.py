"""The walls around children: what a hostile one tries and cannot do, with real children and the kernel of this host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paths import DOUBLES
from servers import debian

from mxr.sandbox import walls
from mxr.sandbox.policy import SandboxPolicy, around, policy_for
from mxr_workers.compilation import CompileAttemptFailed
from mxr_workers.interpreter import Interpreter, describe_interpreter, open_walls, with_walls
from mxr_workers.sandbox import ChildLimits, run_child

from .conftest import GraphCompiler, Target

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(walls.landlock_abi() == 0, reason="this kernel has no Landlock (Linux 5.13 and later)"),
]

HOSTILE = """
import ctypes, os, signal, socket, subprocess, sys

def attempt(name, act):
    if name in SKIPPED:
        return
    try:
        found = act()
    except BaseException as problem:
        os.write(1, f"HELD {name}: {type(problem).__name__}\\n".encode())
    else:
        os.write(1, f"GOT {name}: {str(found)[:80]}\\n".encode())

def connect(family, kind, address):
    with socket.socket(family, kind) as made:
        made.sendto(b"x", address) if kind == socket.SOCK_DGRAM else made.connect(address)

def others():
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                own = open("/proc/self/environ", "rb").read().split(b"\\0")
                if set(open(f"/proc/{name}/environ", "rb").read().split(b"\\0")) - set(own):
                    return name
            except OSError:
                pass
    raise OSError

libc, guardian = ctypes.CDLL(None, use_errno=True), os.getppid()

def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")

for path in PROTECTED:
    attempt(f"read {path}", lambda: os.listdir(path) if os.path.isdir(path) else open(path).read())
    attempt(f"write {path}", lambda: open(path + "/evil" if os.path.isdir(path) else path, "a"))
    attempt(f"mode of {path}", lambda: os.chmod(path, 0o777))
    attempt(f"times of {path}", lambda: os.utime(path, (0, 0)))
    attempt(f"truncate {path}", lambda: os.truncate(path, 0))
    attempt(f"link {path}", lambda: os.link(path, "linked"))
    attempt(f"rename {path}", lambda: os.rename(path, path + ".evil"))
for pid in (WORKER, guardian):
    attempt(f"environ of {pid}", lambda: open(f"/proc/{pid}/environ", "rb").read())
    attempt(f"memory of {pid}", lambda: open(f"/proc/{pid}/mem", "rb").seek(4096))
    attempt(f"files of {pid}", lambda: os.listdir(f"/proc/{pid}/fd"))
    attempt(f"trace {pid}", lambda: checked(libc.ptrace(0x4206, pid, None, None)))
    attempt(f"signal {pid}", lambda: os.kill(pid, 0))
    attempt(f"limits of {pid}", lambda: __import__("resource").prlimit(pid, 7))
attempt("environ of any process", others)
attempt("loopback", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 9)))
attempt("metadata address", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("169.254.169.254", 80)))
attempt("IPv6", lambda: connect(socket.AF_INET6, socket.SOCK_DGRAM, ("::1", 9)))
attempt("abstract socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\\0dbus"))
attempt("packets", lambda: socket.socket(17, 3).close())
attempt("write /tmp", lambda: open(f"/tmp/evil-{WORKER}", "w"))
attempt("kernel settings", lambda: open("/proc/sys/kernel/core_pattern", "r+").close())
attempt("write toolchain", lambda: open(os.path.dirname(os.__file__) + "/evil-mxr", "w"))
attempt("write devices", lambda: os.mknod("device", 0o600 | 0o020000, os.makedev(1, 1)))
attempt("make a pipe", lambda: os.mkfifo("pipe"))
attempt("new namespace", lambda: checked(libc.unshare(0x10000000)))
attempt("mount", lambda: checked(libc.mount(b"none", b".", b"tmpfs", 0, None)))
attempt("change root", lambda: os.chroot("."))
attempt("io_uring", lambda: checked(libc.syscall(425, 1, ctypes.create_string_buffer(200))))
attempt("keys", lambda: checked(libc.syscall(250, 0, -3, 0)))
attempt("other user", lambda: os.setuid(12345) if os.getuid() == 0 else 1 / 0)
evil = [sys.executable, "-S", "-c", "open('/tmp/evil-mxr', 'w')".replace('mxr', str(WORKER))]
attempt("another program", lambda: subprocess.run(evil, check=True))
os.write(1, b"TRIED\\n")
"""
"""What code that a fault in a parser lets in would try. It runs in the child with the rights that the child has."""


def bubblewrap() -> str:
    """bubblewrap, on a machine where it may make namespaces."""
    found = debian.program("bwrap", "bubblewrap")
    done = subprocess.run([found, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"], check=False)
    if done.returncode != 0:
        pytest.skip("bubblewrap may not make namespaces here")
    return found


@pytest.fixture(params=["namespaces", "landlock"])
def way(request: pytest.FixtureRequest) -> str:
    """What makes the walls: bubblewrap with all that Landlock closes, or Landlock alone."""
    return bubblewrap() if request.param == "namespaces" else ""


def walled(target: Target, folder: Path, way: str, *protected: Path) -> Target:
    """The same interpreter behind walls."""
    interpreter = Interpreter(target.interpreter.python, target.interpreter.environ)
    info = describe_interpreter(interpreter, folder / "about")
    return replace(target, interpreter=with_walls(interpreter, info, protected, 1 << 30, way))


@pytest.fixture
def secrets(tmp_path: Path) -> list[Path]:
    """Files of the worker and of other jobs."""
    spool = tmp_path / "spool"
    made = [spool / "credentials" / "h-ref", spool / "models" / "other" / "model.onnx", tmp_path / "home" / ".token"]
    for path in made:
        path.parent.mkdir(parents=True)
        path.write_text("secret")
    return [spool, *made]


def tried(compiler: GraphCompiler, secrets: list[Path], *skipped: str) -> list[str]:
    """What hostile code in a model could do, by the log of its compile."""
    known = f"PROTECTED, WORKER, SKIPPED = {[str(each) for each in secrets]!r}, {os.getpid()}, {skipped!r}"
    code = f"{known}\n{HOSTILE}\nraise SystemExit(7)"
    with pytest.raises(CompileAttemptFailed) as caught:
        compiler.compile(marks={"double.parse": f"exploit:{code}"})
    log = caught.value.log.kept.decode()
    assert "\nTRIED\n" in log, log
    return re.findall(r"^GOT (.*)$", log, re.MULTILINE)


def test_hostile_code_in_a_model_gets_nothing(gpu: Target, tmp_path: Path, secrets: list[Path], way: str) -> None:
    target = walled(gpu, tmp_path, way, secrets[0], secrets[-1].parent)
    (tmp_path / "job").mkdir()
    assert tried(GraphCompiler(target, tmp_path / "job"), secrets) == []
    assert all(path.is_dir() or path.read_text() == "secret" for path in secrets)
    assert not Path(f"/tmp/evil-{os.getpid()}").exists()


def test_without_walls_it_gets_much(gpu: Target, tmp_path: Path, secrets: list[Path]) -> None:
    """What it tries can succeed: else the test above would show nothing."""
    (tmp_path / "job").mkdir()
    # Without what would change this host.
    got = tried(GraphCompiler(gpu, tmp_path / "job"), secrets, "mount", "write toolchain", "write devices")
    Path(f"/tmp/evil-{os.getpid()}").unlink(missing_ok=True)
    text = "\n".join(got)
    for name in (
        "read ",
        "environ of any process",
        "signal ",
        "metadata address",
        "write /tmp",
        "make a pipe",
        "mode of",
    ):
        assert name in text, name


def test_a_compile_behind_walls_does_what_it_does_without(gpu: Target, tmp_path: Path, way: str) -> None:
    (tmp_path / "job").mkdir()
    found = GraphCompiler(walled(gpu, tmp_path, way), tmp_path / "job").compile("gemm")
    assert found.verified is not None and found.verified["ran"]


def test_the_probe_finds_what_is_open_and_nothing_behind_walls(
    gpu: Target, tmp_path: Path, secrets: list[Path], way: str
) -> None:
    interpreter = gpu.interpreter
    found = {each["property"] for each in open_walls(interpreter, tmp_path / "a", secrets)}
    assert {"files", "writes", "network", "signals"} <= found
    shut = walled(gpu, tmp_path, way, secrets[0], secrets[-1].parent).interpreter
    assert open_walls(shut, tmp_path / "b", secrets) == []


WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
from mxr.sandbox import walls
refused = [(walls.EQUAL, 0, 1, walls.CREATE_RULESET), walls._fail(38)]
rows = [(walls.LOAD, 0, 0, 0), *refused, (walls.RETURN, 0, 0, walls.ALLOW)]
held = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in rows))
walls._call("prctl", walls.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
walls._call("prctl", walls.PR_SET_SECCOMP, 2, struct.pack("@HP", len(rows), ctypes.addressof(held)), 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a program as on a kernel without Landlock."""


def worker(
    tmp_path: Path, *words: str, before: tuple[str, ...] = (), path: str = "/nothing"
) -> subprocess.CompletedProcess[str]:
    """`mxr-worker` with the double, on a host of its own, with the programs of `path`."""
    (tmp_path / "site").mkdir(exist_ok=True)
    (tmp_path / "site" / "migraphx_double.json").write_text('{"quick": true}')
    environ = {"HOME": str(tmp_path / "home"), "PATH": path}
    environ |= {"PYTHONPATH": f"{DOUBLES}{os.pathsep}{tmp_path / 'site'}", "MXR_WORKER_KINDS": "ref"}
    (tmp_path / "home").mkdir(exist_ok=True)
    command = [*before, str(Path(sys.executable).with_name("mxr-worker")), *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_a_worker_tells_its_walls(tmp_path: Path) -> None:
    found = json.loads(worker(tmp_path, "host").stdout)
    assert found["sandbox"] == {"whole": True, "way": "landlock", "problem": None, "open": []}
    assert [slot["can"]["walls"] for slot in found["slots"]] == [True], "as the registry hears it"
    off = json.loads(worker(tmp_path, "host", "--set", "worker.sandbox=off").stdout)["sandbox"]
    assert not off["whole"] and "without a sandbox" in off["problem"]


def test_a_worker_with_an_open_wall_trusts_whom_it_is_told_to_trust(tmp_path: Path) -> None:
    def trusted(*words: str) -> Any:
        return [slot["can"]["trusts"] for slot in json.loads(worker(tmp_path, "host", *words).stdout)["slots"]]

    assert trusted("--trust", "ci") == [None], "all walls hold"
    off = ("--set", "worker.sandbox=off")
    assert trusted(*off) == [[]], "the registry adds its own principal"
    assert trusted(*off, "--trust", "ci", "--trust", "team-a/bob") == [["ci", "team-a/bob"]]
    assert trusted(*off, "--trust", "*") == [None]
    refused = worker(tmp_path, "host", "--trust", "two words")
    assert refused.returncode == 2 and "names of principals" in refused.stderr


def test_a_worker_on_a_kernel_without_landlock_says_so_and_can_refuse(tmp_path: Path) -> None:
    before = (sys.executable, "-c", WITHOUT_LANDLOCK)
    found = json.loads(worker(tmp_path, "host", before=before).stdout)["sandbox"]
    assert not found["whole"] and {"files", "writes"} <= {each["property"] for each in found["open"]}
    assert "network" not in {each["property"] for each in found["open"]}, "seccomp holds what it can"
    refused = worker(tmp_path, "run", "--require-sandbox", before=before)
    assert refused.returncode == 2 and "walls around compiles are not whole" in refused.stderr, refused


def test_a_worker_takes_namespaces_where_it_may_make_them(tmp_path: Path) -> None:
    tool = bubblewrap()
    path = str(Path(tool).parent)
    found = json.loads(worker(tmp_path, "host", path=path).stdout)["sandbox"]
    assert found == {"whole": True, "way": "bubblewrap", "problem": None, "open": []}
    before = (sys.executable, "-c", WITHOUT_LANDLOCK)
    found = json.loads(worker(tmp_path, "host", before=before, path=path).stdout)["sandbox"]
    assert found == {"whole": True, "way": "bubblewrap", "problem": None, "open": []}, "also without Landlock"
    no_more = (tool, "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--")
    found = json.loads(worker(tmp_path, "host", before=no_more, path=path).stdout)["sandbox"]
    assert found == {"whole": True, "way": "landlock", "problem": None, "open": []}, "a namespace without further ones"


def test_a_crash_is_told_and_a_daemon_ends_with_its_parent(tmp_path: Path, way: str) -> None:
    mark = f"daemon-of-{tmp_path.name}-{os.getpid()}"
    script = f"""
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        words = [sys.executable, "-c", "import time; time.sleep(600)", {mark!r}]
        os.execve(sys.executable, words, {{"HOME": "/other"}})
    os._exit(0)
os.wait()
os.abort()
"""
    policy = replace(policy_for([sys.prefix, sys.base_prefix], [], 1 << 30), bubblewrap=way).more(write=[tmp_path])
    limits = ChildLimits(60, 1 << 30)
    found = run_child([sys.executable, "-c", script], {}, tmp_path, {"PATH": "/usr/bin"}, limits, walls=policy)
    assert (found.why, found.code, found.signal, found.stuck) == ("exited", None, 6, ())
    running = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    assert not any(mark.encode() in words for words in running)


@pytest.mark.parametrize("removed", [False, True])
def test_a_child_that_fills_the_disk_is_ended(tmp_path: Path, way: str, removed: bool) -> None:
    script = f"""
import os, time
kept = []
for number in range(300):
    kept.append(open(str(number), "wb", buffering=0))
    kept[-1].write(bytes(1 << 20))
    if {removed}:
        os.unlink(str(number))
time.sleep(600)
"""
    policy = replace(policy_for([sys.prefix, sys.base_prefix], [], 1 << 30), bubblewrap=way).more(write=[tmp_path])
    limits = ChildLimits(60, 1 << 30, disk=50 << 20)
    found = run_child([sys.executable, "-c", script], {}, tmp_path, {"PATH": "/usr/bin"}, limits, walls=policy)
    assert (found.why, found.stuck) == ("disk", ())


def test_what_is_protected_stays_closed_in_a_folder_that_may_be_read(tmp_path: Path) -> None:
    for name in ("packages/a", "home/site", "home/.config", "home/spool"):
        (tmp_path / name).mkdir(parents=True)
    hidden = {tmp_path / "home" / ".config", tmp_path / "home" / "spool"}
    assert list(around(tmp_path, hidden)) == [tmp_path / "home" / "site", tmp_path / "packages"]
    assert list(around(tmp_path / "home" / "spool", hidden)) == []
    assert list(around(tmp_path / "none", hidden)) == []
    assert not {str(each) for each in hidden} & set(policy_for([str(tmp_path)], hidden, 0).read)


def test_a_policy_that_cannot_be_closed_runs_nothing(tmp_path: Path) -> None:
    policy = SandboxPolicy(read=("/usr", str(tmp_path)), write=("relative\0path",))
    found = run_child(["/bin/true"], {}, tmp_path, {}, ChildLimits(10, 1 << 30), walls=policy)
    assert found.code == 127 and not found.done


REFUSED = """
def refused(act):
    try:
        act()
    except OSError:
        return True
    return False
"""


def test_the_filter_refuses_each_call_of_its_list(tmp_path: Path) -> None:
    """With nonsense as arguments: the kernel itself would answer otherwise."""
    script = """
import ctypes, json, platform
from mxr.sandbox import walls
walls.close_walls({})
def answer(number):
    return walls.libc.syscall(number, -1, -1, -1, -1, -1, -1) and ctypes.get_errno()
print(json.dumps([number for number in walls.DENIED[platform.machine()] if answer(number) != walls.EPERM]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("abi", [1, 2, 4, 6])
def test_each_abi_of_landlock_closes_what_it_has(tmp_path: Path, abi: int) -> None:
    """The rules that this kernel takes for an older one. What that lacked, the filter of system calls closes."""
    if walls.landlock_abi() < abi:
        pytest.skip(f"this kernel has only ABI {walls.landlock_abi()} of Landlock")
    script = f"""
import json, os, sys
from mxr.sandbox import walls
walls.landlock_abi = lambda: {abi}
read = ["/usr", "/lib", "/lib64", "/bin", *sys.path, sys.base_prefix]
report = walls.close_walls({{"read": read, "write": [{str(tmp_path)!r}]}})
{REFUSED}os.mkdir({str(tmp_path / "made")!r})
os.rename({str(tmp_path / "made")!r}, {str(tmp_path / "renamed")!r})
print(json.dumps([report, refused(lambda: os.kill(os.getppid(), 0)), refused(lambda: os.truncate("/etc/hostname", 0)),
    refused(lambda: open("/tmp/evil-mxr", "w")), refused(lambda: os.kill(os.getpid(), 0)),
    refused(lambda: __import__("socket").socket())]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    report, *found = json.loads(done.stdout)
    assert report == {"landlock": abi, "seccomp": True}
    assert found == [True, True, True, False, True]


def test_a_reader_closes_walls_around_itself(tmp_path: Path) -> None:
    theirs, other = tmp_path / "theirs.onnx", tmp_path / "other.onnx"
    theirs.write_text("theirs")
    other.write_text("other")
    script = f"""
import json, os, socket, sys
from pathlib import Path
from mxr.sandbox.policy import close_reader
close_reader(Path({str(theirs)!r}))
{REFUSED}import mxr.program.reader, decimal
print(json.dumps([Path({str(theirs)!r}).read_text(), refused(lambda: open({str(other)!r})), refused(socket.socket),
    refused(lambda: open({str(tmp_path / "new")!r}, "w")), refused(lambda: os.listdir("."))]))
"""
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["theirs", True, True, True, True]


@pytest.mark.parametrize("module", ["mxr_registry.artifacts.inspector", "mxr_workers.reading_child"])
def test_the_readers_of_registry_and_worker_do_so(module: str, tmp_path: Path) -> None:
    """In their own process, before they read: a module that the reader imports tells what it can open."""
    (tmp_path / "sitecustomize.py").write_text(
        """
import sys
class Spy:
    def find_spec(self, name, path=None, target=None):
        if name in ("mxr.program.reader", "mxr.onnxfile.reader", "mxr.program"):
            try:
                open("/etc/hostname")
                sys.stderr.write("OPENED")
            except PermissionError:
                sys.stderr.write("REFUSED")
        return None
sys.meta_path.insert(0, Spy())
"""
    )
    order: dict[str, object] = {"what": "program", "path": str(tmp_path / "x.mxr"), "memory": 1 << 30, "cpu": 10}
    if "inspector" in module:
        order = {"what": "programs", "files": [], "page": 4096, "memory": 1 << 30, "cpu": 10}
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-m", module]
    done = subprocess.run(
        words, input=json.dumps(order) + "\n", env=environ, capture_output=True, text=True, check=False
    )
    assert "REFUSED" in done.stderr and "OPENED" not in done.stderr, done


def test_what_a_compile_closed_to_its_own_user_is_removed(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from mxr.sandbox import walls
from mxr_workers.spool import remove_tree
walls.drop_capabilities()
work = Path({str(tmp_path / "work")!r})
(work / "compile" / "program.mxr" / "deep").mkdir(parents=True)
(work / "compile" / "link").symlink_to("/etc")
(work / "compile" / "program.mxr").chmod(0)
(work / "compile").chmod(0)
remove_tree(work)
print(work.exists())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
