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


def aws() -> Path:
    """The AWS command line."""
    return installed(AWSCLI, "aws")
