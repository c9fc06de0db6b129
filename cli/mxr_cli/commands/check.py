"""`mxr check`: whether a .mxr file, or each one in a folder, loads on a host or target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mxr.artifact.key import value_text
from mxr.artifact.target import userland
from mxr.display.text import counted, shell_quoted
from mxr.errors import DamagedError, MismatchError, MxrError, UsageError
from mxr.request.builder import RequestOptions
from mxr_cli.help import command
from mxr_cli.options import Session, local, request
from mxr_cli.output import echo, print_json

if TYPE_CHECKING:
    from mxr.host_facts import Hardware, HostToolchain
    from mxr.install.folder_check import CheckedProgram


@command(usual=("oci", "arch", "rocm", "migraphx", "batch", "precision", "consumer", "host_file", "as_json"))
@click.argument("path", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@click.option("--oci", is_flag=True, help="FOLDER is an OCI image layout: check the programs in its container images.")
@request
@local
def check(session: Session, options: RequestOptions, path: Path, oci: bool) -> None:
    """Check whether FILE runs on this host, on a recorded host (--host), or on a given target (--arch ...).

    Options such as --batch, --input, --precision, --for and the compile flags are compared with the file, too. Each
    requirement is listed with the value that it needs and the value that was found. The exit code is 0 if all are met
    or unknown, and 6 if one is not met.

    With a FOLDER, check every .mxr file below it, wherever it comes from. Programs for another GPU or MIGraphX, files
    that are no programs, and files whose name states a batch size that the program does not have (resnet50_b8.mxr) are
    listed, and programs that mxr placed beside an ONNX file that is another model now. A program that mxr placed is
    called `cross, never run` if it was compiled without its GPU. The exit code is 6 if there are
    any, 65 if the folder holds no program, and 2 if neither this host nor --arch names a GPU to compare with.

    With --oci, check the images that `mxr export --oci` wrote, each for the GPU that it names, or those for --arch:
    every layer has its sha256, no program is quarantined, and where signatures are required, each program has its
    statement. No GPU is needed.

    \b
    mxr check model.mxr --arch gfx908 --rocm 7.2 --migraphx 2.15
    mxr check /models/
    mxr check --oci images/ --rocm 7.2
    """
    from mxr.host_facts import Hardware
    from mxr.request.builder import choose_hardware, choose_toolchain, installed_toolchain

    if oci:
        _check_images(session, options, path)
        return
    where = _where(session, options)
    if path.is_dir():
        host = session.host()
        if not host.targets and options.arch is options.kind is None:
            hardware, toolchain, where = Hardware(), installed_toolchain(options, host), ""
        else:
            hardware, toolchain = choose_hardware(options, host, [])
        _check_folder(session, options, path, where, (hardware, choose_toolchain(options, toolchain)))
        return
    _check_file(session, options, path, where)


def _check_file(session: Session, options: RequestOptions, file: Path, where: str) -> None:
    from mxr.install.folder_check import check_file
    from mxr.request import compatibility

    rows = check_file(file, options, session.host(), session.cache().memo)
    if session.as_json:
        print_json(compatibility.to_json(rows))
    else:
        for row in rows:
            mark = {True: "ok", False: "NO", None: "? "}[row.ok]
            reason = "" if row.ok else f"  ({row.why})"
            echo(f"  {mark}  {row.field:<13} needs {value_text(row.needed)}, found {value_text(row.found)}{reason}")
    if not compatibility.fits(rows):
        unmet = [row for row in rows if row.ok is False]
        error = MismatchError(
            f"{file} does not fit {where}: "
            + "; ".join(f"{row.field} needs {value_text(row.needed)}, found {value_text(row.found)}" for row in unmet)
            + ".",
            hint=f"Fetch a program that fits: mxr fetch MODEL{_arch_words(options)}.",
        )
        _fail(session, error)


def _check_folder(
    session: Session, options: RequestOptions, folder: Path, where: str, target: tuple[Hardware, HostToolchain]
) -> None:
    from mxr.install.folder_check import check_folder, nothing_to_check

    rows = check_folder(folder, options, *target, session.cache().memo)
    if not rows:
        raise nothing_to_check(folder)
    bad = [row for row in rows if row.problems]
    compared = bool(where) or all(row.target == "ref" for row in rows)
    if session.as_json:
        print_json(
            {
                "ok": not bad and compared,
                "compared": compared,
                "folder": str(folder),
                "files": [row.to_json() for row in rows],
            }
        )
    else:
        for row in rows:
            mark = "NO" if row.problems else "ok"
            more = "; ".join(row.problems) or _facts(row)
            echo(f"  {mark}  {row.name}  {more}{'' if row.placed else '  (mxr did not place it)'}")
        if not bad and compared:
            echo(f"{folder}: {counted(len(rows), 'program')}, all fit {where or 'this host'}")
    if not bad and not compared:
        text = f"{folder}: {counted(len(rows), 'program')}, undamaged; not compared with a GPU: this host shows none."
        _fail(session, UsageError(text, hint="Name one by --arch ARCH."))
    if bad:
        names = ", ".join(row.name for row in bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
        on = f" on {where}" if where else ""
        command = f"mxr fetch MODEL{_arch_words(options)} -o {shell_quoted(folder)}"
        error = MismatchError(
            f"{len(bad)} of the {counted(len(rows), 'program')} in {folder} cannot be used{on}: {names}.",
            hint=f"Move these away, and fetch what fits: {command}.",
            context={"files": [row.to_json() for row in bad[:100]]},
        )
        _fail(session, error)


def _check_images(session: Session, options: RequestOptions, path: Path) -> None:
    from mxr.bundle import image_check
    from mxr.install.folder_check import check_folder
    from mxr.request.builder import choose_hardware, choose_toolchain

    layout, images = image_check.open_images(path)
    gfx = options.arch and options.arch.partition(":")[0]
    chosen = [image for image in images if gfx in (None, image.gfx)]
    if not chosen:
        tags = ", ".join(image.tag for image in images)
        raise UsageError(f"{path} has no image for {gfx}: it has {tags}.", hint="Choose one of those GPUs.")
    host, documents, bad = session.host(), [], []
    for image in chosen:
        with image_check.unpacked(layout, image) as folder:
            arch = options.arch or image.gfx
            asked = replace(options, arch=arch) if arch else replace(options, kind=options.kind or "ref")
            hardware, toolchain = choose_hardware(asked, host, [])
            target = (hardware, choose_toolchain(asked, toolchain))
            rows = check_folder(folder, asked, *target, session.cache().memo)
            if not rows:
                raise DamagedError(
                    f"Image {image.tag} in {path} has no program (*.mxr) below /models.",
                    hint="Give a layout that `mxr export --oci` wrote.",
                )
            found = [
                *image_check.other_rocm(image, target[1].rocm),
                *image_check.problems_of(folder, image_check.records_of(layout, image), session.cache()),
            ]
        problems = [*found, *(f"{row.name}: {each}" for row in rows for each in row.problems)]
        bad += [f"{image.tag}: {each}" for each in problems]
        documents.append(
            {
                "tag": image.tag,
                "digest": f"sha256:{image.digest}",
                "ok": not problems,
                "problems": found,
                "files": [row.to_json() for row in rows],
            }
        )
        if not session.as_json:
            echo(f"  {'NO' if problems else 'ok'}  {image.tag}  {counted(len(rows), 'program')}, sha256:{image.digest}")
    if session.as_json:
        print_json({"ok": not bad, "layout": str(path), "images": documents})
    if bad:
        more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
        error = MismatchError(
            f"{path} has images that cannot be used: {'; '.join(bad[:5])}{more}.",
            hint="Export them again: `mxr export --oci`.",
            context={"images": documents[:100]},
        )
        _fail(session, error)


def _facts(row: CheckedProgram) -> str:
    """What a program is for, in one line."""
    found = row.description or {}
    version = f"MIGraphX {found['migraphx']}" if found.get("migraphx") else ""
    words = ["+".join(found.get("archs") or found.get("targets") or ()), version]
    words += [f"batch {row.batch}" if row.batch else "", "cross, never run" if row.cross else ""]
    return ", ".join(filter(None, words))


def _arch_words(options: RequestOptions) -> str:
    return f" --arch {options.arch}" if options.arch else ""


def _fail(session: Session, error: MxrError) -> None:
    """Raise the error. With --json, its document was printed already."""
    if session.as_json:
        raise click.exceptions.Exit(error.exit)
    raise error


def _where(session: Session, options: RequestOptions) -> str:
    """What the file is checked against, in words."""
    named = [options.arch or options.kind, options.vendor, *(f"{n} CUs" for n in (options.num_cu,) if n)]
    named += [
        f"{name} {value}"
        for name, value in (("MIGraphX", options.migraphx), (userland(options.vendor), options.rocm))
        if value
    ]
    said = ", ".join(each for each in named if each)
    if session.settings.host_file:
        return f"the host recorded in {session.settings.host_file}{f' with {said}' if said else ''}"
    return said or "this host"
