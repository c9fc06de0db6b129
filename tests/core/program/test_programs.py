"""Programs of every file version and flavour, built byte by byte: their description and its certainty."""

from __future__ import annotations

import pytest
from core.program import program_maker as make
from harness.rows import for_each

from mxr.artifact.target import DynamicDim
from mxr.errors import DamagedError, UsageError
from mxr.program import BytesSource, describe, describe_file, read_header

F = make.shape("float", 4, 8)
CODE = make.hsaco("gfx1100.cov5.hsaco")


def read(data: bytes):
    return describe(BytesSource(data))


def gpu(nodes: list, **more):
    return read(make.program(nodes, **more))


def ends(*inputs: str) -> dict:
    return make.node("@9", "@return", F, inputs)


@pytest.mark.parametrize(("target", "compiled"), [("gpu", True), ("", False)])
def test_file_version_5_names_one_target(target, compiled):
    shape = {"type": "float_type", "lens": [4, 8], "strides": [8, 1], "sub_shapes": []}
    found = gpu([make.param("x", shape), make.node("@1", "@return", shape, ["x"])], version=5, target=target)
    assert found.compiled is compiled
    assert found.header.targets == ((target,) if compiled else ())
    assert found.header.migraphx is None
    assert found.sure["migraphx"].how == "unknown"
    assert "2.0 to 2.6" in found.notes[0]
    assert found.to_json()["inputs"] == {"x": {"type": "float_type", "dims": [4, 8]}}


def test_file_version_6_has_plain_binaries():
    nodes = [*make.add_relu(), make.code_object("@7", F, CODE)]
    found = gpu(nodes[:2] + nodes[4:], version=6, migraphx="2.7.0")
    assert found.archs == ("gfx1100",)
    assert found.rocm_hint == "5.7"


def test_hygon_fork():
    top = make.fields([make.param("x", F), make.code_object("@1", F, CODE), ends("@1")], migraphx="4.1.0")
    del top["targets"], top["contexts"]
    top = {"target": "gpu", "offload_copy": False, "context": {}} | top
    top["modules"]["main"] |= {"dynamic": False, "input_names": ["x"], "input_shapes": [F]}
    found = read(make.pack(top))
    assert (found.header.flavour, found.header.targets, found.offload_copy) == ("hygon", ("gpu",), False)
    assert found.sure["offload_copy"].how == "certain"
    assert found.rocm_hint is None
    assert found.archs == ("gfx1100",)


def hygon(dynamic, shapes, *, param=F):
    top = make.fields([make.param("x", param), make.code_object("@1", F, CODE), ends("@1")], migraphx="4.1.0")
    del top["targets"], top["contexts"]
    top["modules"]["main"] |= {"dynamic": dynamic, "input_names": ["x"], "input_shapes": shapes}
    return read(make.pack({"target": "gpu", "offload_copy": True, "context": {}} | top))


def test_the_largest_shape_of_hygons_dynamic_programs():
    """A program that was reshaped before it was saved shows another parameter than the largest one."""
    largest = make.shape("float", 2, 3, 512, 512)
    found = hygon(True, [largest], param=make.shape("float", 2, 3, 16, 16))
    assert found.reshapes and found.is_dynamic and found.inputs["x"].dims == (2, 3, 512, 512)
    document = found.to_json()
    assert (document["dynamic"], document["reshapes"]) == (True, True)
    fixed = hygon(False, [largest])
    assert not fixed.reshapes and not fixed.is_dynamic and fixed.inputs["x"].dims == hygon(True, []).inputs["x"].dims


def test_fields_of_modules_that_are_not_hygons_are_not_read():
    """The same fields in a file of AMD's MIGraphX, and fields of other types, say nothing."""
    for dynamic, shapes in ((1, [F]), (True, F), (True, [None]), ("true", [F])):
        assert not hygon(dynamic, shapes).reshapes
    top = make.fields([make.param("x", F), make.code_object("@1", F, make.Chunks([CODE])), ends("@1")])
    top["modules"]["main"] |= {"dynamic": True, "input_names": ["x"], "input_shapes": [F]}
    assert not read(make.pack(top)).reshapes


def test_contexts_of_2_11_name_the_arch_and_code_objects_overrule_it():
    contexts = [{"events": 0, "streams": 1, "gfx_name": "gfx90a"}]
    library = make.node("@1", "gpu::gemm", F, ["x"])
    found = gpu([make.param("x", F), library, ends("@1")], migraphx="2.11.0", contexts=contexts)
    assert found.archs == ("gfx90a",)
    assert found.sure["archs"].how == "strong"
    found = gpu([make.code_object("@1", F, make.Chunks([CODE]))], migraphx="2.11.0", contexts=contexts)
    assert found.archs == ("gfx1100",)


