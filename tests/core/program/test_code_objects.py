"""Code objects: real ones by clang, crafted ones with false contents, and bundles of both."""

from __future__ import annotations

import zlib

import pytest
import zstandard
from core.program import program_maker as make
from harness.rows import for_each

from mxr.artifact.target import GfxArch
from mxr.program.code_objects import MAX_INFLATED_BYTES, MIN_INFLATED_BYTES, read_code_object
from mxr.program.elf import Allowance
from mxr.program.isa import MACHINES, can_intersect, intersect, read_isa
from mxr.program.source import BytesSource

REAL = {
    # name: (archs, code object version, whether a second source confirms the archs)
    "gfx1100.cov5.hsaco": (["gfx1100"], 5, True),
    "gfx908_sramecc+_xnack-.cov5.hsaco": (["gfx908:sramecc+:xnack-"], 5, True),
    "gfx90a_sramecc+_xnack-.cov5.hsaco": (["gfx90a:sramecc+:xnack-"], 5, True),
    "gfx942_sramecc+_xnack-.cov5.hsaco": (["gfx942:sramecc+:xnack-"], 5, True),
    "gfx90a_sramecc+_xnack-.bundle.co": (["gfx90a:sramecc+:xnack-"], None, True),
    "gfx1010_xnack+.cov5.hsaco": (["gfx1010:xnack+"], 5, True),
    "gfx1201.cov5.hsaco": (["gfx1201"], 5, True),
    "gfx12-generic.cov6.hsaco": (["gfx12-generic"], 6, True),
    "gfx90a_xnack-.cov4.hsaco": (["gfx90a:xnack-"], 4, True),
    "gfx908_sramecc-_xnack+.cov3.hsaco": (["gfx908:sramecc-:xnack+"], 3, False),
    "gfx900_xnack+.cov2.hsaco": (["gfx900:xnack+"], 2, True),
    "gfx1201_and_gfx900_xnack+.bundle.co": (["gfx1201", "gfx900:xnack+"], None, True),
    "gfx1201_and_gfx900_xnack+.zstd.ccob": (["gfx1201", "gfx900:xnack+"], None, True),
}


def read(data: bytes, *, notes: int = 1 << 20, inflated: int = 1 << 20):
    return read_code_object(BytesSource(data), Allowance(notes, inflated))


def archs(found) -> list[str]:
    return sorted(map(str, found.isas))


def test_the_table_names_every_code_object():
    assert {path.name for path in (make.DATA / "hsaco").iterdir() if path.suffix != ".cl"} == REAL.keys()


@for_each(REAL)
def test_real_code_object(name):
    expected, version, confirmed = REAL[name]
    found = read(make.hsaco(name))
    assert (archs(found), found.version, found.confirmed, found.problem) == (expected, version, confirmed, None)


@for_each(REAL)
def test_a_truncated_code_object_raises_no_error(name):
    data = make.hsaco(name)
    for size in range(0, len(data), 37):
        found = read(data[:size])
        assert set(archs(found)) <= set(REAL[name][0])


@for_each(
    [
        (0x530, 3, "gfx908"),
        (0xE30, 3, "gfx908:sramecc+:xnack-"),
        (0xE3F, 2, "gfx90a:sramecc+:xnack-"),
        (0xF3F, 3, "gfx90a:sramecc+:xnack+"),
        (0x041, 3, "gfx1100"),
        (0x1000054, 4, "gfx11-generic"),
        (0x330, 1, "gfx908:sramecc+:xnack+"),
        (0x030, 1, "gfx908:sramecc-:xnack-"),
        (0x036, 1, "gfx1030"),
        (0x12C, 1, "gfx900:xnack+"),
        (0xE4F, 4, "gfx950:sramecc+:xnack-"),
    ]
)
def test_flags(flags, abi, expected):
    found = read(make.elf(flags, abi=abi))
    assert (archs(found), found.version, found.problem) == ([expected], abi + 2, None)


def test_every_machine_is_an_arch_that_mxr_can_write():
    assert all(str(GfxArch.parse(name)) == name for name in MACHINES.values())


def test_a_note_confirms_or_contradicts_the_flags():
    agreeing = read(make.elf(0xE3F, notes=make.metadata("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-")))
    assert agreeing.confirmed
    assert agreeing.problem is None
    lying = read(make.elf(0xE3F, notes=make.metadata("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack+")))
    assert archs(lying) == ["gfx90a:sramecc+:xnack-"]
    assert not lying.confirmed
    assert "xnack-" in lying.problem
    assert "xnack+" in lying.problem


