"""The programs that people would use instead of mxr, each installed in an environment of its own.

Each peer gives commands of the shell that move one file, `program.mxr` in its folder, to an S3 bucket and from there.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parent / "results" / "peers"
PROGRAM = "program.mxr"


@dataclass(frozen=True)
class Command:
    """A command of the shell, and its name in the table."""

    name: str
    line: str


@dataclass(frozen=True)
class Peer:
    """One program: how it publishes, fetches, and fetches what is there already.

    `fetched`: the files and folders that it makes of a fetch.
    """

    put: Command | None
    get: Command
    again: Command | None
    fetched: tuple[Path, ...]


MakePeer = Callable[[Path, str, str], Peer]
"""Makes a peer from its folder, the endpoint of the S3 server and the name of a bucket."""


def installed(program: str, *requirements: str) -> Path:
    """Install packages in an environment of their own, unless they are there, and return the path of their program."""
    home = HOME / requirements[0].replace("==", "-")
    found = home / "bin" / program
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "pip"), "install", "-qqq", *requirements]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
    return found


def aws(folder: Path, endpoint: str, bucket: str) -> Peer:
    """The AWS command line. It verifies no digest of what it fetches, so sha256sum does."""
    program = shlex.join([str(installed("aws", "awscli==1.46.3")), "s3"])
    options = f"--quiet --endpoint-url {endpoint}"
    target, copy, synced = f"s3://{bucket}/aws/{PROGRAM}", folder / "copy.mxr", folder / "synced"
    return Peer(
        Command("aws s3 cp", f"{program} cp {options} {folder / PROGRAM} {target}"),
        Command("aws s3 cp, sha256sum", f"{program} cp {options} {target} {copy} && sha256sum {copy}"),
        Command("aws s3 sync", f"{program} sync {options} s3://{bucket}/aws/ {synced}"),
        (copy,),
    )


COPY = """
import sys, boto3
endpoint, bucket, key, *names = sys.argv[1:]
client = boto3.client("s3", endpoint_url=endpoint)
if names[0] == "get":
    client.download_file(bucket, key, names[1])
else:
    client.upload_file(names[1], bucket, key)
"""
"""What `aws s3 cp` does, by boto3 of this environment."""


def boto3(folder: Path, endpoint: str, bucket: str) -> Peer:
    """boto3 in place of the AWS command line, which needs no installation."""
    copy, command = folder / "copy.mxr", [sys.executable, "-c", COPY, endpoint, bucket, PROGRAM]
    get = shlex.join([*command, "get", str(copy)])
    put = shlex.join([*command, "put", str(folder / PROGRAM)])
    return Peer(Command("aws s3 cp", put), Command("aws s3 cp, sha256sum", f"{get} && sha256sum {copy}"), None, (copy,))


def dvc(folder: Path, endpoint: str, bucket: str) -> Peer:
    """DVC with its defaults: `add` hashes and copies into its cache, `push` and `pull` move what is missing."""
    program = installed("dvc", "dvc==3.67.1", "dvc-s3==3.3.0")
    run = f"cd {folder} && {program} -q"
    for words in (
        "init --no-scm -f",
        f"remote add -d store s3://{bucket}/dvc",
        f"remote modify store endpointurl {endpoint}",
    ):
        subprocess.run([str(program), "-q", *words.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return Peer(
        Command("dvc add, dvc push", f"{run} add {PROGRAM} && {program} -q push"),
        Command("dvc pull", f"{run} pull"),
        Command("dvc pull", f"{run} pull"),
        (folder / PROGRAM, folder / ".dvc" / "cache"),
    )


def mlflow(folder: Path, endpoint: str, bucket: str) -> Peer:
    """MLflow's download of an artifact, here of the file that the AWS command line stored."""
    program, fetched = installed("mlflow", "mlflow-skinny==3.17.2", "boto3"), folder / "mlflow"
    get = f"MLFLOW_S3_ENDPOINT_URL={endpoint} {program} artifacts download -u s3://{bucket}/aws/{PROGRAM} -d {fetched}"
    line = f"{get} && sha256sum {fetched / PROGRAM}"
    return Peer(None, Command("mlflow artifacts download, sha256sum", line), None, (fetched,))