def test_target_options_of_cross_compiles_are_reported():
    targets = [{"name": "gpu", "gpu_arch": "gfx942", "gpu_num_cu": 304, "other": [1]}]
    found = gpu([ends()], targets=targets)
    assert found.header.target_options == {"gpu_arch": "gfx942", "gpu_num_cu": 304}
    assert found.archs == ("gfx942",)


def test_a_program_of_library_calls_has_an_unknown_arch():
    names = ["gpu::convolution", "gpu::gemm", "gpu::hipblaslt_op"]
    found = gpu([make.node(f"@{n}", name, F) for n, name in enumerate(names)])
    assert found.libraries == ("hipblaslt", "miopen", "rocblas")
    assert found.archs == ()
    assert found.sure["archs"].how == "unknown"
    assert found.offload_copy is None
    assert "hipblaslt, miopen, rocblas" in found.notes[0]


def test_kernels_made_at_run_time():
    found = gpu([make.node("@1", "gpu::dynamic_code_object_op", F)])
    assert found.kernels.made_at_run_time == 1
    assert "when the program runs" in found.notes[0]


def test_code_objects_of_an_unknown_packing():
    found = gpu([make.code_object("@1", F, make.Chunks([b"SPIR-V"])), make.code_object("@2", F, make.Chunks([CODE]))])
    assert found.archs == ("gfx1100",)
    assert found.sure["archs"].how == "strong"
    assert found.warnings == ("1 code object has a packing that mxr does not know.",)


def test_a_code_object_in_chunks():
    found = gpu([make.code_object("@1", F, make.Chunks([CODE[:50], CODE[50:1000], CODE[1000:]]))])
    assert found.archs == ("gfx1100",)
    assert found.sizes.code_objects == len(CODE)


def test_offload_copy_is_detected_from_the_nodes():
    buffer = make.param("main:#output_0", F)
    assert gpu(make.add_relu(code=CODE)).offload_copy is True
    given = gpu([make.param("x", F), buffer, make.code_object("@1", F, make.Chunks([CODE])), ends("@1")])
    assert given.offload_copy is False
    assert list(given.inputs) == ["x"]
    # Weights copied because of MIGRAPHX_COPY_LITERALS are no evidence: they come from a literal.
    weights = [make.literal("@0", F, make.Chunks([bytes(128)])), make.node("@1", "hip::copy_to_gpu", F, ["@0", "@0"])]
    assert gpu([make.param("x", F), *weights, ends("@1")]).offload_copy is None
    assert gpu([make.param("x", F), buffer, *weights, ends("@1")]).offload_copy is False


def test_inputs_exclude_buffers_only_for_a_gpu():
    names = ["x", "main:#output_0", "main:#output_1", "output", "output_2", "main:#scratch"]
    nodes = [make.param(name, F) for name in names]
    on_gpu = gpu([*nodes, make.node("@1", "gpu::gemm", F), ends("@1")])
    assert list(on_gpu.inputs) == ["x"]
    assert on_gpu.sure["inputs"].how == "strong"
    assert list(gpu([*nodes, ends("x")], target="ref").inputs) == names
    copied = make.node("@1", "hip::copy_to_gpu", F, ["output"])
    assert "output" in gpu([*nodes, copied, ends("@1")]).inputs


def test_outputs_are_the_returned_values():
    half = make.shape("half", 2)
    nodes = [make.param("x", F), make.node("@1", "relu", half, ["x"]), make.node("@2", "@return", half, ["@1", "x"])]
    found = gpu(nodes, target="ref").to_json()
    assert found["outputs"] == [{"type": "half_type", "dims": [2]}, {"type": "float_type", "dims": [4, 8]}]
    unknown = gpu([make.node("@2", "@return", half, ["@missing"])]).to_json()
    assert unknown["outputs"] == [{"type": "half_type", "dims": [2]}]


