"""Calibration data: what fits a model, and what is refused with the name of the input."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mxr.artifact.target import DynamicDim, Inputs
from mxr.errors import MxrError, UsageError
from mxr.onnxfile import OnnxInput
from mxr.request import calibration

IMAGE = OnnxInput("image", "float32", ("N", 3, 2))
TOKENS = OnnxInput("tokens", "int64", ("N",))
SHAPES: Inputs = (("image", (4, 3, 2)), ("tokens", (4,)))


def check(path: Path, inputs: tuple[OnnxInput, ...] = (IMAGE, TOKENS), shapes: Inputs = SHAPES) -> None:
    calibration.check_calibration(path, inputs, shapes)


def image(*dims: int, dtype: str = "<f4", value: float = 0.5) -> Any:
    return np.full(dims or (8, 3, 2), value, dtype=dtype)


def tokens(*dims: int, dtype: str = "<i8") -> Any:
    return np.ones(dims or (8,), dtype=dtype)


def saved(folder: Path, save: Any = np.savez, **arrays: Any) -> Path:
    path = folder / "samples.npz"
    save(path, **arrays)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "arrays",
    [
        {"image": image(4, 3, 2), "tokens": tokens(4)},
        {"image": image(), "tokens": tokens()},
        {"image": image(5, 4, 3, 2), "tokens": tokens(5, 4)},
        {"image": image(5, 4, 3, 2), "tokens": tokens(4)},
        {"image": image(dtype="<f2"), "tokens": tokens()},
        {"image": image(dtype=">f8"), "tokens": tokens()},
        {"image": np.asfortranarray(image()), "tokens": tokens()},
    ],
    ids=["one sample", "joined", "stacked", "one for all", "half", "big-endian double", "column-major"],
)
def test_what_fits(tmp_path: Path, save: Any, arrays: dict[str, Any]) -> None:
    check(saved(tmp_path, save, **arrays))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_format(tmp_path: Path, version: tuple[int, int]) -> None:
    data = io.BytesIO()
    np.lib.format.write_array(data, tokens(), version=version)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("tokens.npy", data.getvalue())
    check(tmp_path / "a.npz", (TOKENS,), (("tokens", (4,)),))


def test_scalars_dynamic_dims_and_an_empty_past(tmp_path: Path) -> None:
    inputs = (OnnxInput("s", "bool", ()), OnnxInput("d", "uint8", ("N",)), OnnxInput("p", "float16", (1, "past", 2)))
    shapes: Inputs = (("s", ()), ("d", (DynamicDim(1, 8),)), ("p", (1, 0, 2)))
    arrays = {"s": np.array(True), "d": np.ones(16, "u1"), "p": np.zeros((1, 0, 2), "f2")}
    check(saved(tmp_path, **arrays), inputs, shapes)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"imag": image(), "tokens": tokens()}, "the model has no input imag; its inputs are image, tokens"),
        ({"image": image()}, "it has no array for the input tokens"),
        ({}, "it has no array for the input image"),
        ({"image": image(8, 3, 3), "tokens": tokens()}, r"input image have the dims \[8,3,3\], and .* has \[4,3,2\]"),
        ({"image": image(6, 3, 2), "tokens": tokens()}, r"6 samples are not a multiple of the batch size 4"),
        ({"image": image(0, 3, 2), "tokens": tokens()}, r"input image have the dims \[0,3,2\]"),
        ({"image": image(12, 3, 2), "tokens": tokens()}, "the input tokens has 2 samples, and image has 3"),
        ({"image": image(dtype="<i4"), "tokens": tokens()}, "the input image are <i4, not float32"),
        ({"image": image(dtype="<c8"), "tokens": tokens()}, "the input image are <c8, not float32"),
        ({"image": image(), "tokens": tokens(dtype="<i4")}, "the input tokens are <i4, not int64"),
        ({"image": image(), "tokens": tokens(dtype="<f4")}, "the input tokens are <f4, not int64"),
        ({"image": image(value=np.nan), "tokens": tokens()}, "the input image contain NaN or infinity"),
        ({"image": image(value=np.inf, dtype=">f4"), "tokens": tokens()}, "the input image contain NaN or infinity"),
        ({"image": image(value=np.nan, dtype="<f2"), "tokens": tokens()}, "the input image contain NaN or infinity"),
        ({"image": image(value=-np.inf, dtype="<f8"), "tokens": tokens()}, "the input image contain NaN or infinity"),
        ({"image": np.array([None]), "tokens": tokens()}, "the input image holds pickled Python objects"),
        ({"image": np.zeros(8, "f4,i4"), "tokens": tokens()}, "the input image is not an array of plain numbers"),
        ({"image": np.array(["a"]), "tokens": tokens()}, "the input image is not an array of plain numbers"),
    ],
)
def test_what_does_not_fit_names_the_input(tmp_path: Path, arrays: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        check(saved(tmp_path, **arrays))
    assert caught.value.message.startswith("The calibration data samples.npz cannot be used: ")
    assert "numpy.savez" in caught.value.hint


def test_one_value_that_is_not_finite_is_found_anywhere(tmp_path: Path) -> None:
    """The data are read in pieces; the largest finite values pass."""
    values = np.full((300_000, 1), np.finfo("f4").max, dtype="f4")
    shapes: Inputs = (("x", (1, 1)),)
    check(saved(tmp_path, x=values), (OnnxInput("x", "float32", ("N", 1)),), shapes)
    for at in (0, 131_071, 262_143, 262_144, 299_999):
        wrong = values.copy()
        wrong[at] = np.nan
        with pytest.raises(UsageError, match="NaN"):
            check(saved(tmp_path, x=wrong), (OnnxInput("x", "float32", ("N", 1)),), shapes)


def array_file(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, image())


def with_member(name: str, data: bytes, *more: tuple[str, bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for each, content in ((name, data), *more):
                archive.writestr(each, content)

    return write


def header(text: str, version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode("latin-1")


PLAIN = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"
BOMB = header(PLAIN % "4, 3, 2,")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: path.write_bytes(b""), "it is not an .npz file"),
        (lambda path: path.write_bytes(bytes(range(256)) * 16), "it is not an .npz file"),
        (array_file, r"it is one array without a name \(.npy\)"),
        (with_member("image.txt", b"x"), "image.txt in it is not an array"),
        (with_member("image.npy", b"x"), "the input image is not an array in numpy's format"),
        (with_member("image.npy", header("{'descr': eval('1')}")), "not an array of plain numbers"),
        (with_member("image.npy", header(PLAIN % ("9" * 9000))), "not an array of plain numbers"),
        (with_member("image.npy", header(PLAIN % ("1," * 70))), "not an array of plain numbers"),
        (with_member("image.npy", header("-" * 60_000)), "not an array in numpy's format"),
        (with_member("image.npy", BOMB + bytes(100 << 20)), "its header and its size differ"),
        (with_member("image.npy", header(PLAIN % "4, 3, 999999999999")), "its header and its size differ"),
        (with_member("image.npy", BOMB), "its header and its size differ"),
    ],
)
def test_what_is_no_calibration_data(tmp_path: Path, write: Callable[[Path], Any], said: str) -> None:
    path = tmp_path / "samples.npz"
    write(path)
    with pytest.raises(UsageError, match=said):
        check(path, (IMAGE,), SHAPES[:1])


def test_data_that_would_not_end_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb with a true header: its sizes are added up before anything is decompressed."""
    path = saved(tmp_path, np.savez_compressed, image=image(40, 4, 3, 2))
    monkeypatch.setattr(calibration, "MAX_DATA_BYTES", 1000)
    monkeypatch.setattr(calibration, "_is_finite", lambda *_: pytest.fail("the data were read"))
    with pytest.raises(UsageError, match="its arrays have more than"):
        check(path, (IMAGE,), SHAPES[:1])
    monkeypatch.setattr(calibration, "MAX_FILE_BYTES", 10)
    with pytest.raises(UsageError, match="it has more than"):
        check(path, (IMAGE,), SHAPES[:1])


def test_a_member_twice_and_too_many(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    with pytest.warns(UserWarning, match="Duplicate"):
        with_member("image.npy", BOMB, ("image.npy", BOMB))(path)
    with pytest.raises(UsageError, match="is there twice"):
        check(path, (IMAGE,), SHAPES[:1])
    with_member("a.npy", b"", *((f"{at}.npy", b"") for at in range(1000)))(path)
    with pytest.raises(UsageError, match="it has 1001 arrays"):
        check(path, (IMAGE,), SHAPES[:1])


def test_a_damaged_byte_is_found(tmp_path: Path) -> None:
    """Also where no value is looked at: the checksums are verified."""
    path = saved(tmp_path, tokens=tokens(4096))
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"it is not an \.npz file .*CRC"):
        check(path, (TOKENS,), (("tokens", (4,)),))


def test_a_type_that_numpy_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the input x is bfloat16, for which no calibration data"):
        check(saved(tmp_path, x=image(4)), (OnnxInput("x", "bfloat16", ("N",)),), (("x", (4,)),))


@pytest.mark.parametrize("path", ["/nowhere/samples.npz", "/dev"])
def test_a_file_that_cannot_be_read(path: str) -> None:
    with pytest.raises(MxrError):
        check(Path(path))
