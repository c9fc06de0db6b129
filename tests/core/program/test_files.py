"""Every program under tests/data, with the facts that are known from its creation."""

from __future__ import annotations

from core.program.program_maker import DATA
from harness.rows import for_each

from mxr.program import Certainty, describe_file

HEADS = {5: None, 6: ("2.7.0", "5.7"), 7: ("2.15.0", "7.2"), 8: ("2.16.0", "7.14")}

IMAGES, CLASSES = (3, 32, 32), (10,)
REAL = {
    # name: (first dim, other input dims, other output dims, precision, bytes of weights)
    "block_b8_fp16_ref": (8, (32, 128), (32, 128), "fp16", 450564),
    "convnet_b1_fp16_ref": (1, IMAGES, CLASSES, "fp16", 189076),
    "convnet_b1_fp32_ref": (1, IMAGES, CLASSES, "fp32", 378152),
    "convnet_b1_fp8_ref": (1, IMAGES, CLASSES, "fp8", 378272),
    "convnet_b4_bf16_ref": (4, IMAGES, CLASSES, "bf16", 189076),
    "convnet_b4_fp16_ref": (4, IMAGES, CLASSES, "fp16", 189076),
    "convnet_b4_fp32_ref": (4, IMAGES, CLASSES, "fp32", 378152),
    "convnet_b4_int8_ref": (4, IMAGES, CLASSES, "int8", 378192),
    "convnet_b4_uncompiled": (4, IMAGES, CLASSES, "fp32", 378152),
    "convnet_dyn_ref": ([1, 8, [1, 4, 8]], IMAGES, CLASSES, "fp32", 378152),
    "mlp_ext_b1_fp32_ref": (1, (256,), (64,), "fp32", 328960),
    "mlp_ext_b4_fp16_ref": (4, (256,), (64,), "fp16", 164480),
}

A90, A908 = "gfx90a:sramecc+:xnack-", "gfx908:sramecc+:xnack-"
SPLICED = {
    # name: (file version, archs, bytes of code objects)
    "v6_layout_gfx90a": (6, [A90], 7904),
    "v7_bf16_b1": (7, [A90], 7904),
    "v7_gfx1030.cov5": (7, ["gfx1030"], 6240),
    "v7_gfx11-generic.cov6": (7, ["gfx11-generic"], 7632),
    "v7_gfx1100.cov5": (7, ["gfx1100"], 6880),
    "v7_gfx1103.cov5": (7, ["gfx1103"], 6880),
    "v7_gfx906_sramecc+_xnack-.cov5": (7, ["gfx906:sramecc+:xnack-"], 5840),
    "v7_gfx908.cov5": (7, ["gfx908"], 5840),
    "v7_gfx908_sramecc+_xnack-.cov5": (7, [A908], 5840),
    "v7_gfx90a_sramecc+_xnack+.cov5": (7, ["gfx90a:sramecc+:xnack+"], 7904),
    "v7_gfx90a_sramecc+_xnack-.bundle": (7, [A90], 16096),
    "v7_gfx942_sramecc+_xnack-.cov5": (7, ["gfx942:sramecc+:xnack-"], 8656),
    "v7_layout_gfx90a": (7, [A90], 7904),
    "v7_miopen_solution": (7, [A90], 7904),
    "v7_mixed_arch_gfx908_gfx1100": (7, ["gfx1100", A908], 6360),
    "v8_layout_gfx90a": (8, [A90], 7904),
}


def test_the_tables_name_every_file():
    names = {path.name.removesuffix(".mxr") for path in DATA.glob("mxr_*/*.mxr")}
    assert names == REAL.keys() | SPLICED.keys()


@for_each(REAL)
def test_real_program(name):
    first, inputs, outputs, precision, weights = REAL[name]
    path = DATA / "mxr_real" / f"{name}.mxr"
    found = describe_file(path).to_json()
    compiled = not name.endswith("uncompiled")
    # The dynamic program was tuned for three sizes. MIGraphX keeps them for the input but not for the output.
    first_out = [1, 8, []] if isinstance(first, list) else first
    expected = {
        "file_version": 8,
        "migraphx": "2.16.0",
        "rocm_hint": "7.14",
        "flavour": "upstream",
        "form": "msgpack",
        "compiled": compiled,
        "targets": ["ref"] if compiled else [],
        "archs": [],
        "mixed_arch": False,
        "inputs": {"x": {"type": "float_type", "dims": [first, *inputs]}},
        "outputs": [{"type": "float_type", "dims": [first_out, *outputs]}],
        "dynamic": isinstance(first, list),
        "precisions": [precision],
        "offload_copy": None,
        "libraries": [],
        "kernels": {"code_objects": 0, "mlir": 0, "made_at_run_time": 0, "unread": 0},
        "modules": 1,
        "debug_symbols": False,
        "sizes": {"file": path.stat().st_size, "literals": weights, "code_objects": 0},
        "warnings": [],
        "notes": [],
    }
    assert {key: found[key] for key in expected} == expected
    assert found["sure"]["archs"]["how"] == Certainty.UNKNOWN
    assert found["sure"]["precisions"]["how"] == (Certainty.STRONG if precision == "int8" else Certainty.CERTAIN)


@for_each(SPLICED)
def test_spliced_program(name):
    version, archs, code_bytes = SPLICED[name]
    batch, kind, width = (1, "bf16", 2) if name == "v7_bf16_b1" else (4, "float", 4)
    path = DATA / "mxr_spliced" / f"{name}.mxr"
    found = describe_file(path).to_json()
    migraphx, rocm = HEADS[version]
    libraries = ["miopen"] if "miopen" in name else []
    expected = {
        "file_version": version,
        "migraphx": migraphx,
        "rocm_hint": rocm,
        "flavour": "upstream",
        "compiled": True,
        "targets": ["gpu"],
        "archs": archs,
        "mixed_arch": len(archs) > 1,
        "inputs": {"x": {"type": "float_type", "dims": [batch, 3, 32, 32]}},
        "outputs": [{"type": f"{kind}_type", "dims": [batch, 64, 32, 32]}],
        "precisions": ["bf16" if kind == "bf16" else "fp32"],
        "offload_copy": True,
        "libraries": libraries,
        "kernels": {"code_objects": 2, "mlir": 1, "made_at_run_time": 0, "unread": 0},
        "sizes": {"file": path.stat().st_size, "literals": width * 64 * 28, "code_objects": code_bytes},
    }
    assert {key: found[key] for key in expected} == expected
    assert found["sure"]["archs"]["how"] == Certainty.CERTAIN
    assert "2 confirmed" in found["sure"]["archs"]["from"]
    assert bool(found["warnings"]) == (len(archs) > 1)
    assert bool(found["notes"]) == bool(libraries)


def test_operators_are_counted_by_their_plain_names():
    found = describe_file(DATA / "mxr_real" / "convnet_b4_int8_ref.mxr")
    assert found.operators["convolution"] == 3
    assert found.operators["quantizelinear"] > 3
    assert "ref::op" not in found.operators