def test_nodes_of_other_modules_are_counted_but_are_not_inputs():
    inner = {"name": "dim_1", "nodes": [make.param("y", F), make.code_object("@1", F, make.Chunks([CODE]))]}
    found = gpu([make.param("x", F), ends("x")], modules={"dim_1": inner})
    assert found.modules == 2
    assert list(found.inputs) == ["x"]
    assert found.kernels.code_objects == 1


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ([{"min": 1, "max": 8, "opt": 4}, {"min": 3, "max": 3, "opt": 0}], [[1, 8, [4]], 3]),
        ([{"min": 1, "max": 8, "opt": 0}], [[1, 8, []]]),
        ([{"min": 1, "max": 8, "optimals": [8, 1]}, {"min": 3, "max": 3, "optimals": []}], [[1, 8, [1, 8]], 3]),
        ([{"range": {"min": 1, "max": 8}, "optimals": [1, 4], "sym": None}], [[1, 8, [1, 4]]]),
        ([{"range": None, "optimals": None, "sym": "n"}], [None]),
    ],
)
def test_dynamic_dims_of_every_release(dims, expected):
    shape = {"type": "float_type", "lens": [], "strides": [], "sub_shapes": [], "dynamic_dimensions": dims}
    found = gpu([make.param("x", shape), make.node("@1", "@return", shape, ["x"])], target="ref")
    assert found.is_dynamic
    assert found.to_json()["inputs"]["x"]["dims"] == expected


def test_dynamic_dims_are_those_of_a_key():
    dims = [{"min": 1, "max": 8, "optimals": [4]}]
    shape = {"type": "float_type", "lens": [], "strides": [], "dynamic_dimensions": dims}
    assert gpu([make.param("x", shape)]).inputs["x"].dims == (DynamicDim(1, 8, (4,)),)


def test_tuples():
    pair = {"type": "tuple_type", "lens": [], "strides": [], "sub_shapes": [F, make.shape("half", 2)]}
    found = gpu([make.node("@1", "topk", pair), make.node("@2", "@return", pair, ["@1"])], target="ref").to_json()
    parts = [{"type": "float_type", "dims": [4, 8]}, {"type": "half_type", "dims": [2]}]
    assert found["outputs"] == [{"type": "tuple_type", "dims": [], "parts": parts}]


def precisions(*nodes: dict) -> tuple:
    found = gpu(list(nodes))
    return found.precisions, found.sure["precisions"].how


def test_precisions():
    half, int8 = make.shape("half", 4), make.shape("int8", 4)
    assert precisions(make.param("x", F)) == (("fp32",), "certain")
    assert precisions(make.param("x", make.shape("int64", 4))) == ((), "unknown")
    assert precisions(make.node("@1", "dot", half)) == (("fp16",), "certain")
    assert precisions(make.node("@1", "dot", make.shape("fp8e4m3fnuz", 4))) == (("fp8",), "certain")
    quantized = make.node("@1", "ref::op", int8, [], {"name": "quantizelinear", "operator": {}})
    assert precisions(quantized, make.node("@2", "dot", half)) == (("fp16", "int8"), "strong")
    assert precisions(make.node("@1", "unpack_int4", int8)) == (("int4w",), "strong")
    # Scratch space consists of bytes and is no evidence of a precision.
    scratch = make.node("@1", "hip::hip_allocate_memory", int8)
    assert precisions(scratch, make.param("x", F)) == (("fp32",), "certain")


def test_precisions_are_detected_from_kernels():
    half, int8 = make.shape("half", 4), make.shape("int8", 4)
    named = make.code_object("@1", F, make.Chunks([CODE]), symbol="mlir_quant_dot_add")
    assert precisions(named) == (("int8",), "heuristic")
    weights = make.literal("@0", int8, make.Chunks([bytes(4)]))
    assert precisions(weights, make.param("x", F)) == (("int8",), "heuristic")
    kernel = make.code_object("@1", F, make.Chunks([CODE]))
    kernel["operator"]["expected_inputs"] = [half, int8]
    assert precisions(kernel) == (("fp16", "int8"), "heuristic")
    unpacking = make.code_object("@1", half, make.Chunks([CODE]), symbol="mlir_unpack_int4_dequantizelinear_dot")
    assert precisions(unpacking) == (("fp16", "int4w"), "heuristic")
    fp8 = make.shape("fp8e4m3fn", 4)
    kernel = make.code_object("@1", fp8, make.Chunks([CODE]), symbol="quantizelinear_kernel")
    assert precisions(kernel, make.node("@2", "dot", fp8)) == (("fp8",), "certain")


def test_literals_are_counted_in_every_kind_of_node():
    form = make.shape("float", 10)
    nodes = [
        make.literal("@0", form, make.Chunks([bytes(30), bytes(10)])),
        make.node(
            "@1", "hip::hip_copy_literal", form, [], {"literal": {"shape": form, "data": make.Chunks([bytes(40)])}}
        ),
        make.node("@2", "@literal", form, literal={"shape": form, "sub": [{"shape": form, "data": bytes(40)}]}),
        make.node("@3", "@literal", make.shape("float", 0), literal={"shape": make.shape("float", 0)}),
    ]
    found = gpu(nodes)
    assert found.sizes.literals == 120
    assert found.warnings == ()