def test_a_note_gives_the_arch_of_an_unknown_machine():
    found = read(make.elf(0x7F, notes=make.metadata("amdgcn-amd-amdhsa--gfx1399")))
    assert archs(found) == ["gfx1399"]
    assert not found.confirmed
    assert "e_flags 0x7f" in read(make.elf(0x7F)).problem


def test_version_2_notes():
    version = make.note(
        b"AMD", 3, (4).to_bytes(2, "little") + (7).to_bytes(2, "little") + b"\x09\0\0\0\0\0\0\0\x0a\0\0\0"
    )
    assert archs(read(make.elf(0, abi=0, notes=version))) == ["gfx90a"]
    name = make.note(b"AMD", 11, b"amdgcn-amd-amdhsa--gfx906+xnack\0")
    assert archs(read(make.elf(0, abi=0, notes=name))) == ["gfx906:xnack+"]


def test_notes_in_sections_are_read_where_there_are_no_segments():
    data = bytearray(make.hsaco("gfx1201.cov5.hsaco"))
    data[48] = 0xFF  # an unknown machine
    assert archs(read(bytes(data))) == ["gfx1201"]
    data[56:58] = b"\0\0"  # no program headers
    assert archs(read(bytes(data))) == ["gfx1201"]


@pytest.mark.parametrize(
    "segments",
    [
        [(4, 0, 1 << 63)] * 9,
        [(4, (1 << 64) - 1, 5)],
        [(4, 60, 1 << 40), (4, 61, 1 << 40), (4, 62, 1 << 40)],
        [(4, 1 << 20, 100)],
    ],
)
def test_overlapping_and_false_tables_raise_no_error(segments):
    notes = make.metadata("amdgcn-amd-amdhsa--gfx908") * 50
    assert archs(read(make.elf(0x530, segments=segments, notes=notes))) == ["gfx908"]


def test_overlapping_notes_cost_no_more_than_their_bytes():
    allowance = Allowance(notes=1 << 30, inflated=0)
    junk = bytes(100_000)
    data = make.elf(0x530, segments=[(4, n, 200_000) for n in range(64)], notes=junk)
    read_code_object(BytesSource(data), allowance)
    assert (1 << 30) - allowance.notes <= len(data)


def test_files_that_are_not_code_objects():
    assert "not an AMDGPU" in read(make.elf(0x530, machine=62)).problem
    assert "not an AMDGPU" in read(b"\x7fELF").problem
    assert "does not know" in read(b"").problem
    assert "does not know" in read(b"BC\xc0\xde").problem


def test_a_bundle_with_a_wrong_label():
    code = make.hsaco("gfx1100.cov5.hsaco")
    found = read(make.bundle([("host-x86_64--", b""), ("hipv4-amdgcn-amd-amdhsa--gfx1101", code)]))
    assert archs(found) == ["gfx1100"]
    assert found.problem == "is labelled gfx1101 by its bundle but contains code for gfx1100"


def test_a_bundle_with_false_sizes():
    good = make.bundle([("hipv4-amdgcn-amd-amdhsa--gfx1100", make.hsaco("gfx1100.cov5.hsaco"))])
    for size in (1 << 63, len(good)):
        found = read(good[:40] + size.to_bytes(8, "little") + good[48:])
        assert (archs(found), found.unread) == ([], True), "the label alone proves nothing"
        assert "beyond its end" in found.problem
    assert "without a GPU code object" in read(good[:24] + b"\xff" * 8).problem
    assert "without a GPU code object" in read(make.bundle([("host-x86_64--", b"")])).problem


def test_the_nesting_of_bundles_is_limited():
    code = make.hsaco("gfx1100.cov5.hsaco")
    data = code
    for _ in range(2):
        data = make.bundle([("hip-amdgcn-amd-amdhsa-gfx1100", data)])
    assert read(data).problem is None
    for _ in range(50):
        data = make.bundle([("hip-amdgcn-amd-amdhsa-gfx1100", data)])
    found = read(data)
    assert (archs(found), found.unread) == ([], True)
    assert "nests bundles" in found.problem


def test_an_entry_that_cannot_be_read_is_no_evidence():
    code = make.hsaco("gfx1100.cov5.hsaco")
    labels = [f"hipv4-amdgcn-amd-amdhsa--{name}" for name in ("gfx908", "gfx1100")]
    found = read(make.bundle([(labels[0], b"no ELF file at all"), (labels[1], code)]))
    assert (archs(found), found.unread) == (["gfx1100"], True)
    assert "packing" in found.problem
    found = read(make.bundle([(labels[0], b"no ELF file at all")]))
    assert (archs(found), found.unread) == ([], True)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(("method", "pack"), [(0, zlib.compress), (1, zstandard.compress)])
