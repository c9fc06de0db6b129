"""From what a person says and what the host is to a request: each fact from one place, and never from two hosts."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.rows import for_each
from strategies import MODEL

from mxr.artifact.attributes import Constraints
from mxr.errors import UsageError
from mxr.host_facts import Host, HostTarget, HostToolchain, combine
from mxr.onnxfile import OnnxInput, OnnxModel
from mxr.request.builder import PreparedRequest, RequestOptions, build_request
from mxr.request.model import ModelReference

SUBJECT = ModelReference(MODEL, OnnxModel(Path("m.onnx"), 0, (OnnxInput("x", "float32", ("N", 3)),), (), (), 17, 8, ""))
MI210 = HostTarget("gfx90a", "+", "-", 104, 1)
MI100 = HostTarget("gfx908", "+", "-", 120, 1)
NAVI = HostTarget("gfx1100", None, None, 48, 1)
ROCM = HostToolchain("7.2.1", "2.15.0", "1a2b3c4")
HOST = Host((MI210,), ROCM, {"rocm": "/opt/rocm/.info/version", "migraphx": "version.h"})
BARE = Host(notes=("no /dev/kfd",))
HERE = Constraints("+", "-", 104, 1, "7.2.1", "2.15.0", "1a2b3c4")


def asked(host: Host = HOST, **said: Any) -> PreparedRequest:
    return build_request(RequestOptions(**({"batch": 8} | said)), SUBJECT, host)


def test_everything_from_the_host() -> None:
    found = asked()
    key = found.request.key
    assert (key.model, key.kind, key.vendor, key.arch) == (MODEL, "gpu", "amd", "gfx90a")
    assert (key.rocm, key.migraphx, key.inputs) == ("7.2", "2.15", (("x", (8, 3)),))
    assert (key.precision, key.calibration, key.env, key.form) == ((), None, (), "whole")
    assert found.request.constraints == HERE
    said = " ".join(found.notes)
    assert "gfx90a" in said and "104" in said and "7.2.1" in said and "python" in said


@pytest.mark.parametrize("said", [{"arch": "gfx90a"}, {"kind": "gpu"}, {"vendor": "amd"}, {"arch": " gfx90a "}])
def test_what_is_said_and_is_the_host_takes_the_rest(said: dict[str, Any]) -> None:
    assert asked(**said).request == asked().request


@for_each(
    [
        ({"arch": "gfx90a:xnack+"}, {"xnack": "+"}),
        ({"arch": "gfx90a:sramecc-"}, {"sramecc": "-"}),
        ({"num_cu": 110}, {"num_cu": 110}),
        ({"chiplets": 2}, {"chiplets": 2}),
        ({"rocm": "7.2"}, {"rocm_patch": None}),
        ({"rocm": "7.2.5"}, {"rocm_patch": "7.2.5"}),
        ({"migraphx": "2.15.0"}, {"build": None}),
        ({"migraphx": "2.15"}, {"migraphx_patch": None, "build": None}),
        ({"tuning": "exhaustive"}, {"tuning": "exhaustive"}),
        ({"exact": True}, {"exact": True}),
        ({"allow": ("cu", "patch")}, {"allow": ("cu", "patch")}),
    ]
)
def test_what_is_said_wins_for_itself_only(said: dict[str, Any], change: dict[str, Any]) -> None:
    found = asked(**said).request
    assert found.constraints == replace(HERE, **change)
    assert found.key == asked().request.key


@pytest.mark.parametrize("said", [{"arch": "gfx908"}, {"vendor": "hygon", "arch": "gfx90a"}, {"arch": "gfx11-generic"}])
def test_another_target_takes_nothing_from_the_host(said: dict[str, Any]) -> None:
    userland = "DTK" if said.get("vendor") == "hygon" else "ROCm"
    with pytest.raises(UsageError, match=f"{userland} and MIGraphX"):
        asked(**said)
    with pytest.raises(UsageError, match="version of MIGraphX is"):
        asked(**said, rocm="6.4")
    found = asked(**said, rocm="6.4", migraphx="2.12")
    assert found.request.constraints == Constraints()
    assert (found.request.key.rocm, found.request.key.migraphx) == ("6.4", "2.12")
    assert not any("this host" in note for note in found.notes)


def test_another_vendor_without_an_arch() -> None:
    with pytest.raises(UsageError, match="no arch is given"):
        asked(vendor="hygon", rocm="25.04", migraphx="2.4")


def test_ref_takes_migraphx_and_nothing_else() -> None:
    for host in (HOST, Host((), ROCM), Host((MI100, NAVI), ROCM)):
        found = asked(host, kind="ref", num_cu=104, arch="gfx90a", rocm="9.9")
        assert (found.request.key.migraphx, found.request.key.arch) == ("2.15", None)
        assert found.request.constraints == Constraints(migraphx_patch="2.15.0")
        assert any("MIGraphX 2.15.0" in note for note in found.notes)
    assert asked(BARE, kind="ref", migraphx="2.16").request.key.migraphx == "2.16"
    with pytest.raises(UsageError, match="version of MIGraphX is"):
        asked(BARE, kind="ref")


def test_no_gpu_and_no_arch() -> None:
    with pytest.raises(UsageError, match="no GPU") as caught:
        asked(BARE, rocm="7.2", migraphx="2.15")
    assert "--arch" in caught.value.hint and caught.value.context == {"notes": ["no /dev/kfd"]}


def test_all_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        asked(BARE, batch=None)
    said = caught.value
    assert said.message == (
        "The request does not tell the arch (this host shows no GPU), the version of ROCm and MIGraphX and all dims of "
        "the inputs."
    )
    for word in ("--arch gfx908 --rocm 7.2 --migraphx 2.15", "--host FILE", "--batch N", "--input x=1,3"):
        assert word in said.hint
    facts = {"kind", "vendor", "arch", "migraphx", "rocm", "offload_copy", "fast_math", "inputs.x"}
    assert set(said.context["open"]) == facts and said.context["inputs"] and said.context["notes"]
    with pytest.raises(UsageError, match=r"^The request does not tell the version of MIGraphX and all dims") as caught:
        build_request(RequestOptions(kind="ref"), SUBJECT, BARE, lambda *_: ["--migraphx 2.16"])
    assert "The registry has this model for: --migraphx 2.16." in caught.value.hint
    assert "--rocm" not in caught.value.hint


@pytest.mark.parametrize(
    "targets",
    [
        (MI210, MI100),
        (MI210, replace(MI210, num_cu=110)),
        (MI210, replace(MI210, xnack="+")),
        (MI210, replace(MI210, chiplets=2)),
        (MI210, MI210, NAVI),
    ],
    ids=["archs", "CUs", "features", "chiplets", "a third"],
)
def test_several_different_gpus_and_none_chosen(targets: tuple[HostTarget, ...]) -> None:
    host = Host(targets, ROCM)
    with pytest.raises(UsageError, match="different GPUs") as caught:
        asked(host)
    last = targets[-1]
    arch = "".join((last.arch, f":sramecc{last.sramecc}:xnack{last.xnack}" if last.xnack else ""))
    assert arch in caught.value.message and f"{last.num_cu} CUs" in caught.value.message
    chosen = asked(host, arch=arch, num_cu=last.num_cu, chiplets=last.chiplets).request
    assert chosen.constraints == replace(
        HERE, sramecc=last.sramecc, xnack=last.xnack, num_cu=last.num_cu, chiplets=last.chiplets
    )


def test_equal_gpus_are_one() -> None:
    eight = tuple(replace(MI210, node=n, render_minor=128 + n, unique_id=f"{n:016x}") for n in range(8))
    assert asked(Host(eight, ROCM)).request == asked().request


def test_one_of_several_is_chosen_by_arch() -> None:
    found = asked(Host((MI210, MI100, NAVI), ROCM), arch="gfx908").request
    assert found.constraints == replace(HERE, num_cu=120)
    assert asked(Host((MI210, NAVI), ROCM), arch="gfx1100").request.constraints.num_cu == 48


RECORDED = Host((), ROCM, {"rocm": "version file", "migraphx": "version.h"})


def test_a_recorded_toolchain_serves_an_arch_that_is_said() -> None:
    host = combine(RECORDED, BARE)
    found = asked(host, arch="gfx908").request
    assert (found.key.arch, found.key.vendor, found.key.rocm) == ("gfx908", "amd", "7.2")
    assert found.constraints == Constraints(rocm_patch="7.2.1", migraphx_patch="2.15.0", build="1a2b3c4")


def test_a_recorded_toolchain_goes_with_this_nodes_hardware() -> None:
    local = Host((MI100,), HostToolchain("6.4.0", "2.12.0", "old"), {"rocm": "here"})
    found = asked(combine(RECORDED, local)).request
    assert (found.key.arch, found.key.rocm, found.constraints.build) == ("gfx908", "7.2", "1a2b3c4")
    with pytest.raises(UsageError, match="ROCm and MIGraphX"):
        asked(combine(RECORDED, local), arch="gfx1100")


def test_a_toolchain_that_was_only_found_lends_nothing_to_another_target() -> None:
    with pytest.raises(UsageError, match="ROCm and MIGraphX"):
        asked(Host((), ROCM, {"rocm": "version file"}), arch="gfx908")


def test_a_recorded_dtk_is_hygons() -> None:
    dtk = Host((), HostToolchain("25.04.1", "2.4.0", None, "hygon"), {"rocm": "DTK"})
    key = asked(combine(dtk, BARE), arch="gfx906").request.key
    assert (key.vendor, key.rocm) == ("hygon", "25.04")
    with pytest.raises(UsageError, match="ROCm and MIGraphX"):
        asked(combine(dtk, BARE), arch="gfx906", vendor="amd")
    local = Host((HostTarget("gfx906", "+", "-", 60, 1),), ROCM)
    assert asked(combine(dtk, local)).request.key.vendor == "hygon"


def test_an_unknown_toolchain_lists_what_the_registry_has() -> None:
    seen: list[tuple[str, str | None]] = []

    def toolchains(model: str, arch: str | None) -> list[str]:
        seen.append((model, arch))
        return ["--rocm 7.2 --migraphx 2.15", "--rocm 6.4 --migraphx 2.12"]

    with pytest.raises(UsageError, match="is not given, not recorded") as caught:
        build_request(RequestOptions(arch="gfx908", batch=1), SUBJECT, BARE, toolchains)
    assert seen == [(MODEL, "gfx908")]
    assert "--rocm 6.4 --migraphx 2.12" in caught.value.hint and "--host FILE" in caught.value.hint
    assert len(caught.value.context["toolchains"]) == 2
    with pytest.raises(UsageError) as caught:
        build_request(RequestOptions(kind="ref", batch=1), SUBJECT, BARE, lambda *_: [])
    assert "mxr host" in caught.value.hint and "ROCm" not in caught.value.message


@for_each(
    [
        ({}, (True, True)),
        ({"consumer": "python"}, (True, True)),
        ({"consumer": "amdinfer"}, (True, True)),
        ({"consumer": "driver"}, (False, True)),
        ({"consumer": "ort"}, (False, False)),
        ({"consumer": "ort", "offload_copy": True}, (True, False)),
        ({"consumer": "python", "fast_math": False}, (True, False)),
        ({"offload_copy": False, "fast_math": False}, (False, False)),
    ]
)
def test_flags(said: dict[str, Any], flags: tuple[bool, bool]) -> None:
    found = asked(**said)
    assert (found.request.key.offload_copy, found.request.key.fast_math) == flags
    assert found.consumer.name == said.get("consumer", "python")
    told = any("no --for given" in note for note in found.notes)
    assert told == ("consumer" not in said and len(said) < 2)


def test_the_rest_of_the_key(tmp_path: Path) -> None:
    data = tmp_path / "calibration.npz"
    data.write_bytes(b"numbers")
    found = asked(
        precision="int8+fp16", calibration=data, env={"MIGRAPHX_NSTREAMS": "2", "MIGRAPHX_ENABLE_CK": "1"}
    ).request.key
    assert found.precision == ("int8", "fp16")
    assert found.calibration == sha256(b"numbers").hexdigest()
    assert found.env == (("MIGRAPHX_ENABLE_CK", "1"), ("MIGRAPHX_NSTREAMS", "2"))


@for_each(
    [
        *({"arch": arch} for arch in ("gfx", "gfx90a:wave64+", "gfx1100:xnack+")),
        *({"kind": kind} for kind in ("cpu", "", "GPU")),
        *({"vendor": "nvidia"}, {"consumer": "nobody"}, {"precision": "fp12"}, {"tuning": "fast"}),
        *({"rocm": "seven"}, {"migraphx": "2"}, {"num_cu": 0}, {"batch": 0}, {"batch": None}),
        *({"env": {"HOME": "/"}}, {"inputs": (("y", (1,)),)}, {"exact": True, "allow": ("cu",)}, {"allow": ("all",)}),
        *({"tuning": "cross"}, {"calibration": Path("/dev/null"), "precision": "fp16"}),
    ]
)
def test_what_cannot_be_asked(said: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        asked(**said)
    assert caught.value.hint


def test_calibration_data_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        asked(precision="int8", calibration=Path("/nowhere/data"))


SPOOFED = replace(NAVI, arch="gfx1100", real_arch="gfx1103")


def test_a_gpu_that_passes_for_another_asks_for_programs_of_its_own_kind() -> None:
    """Source: ROCm/ROCR-Runtime, libhsakmt, HSA_OVERRIDE_GFX_VERSION; the key knows the effective arch alone."""
    found = asked(Host((SPOOFED,), ROCM))
    assert (found.request.key.arch, found.request.constraints.real_arch) == ("gfx1100", "gfx1103")
    assert any("--allow spoof" in note for note in found.notes)
    true = asked(Host((replace(SPOOFED, real_arch=None),), ROCM))
    assert (true.request.key, true.request.constraints.real_arch) == (found.request.key, None)
    said = asked(Host((SPOOFED,), ROCM), real_arch="gfx1100")
    assert said.request.constraints.real_arch is None
    elsewhere = asked(BARE, arch="gfx1100", real_arch="gfx1103", rocm="7.2", migraphx="2.15")
    assert elsewhere.request.constraints.real_arch == "gfx1103"