def test_a_literal_shorter_than_its_shape_is_a_sign_of_damage():
    form = make.shape("float", 10)
    found = gpu([make.literal("@0", form, make.Chunks([bytes(39)])), make.literal("@1", form, bytes(40))])
    assert "1 of the weights have fewer bytes" in found.warnings[0]
    broadcast = make.shape("float", 10) | {"strides": [0]}
    assert gpu([make.literal("@0", broadcast, bytes(4))]).warnings == ()


def test_debug_symbols_of_file_version_8():
    assert not gpu([ends()], version=8, migraphx="2.16.0").debug_symbols
    node = make.node("@1", "relu", F) | {"debug_symbols": ["Relu_1"]}
    assert gpu([node], version=8, migraphx="2.16.0").debug_symbols


def test_compiled_nodes_without_a_target():
    found = gpu([make.code_object("@1", F, make.Chunks([CODE]))], target="")
    assert not found.compiled
    assert "names no target" in found.warnings[-1]


def test_bytes_after_the_program_are_noted():
    assert gpu([ends()]).notes == ()
    found = read(make.program([ends()]) + b"trailer")
    assert found.notes == ("7 bytes follow the program; MIGraphX ignores them.",)


def test_unknown_keys_and_another_order_are_accepted():
    top = make.fields(make.add_relu(code=CODE))
    shuffled = {"extra": {"a": [bytes(100)]}, "modules": top.pop("modules")} | top
    source = BytesSource(make.pack(shuffled))
    assert describe(source).archs == ("gfx1100",)
    assert read_header(source).targets == ("gpu",)


def test_a_newer_file_version_is_read_with_a_note():
    found = gpu([ends()], version=9, migraphx="2.17.0")
    assert "file version 9" in found.notes[0]
    assert found.sure["flavour"].how == "heuristic"


def test_the_header_is_read_without_the_rest():
    data = make.program([make.literal("@0", F, make.Chunks([bytes(1 << 20)]))])
    header = read_header(BytesSource(data[:200]))
    assert (header.file_version, header.migraphx, header.compiled) == (7, "2.15.0", True)


@for_each(
    [
        ({"version": "7"}, "'version' is missing or not an integer"),
        ({"version": True}, "'version' is missing or not an integer"),
        ({"migraphx_version": 2.15}, "is not a string"),
        ({"targets": None}, "'targets' is missing or not a list"),
        ({"targets": [{"gpu": 1}]}, "has no name"),
        ({"modules": {}}, "no module called 'main'"),
        ({"modules": {"other": {"nodes": []}}}, "no module called 'main'"),
        ({"modules": {"main": {"nodes": [5]}}}, "Expected a node"),
        ({"modules": {"main": {"nodes": [[]]}}}, "Expected a node"),
        ({"modules": {"main": {"nodes": [{"name": "x"}]}}}, "has no name or no output"),
        ({"modules": {"main": {"nodes": [make.node("@1", "@param", {})]}}}, "has no shape"),
        ({"modules": {"main": {"nodes": {"a": 1}}}}, "Expected an array"),
    ]
)
def test_invalid_programs(change, message):
    data = make.pack(make.fields([ends()]) | change)
    with pytest.raises(DamagedError, match=message) as caught:
        read(data)
    assert 0 <= caught.value.context["offset"] <= len(data)


def test_duplicate_keys_and_modules_are_rejected():
    twice = make.pack({"version": 7}) + make.pack({"version": 8})[1:]
    with pytest.raises(DamagedError, match="'version' is duplicated"):
        read(b"\x82" + twice[1:])
    modules = b"\x82" + 2 * (make.pack("main") + make.pack({"nodes": []}))
    with pytest.raises(DamagedError, match="module 'main' is duplicated"):
        read(make.pack(make.fields([]) | {"modules": make.Raw(modules)}))
    module = make.Raw(b"\x82" + 2 * (make.pack("nodes") + make.pack([])))
    with pytest.raises(DamagedError, match="nodes of a module are duplicated"):
        read(make.pack(make.fields([]) | {"modules": {"main": module}}))


def test_missing_modules():
    with pytest.raises(DamagedError, match="'modules' is missing"):
        read(make.pack({"version": 7}))


def test_describe_file_names_the_file(tmp_path):
    path = tmp_path / "half.mxr"
    path.write_bytes(make.program(make.add_relu(code=CODE))[:-20])
    with pytest.raises(DamagedError, match=r"half\.mxr: The file ends") as caught:
        describe_file(path)
    assert caught.value.context["path"] == str(path)
    assert caught.value.context["offset"] == path.stat().st_size
    for wrong in (tmp_path, tmp_path / "none.mxr"):
        with pytest.raises(UsageError, match="is not a file"):
            describe_file(wrong)