def test_compressed_bundle(version, method, pack):
    plain = make.hsaco("gfx90a_sramecc+_xnack-.bundle.co")
    found = read(make.compressed(pack(plain), len(plain), version=version, method=method))
    assert (archs(found), found.packing, found.problem) == (["gfx90a:sramecc+:xnack-"], "compressed bundle", None)
    broken = read(make.compressed(pack(plain)[20:], len(plain), version=version, method=method))
    assert "damaged" in broken.problem


@pytest.mark.parametrize(("method", "pack"), [(0, zlib.compress), (1, zstandard.compress)])
def test_compressed_bundles_that_exceed_the_limits(method, pack):
    payload = pack(bytes(8 << 20))
    false_size = read(make.compressed(payload, 100, version=2, method=method), inflated=MAX_INFLATED_BYTES)
    assert "exceeds its declared size" in false_size.problem
    too_large = read(make.compressed(payload, 8 << 20, version=2, method=method), inflated=1 << 20)
    assert "the size limit" in too_large.problem


def test_all_code_objects_share_the_decompression_limit():
    plain = make.hsaco("gfx90a_sramecc+_xnack-.bundle.co")
    data = make.compressed(zlib.compress(plain), len(plain), version=2, method=0)
    allowance = Allowance(notes=1 << 20, inflated=2 * len(plain))
    assert [bool(read_code_object(BytesSource(data), allowance).problem) for _ in range(3)] == [False, False, True]


def bombs():
    """Compressed bundles of a few KiB, each of which costs something else before it fails."""
    for method, pack in ((0, zlib.compress), (1, zstandard.compress)):
        bomb = pack(bytes(8 << 20))
        yield make.compressed(bomb, 4 << 20, version=2, method=method), "more than declared"
        yield make.compressed(bomb[: len(bomb) // 2], 8 << 20, version=2, method=method), "cut"
        yield make.compressed(bomb[:-8] + bytes(8), 8 << 20, version=2, method=method), "damaged at its end"
        yield make.compressed(b"x" * 100, 8 << 20, version=2, method=method), "nothing of it can be decompressed"
        yield make.compressed(pack(b""), 0, version=2, method=method), "empty"


def test_every_attempt_counts_against_the_decompression_limit():
    for data, name in bombs():
        allowance = Allowance(notes=1 << 20, inflated=MAX_INFLATED_BYTES)
        for _ in range(MAX_INFLATED_BYTES // MIN_INFLATED_BYTES + 2):
            before = allowance.inflated
            assert read_code_object(BytesSource(data), allowance).unread, name
            if allowance.inflated == before:
                break
            assert before - allowance.inflated >= MIN_INFLATED_BYTES, name
        assert allowance.inflated < 8 << 20, name


def test_unknown_compression():
    for version, method in ((4, 0), (2, 7)):
        head = b"CCOB" + version.to_bytes(2, "little") + method.to_bytes(2, "little")
        assert "unsupported version" in read(head + bytes(40)).problem


def test_zstd_without_its_package_is_reported(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    found = read(make.hsaco("gfx1201_and_gfx900_xnack+.zstd.ccob"))
    assert not found.isas
    assert "zstandard is not installed" in found.problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", "gfx90a:sramecc+:xnack-"),
        ("hip-amdgcn-amd-amdhsa-gfx906+sram-ecc", "gfx906:sramecc+"),
        ("amdgcn-amd-amdhsa--gfx9-4-generic:xnack-", "gfx9-4-generic:xnack-"),
        ("gfx1201", "gfx1201"),
        ("host-x86_64-unknown-linux--", "None"),
        ("gfx90a:wavefront64", "None"),
        ("gfx", "None"),
    ],
)
def test_target_ids(text, expected):
    assert str(read_isa(text)) == expected


def test_isas_that_meet():
    a90, plus, minus = GfxArch("gfx90a"), GfxArch("gfx90a", xnack="+"), GfxArch("gfx90a", "+", "-")
    assert intersect(a90, minus) == minus
    assert intersect(plus, minus) is None
    assert intersect(GfxArch("gfx11-generic"), GfxArch("gfx1100")) == GfxArch("gfx1100")
    assert intersect(GfxArch("gfx11-generic"), GfxArch("gfx1201")) is None
    assert can_intersect([])
    assert can_intersect([frozenset({a90, GfxArch("gfx908")}), frozenset({minus})])
    assert not can_intersect([frozenset({plus}), frozenset({a90}), frozenset({minus})])
