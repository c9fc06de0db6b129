"""The programs that people would use instead of mxr, each installed in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "results" / "peers"
AWSCLI = "awscli==1.46.3"


def installed(requirement: str, program: str) -> Path:
    """Install a package in an environment of its own, unless it is there, and return the path of its program."""
    home = FOLDER / requirement.replace("==", "-")
    found = home / "bin" / program
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", requirement], check=True)
    return found


COPY = """
import sys, boto3
endpoint, *names = sys.argv[1:]
(bucket, key), = (name.removeprefix("s3://").split("/", 1) for name in names if name.startswith("s3://"))
client = boto3.client("s3", endpoint_url=endpoint)
if names[0].startswith("s3://"):
    client.download_file(bucket, key, names[1])
else:
    client.upload_file(names[0], bucket, key)
"""
"""What `aws s3 cp` does, by boto3 of this environment."""


def s3_copy(program: Path | str | None, endpoint: str, source: str, target: str) -> list[str]:
    """The command that copies a file to S3 or from there. `program`: the AWS command line; None for boto3."""
    if program is None:
        return [sys.executable, "-c", COPY, endpoint, source, target]
    return [str(program), "s3", "cp", "--quiet", "--endpoint-url", endpoint, source, target]


def aws() -> Path:
    """The AWS command line."""
    return installed(AWSCLI, "aws")
