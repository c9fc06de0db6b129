"""`mxr verify`: compare files on disk with a lock file, or an output folder with what mxr wrote there."""

from __future__ import annotations

from pathlib import Path

import click

from mxr.display.text import counted
from mxr.errors import UsageError
from mxr.plans import drift, pins
from mxr.plans.lockfile import FILE_NAME, load_lock
from mxr_cli.help import command
from mxr_cli.options import Session, cached
from mxr_cli.output import echo, note, print_json
from mxr_cli.rows import report_findings


@command()
@click.argument("path", metavar="[LOCK|FOLDER]", type=click.Path(path_type=Path), default=FILE_NAME)
@click.option(
    "--in",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Verify the files in FOLDER, not the cache.",
)
@cached
def verify(session: Session, path: Path, folder: Path | None) -> None:
    """Compare the files of LOCK (default: mxr.lock), in the cache or in a folder, with the sha256 in the lock.

    Each changed or missing file is listed. The exit code is 65 if a file has changed, 6 if the ONNX file that the lock
    names, or that lies in FOLDER, is another model now, and 3 if a file is missing.

    Programs that were yanked or quarantined, as far as this host has heard, are named; the exit code is 6 for a
    quarantined one.

    With a FOLDER that `mxr fetch -o` wrote, verify it after the consumer has run. The exit code is 6 if a file was
    changed, removed or added, or if the ONNX file beside a program is another model now. A file that the provider of
    ONNX Runtime added means that it found no file of the expected name and compiled silently. Each file is listed with
    the part of its name that differs and the likely reason.

    \b
    Verify the programs of mxr.lock in the cache:
      mxr verify
    Verify them in a folder:
      mxr verify mxr.lock --in /models
    Verify that ONNX Runtime used the files that mxr wrote:
      mxr verify /var/cache/mxr-ort/
    """
    if path.is_dir():
        if folder is not None:
            raise UsageError("--in needs a lock file, not a folder.", hint="Omit --in.")
        _verify_folder(session, path)
        return
    lock = load_lock(path)
    # A folder has what this host needs of the lock, as `mxr fetch --locked -o` places it.
    lock = lock if folder is None else pins.needed_entries(lock, session.host())
    findings = list(drift.verify_entries(lock, path.parent, session.cache(), folder))
    report_findings(session, findings)
    error = drift.damage_error(findings, path, folder)
    if error is not None:
        raise error
    for entry in lock.entries:
        record = session.cache().artifact_record(entry.digest, entry.id)
        if record is not None:
            session.cache().require_proof(record.artifact)
    if not session.as_json:
        echo(f"{path}: {counted(len(findings), 'entry', 'entries')}, all files as locked")


def _verify_folder(session: Session, folder: Path) -> None:
    from mxr.install import verification

    found = verification.verify_folder(folder, session.cache().memo)
    for each in found.findings if not session.as_json else ():
        note(f"mxr: {each.path}: {each.kind}. {each.why}")
        for field, placed, now in each.differences:
            note(f"  {field}: written {placed}, found {now}")
    if found.foreign and not session.as_json:
        more = f" and {len(found.foreign) - 3} more" if len(found.foreign) > 3 else ""
        note(f"mxr: not placed by mxr: {', '.join(found.foreign[:3])}{more} (`mxr check {folder}` reads them)")
    error = verification.problem(folder, found)
    for id, recall in dict(verification.recalled(folder, session.cache())).items():
        note(f"mxr: warning: {recall.sentence(id)}")
        error = recall.error(id) if recall.refuses else error
    if error is not None:
        raise error
    if session.as_json:
        document = {"ok": True, "folder": str(folder), "files": list(found.files), "foreign": list(found.foreign)}
        print_json(document)
    else:
        echo(f"{folder}: {counted(len(found.files), 'file')}, all as mxr wrote them")
