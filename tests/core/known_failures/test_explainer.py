"""Tests of the explainer: one realistic sample line per known text, and ordinary log lines that it must ignore.

The samples have the form in which the programs print them: MIGraphX puts "source file:line: function:" before its
messages, Python the name of an exception, container runtimes a timestamp. Names of hosts and files are invented.
"""

from __future__ import annotations

import json
import os
import re
import time

import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.known_failures.explainer import find_failures
from mxr.known_failures.table import FAILURES

MGX = "/long_pathname_so_that_rpms_can_package_the_debug_info/src/extlibs/AMDMIGraphX/src/"
HASHED = "20f00-12d9ae3ea9d3827f-8e96240bd18e6f87-1c2d3e4f5a6b7c8d.mxr"
MISMATCH = (
    f"RuntimeError: {MGX}program.cpp:857: from_value: Error: Program version mismatch. MXR file was created using "
    "program file version: 7, while installed MIGraphX is using program file version: 8, Try regenerating MXR file "
    "using installed MIGraphX and running again."
)

SAMPLES = [
    # MIGraphX: versions
    ("file-version", MISMATCH),
    ("file-version-unsaid", "what():  /src/program.cpp:570: from_value: Warning: Program version mismatch"),
    (
        "hygon-file-version",
        "/MIGraphX/src/program.cpp:885: from_value: Error: MXR version mismatch. MXR file was created using MXR "
        "version: 6, while installed MIGraphX is using MXR version: 7, Try regenerating MXR file using installed "
        "MIGraphX and running again.",
    ),
    (
        "other-migraphx",
        "warning: MXR File was created using MIGraphX version: 2.15.0, while installed MIGraphX is at version: 2.16.0, "
        "operators implementation could be mismatched.",
    ),
    ("field-output-arg", f"{MGX}make_op.cpp:41: make_op: No key 'output_arg' in gpu::code_object"),
    ("field-int8-x4", f"{MGX}make_op.cpp:41: make_op: No key 'int8_x4_format' in gpu::gemm"),
    ("unknown-field", "RuntimeError: No key 'brand_new_field' in convolution"),
    ("unknown-operator", f"RuntimeError: {MGX}include/migraphx/errors.hpp:77: at: Operator not found: gpu::nope"),
    ("old-pooling-mode", "  what():  Failed to parse: max"),
    # MIGraphX: the file
    ("file-missing", f"RuntimeError: {MGX}file_buffer.cpp:38: generic_read_file: Failure opening file: resnet50.mxr"),
    ("file-missing", 'read_buffer: Failure opening file: "/mnt/models/with a space/net.mxr"'),
    ("file-empty", f"RuntimeError: {MGX}file_buffer.cpp:49: generic_read_file: Invalid size for: net.mxr"),
    ("file-truncated", "RuntimeError: insufficient bytes"),
    ("file-truncated", "2026-03-01T03:04:05.123456789Z insufficient bytes"),
    ("not-an-mxr", f"RuntimeError: {MGX}value.cpp:371: at: Not an object for field: version"),
    ("no-main-module", f"RuntimeError: {MGX}value.cpp:371: at: Not an object for field: main"),
    ("header-key-missing", f"RuntimeError: {MGX}value.cpp:373: at: Key not found: migraphx_version"),
    ("header-key-missing", "at: Key not found: modules"),
    ("header-key-missing", "at: Key not found: contexts"),
    ("hygon-file", f"RuntimeError: {MGX}value.cpp:373: at: Key not found: targets"),
    ("amd-file-on-hygon", "/MIGraphX/src/value.cpp:312: at: Key not found: target"),
    ("broken-structure", f"RuntimeError: {MGX}value.cpp:373: at: Key not found: lens"),
    ("broken-reference", "IndexError: unordered_map::at"),
    (
        "wrong-field",
        "include/migraphx/op/convolution.hpp:72: check_attribute_size: CONVOLUTION: inconsistent attribute sizes",
    ),
    ("wrong-field", "RuntimeError: Failed to parse: x"),
    (
        "dimensions",
        f"RuntimeError: {MGX}include/migraphx/check_shapes.hpp:220: same_dims: add: Dimensions do not match",
    ),
    ("msgpack-ext", f"RuntimeError: {MGX}msgpack.cpp:132: visit_ext: msgpack EXT type not supported."),
    ("msgpack-size", f"{MGX}msgpack.cpp:180: check_msgpack_size: Size is too large for msgpack"),
    ("wrong-parser", f"{MGX}onnx/onnx_parser.cpp:283: parse_from: PARSE_FROM: Failed reading onnx file: net.mxr"),
    ("wrong-format-argument", f"RuntimeError: {MGX}load_save.cpp:62: load_buffer: Unknown format: x"),
    ("save-failed", f"RuntimeError: {MGX}file_buffer.cpp:78: write_buffer: Failure opening file: /no/such/dir/net.mxr"),
    # MIGraphX: the run
    (
        "wrong-shape",
        f"RuntimeError: {MGX}program.cpp:506: operator(): Incorrect shape {{float_type, {{8, 3, 32, 32}}, "
        "{3072, 1024, 32, 1}} for parameter: x should be: float_type, {4, 3, 32, 32}, {3072, 1024, 32, 1}",
    ),
    ("wrong-input-name", f"RuntimeError: {MGX}program.cpp:500: operator(): Parameter not found: x"),
    ("wrong-input-name", "Parameter not found: main:#output_0"),
    ("no-context", f"RuntimeError: {MGX}program.cpp:556: operator(): No context available for ref::op"),
    ("too-big-for-hygon", "eval: input shape {1, 3, 2048, 2048} exceed the max input shape {1, 3, 1024, 1024}"),
    # MIGraphX: targets and devices
    (
        "no-target-library",
        f"RuntimeError: {MGX}dynamic_loader.cpp:48: check_load_error: Dynamic loading or symbol lookup failed with "
        "libmigraphx_gpu.so: cannot open shared object file: No such file or directory",
    ),
    (
        "dynamic-loading",
        "check_load_error: Dynamic loading or symbol lookup failed with /opt/rocm/lib/libMIOpen.so.1: undefined "
        "symbol: x",
    ),
    ("no-target", f"{MGX}register_target.cpp:84: make_target: Requested target 'gpu' is not loaded or not supported"),
    (
        "wrong-context",
        f"{MGX}include/migraphx/check_context.hpp:76: compute: Unexpected context type: migraphx::ref::context",
    ),
    ("no-device", f"RuntimeError: {MGX}targets/gpu/device_name.cpp:51: get_device_id: No device"),
    (
        "no-device",
        f"RuntimeError: {MGX}targets/gpu/device_name.cpp:60: get_device_name: Failed to get device properties",
    ),
    (
        "library-without-arch",
        "launch: MIGraphX device kernel failed to launch with error: invalid device function. Trying to run a kernel "
        "for "
        "gfx1103 but MIGraphX was built for targets gfx908;gfx90a;gfx942. Please rebuild MIGraphX with "
        "-DGPU_TARGETS='gfx1103'.",
    ),
    ("device-kernel", "launch: MIGraphX device kernel failed to launch with error: unspecified launch failure"),
    (
        "module-wrong-arch",
        f"{MGX}targets/gpu/kernel.cpp:70: load_module: Failed to load module: no kernel image is available for "
        f"execution "
        "on the device",
    ),
    ("module-wrong-arch", "load_module: Failed to load module: device kernel image is invalid"),
    ("module-load", "load_module: Failed to load module: unknown error"),
    (
        "kernel-missing",
        "kernel.cpp:79: kernel: Failed to get function: mlir_convolution_add_relu: named symbol not found",
    ),
    ("kernel-launch", "kernel.cpp:122: launch_kernel: Failed to launch kernel: invalid configuration argument"),
    ("miopen-solution", "finalize: MIOpen convolution: loading convolution solution failed"),
    ("miopen-solution", "finalize: MIOpen convolution: workspace has changed during finalization."),
    (
        "kernel-shapes",
        "compute_shape: Input shapes have changed: [float_type, {1, 3}, {3, 1}] -> [float_type, {2, 3}, {3, 1}]",
    ),
    (
        "kernel-shapes",
        "compute_shape: Output buffer [float_type, {8}, {1}] doesn't match the expected output shape from the kernel "
        "[float_type, {4}, {1}]",
    ),
    ("offload-copy", f"{MGX}targets/gpu/hip.cpp:128: register_on_gpu: Gpu register failed: invalid argument"),
    (
        "offload-copy-warning",
        "[WARNING] MIGraphX program was likely compiled with offload_copy set, Try passing `--enable-offload-copy` if "
        "program run fails.",
    ),
    ("gpu-memory", f"RuntimeError: {MGX}targets/gpu/hip.cpp:106: allocate_gpu: Gpu allocation failed: out of memory"),
    (
        "gpu-memory",
        f"RuntimeError: {MGX}targets/gpu/hip.cpp:109: allocate_gpu: Memory not available to allocate buffer: 41943040",
    ),
    ("tuned-solution", "[WARNING] [gpu/hip_gemm_impl.cpp:485] tuned solution is invalid; reverting to default"),
    (
        "miopen-fusion",
        "[WARNING] Program has miopen_fusion instructions for which tuned solutions are not stored inside serialized "
        "MIGraphX program. Consider serializing with MIGRAPHX_DISABLE_MIOPEN_FUSION=1 flag set.",
    ),
    ("cross-compiled", "RuntimeError: context.hpp:120: eval: Cannot execute in cross-compilation mode"),
    ("cross-compiled", "hip.cpp:171: copy_to_gpu: Cannot copy data in cross-compilation mode"),
    ("cross-compiled", "hip.cpp:100: allocate_gpu: Cannot allocate GPU memory in cross-compilation mode"),
    # MIGraphX: the compile
    (
        "too-few-cus",
        f"  what():  {MGX}targets/gpu/mlir.cpp:728: run_high_level_pipeline: Invalid MLIR created: Error: num_cu=30 "
        f": i64 "
        "cannot be lower than arch minNumCU=48",
    ),
    ("too-few-cus", "error: num_cu=20 cannot be lower than arch minNumCU=80"),
    (
        "no-tuned-kernel",
        f"{MGX}targets/gpu/compile_ops.cpp:147: add_compiles: No solutions provided for gpu::mlir_op with "
        f"gfx1100\t42\t-t f32",
    ),
    ("no-tuned-kernel", "compile_ops.cpp:408: benchmark: No valid tuned compilation for gpu::mlir_op with gfx90a"),
    ("no-tuned-kernel", "compile_ops.cpp:181: benchmark: No configs to tune"),
    (
        "mlir",
        f"{MGX}targets/gpu/mlir.cpp:941: run_backend_pipeline: MLIR backend compilation failed: Error: no gridwise op",
    ),
    ("hiprtc", "compile_hip.cpp:156: compile: hiprtc: HIPRTC_ERROR_COMPILATION: Compilation failed."),
    ("pool-thread", "terminate called recursively"),
    ("pool-thread", "terminate called after throwing an instance of 'std::system_error'"),
    ("pool-thread", "compile_ops.cpp:260: update_config: no config"),
    ("host-memory", "MemoryError: std::bad_alloc"),
    ("host-memory", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("no-migraphx", "AttributeError: module 'migraphx' has no attribute 'parse_onnx'"),
    ("no-migraphx", "ModuleNotFoundError: No module named 'migraphx'"),
    # ONNX Runtime
    ("ort-cache-dir-unset", f'write_buffer: Failure opening file: ""/{HASHED}'),
    ("ort-cache-dir-unset", f"write_buffer: Failure opening file: {HASHED}"),
    ("ort-cache-dir-missing", f"file_buffer.cpp:78: write_buffer: Failure opening file: /cache/migraphx/{HASHED}"),
    ("ort-cache-miss", f'file_buffer.cpp:38: generic_read_file: Failure opening file: "/cache/{HASHED}"'),
    (
        "ort-option",
        "EP Error /onnxruntime/onnxruntime/python/onnxruntime_pybind_state.cc:966 CreateExecutionProviderInstance(...) "
        "Invalid MIGraphX EP option: migraphx_load_compiled_path",
    ),
    (
        "ort-option",
        'onnxruntime.capi.onnxruntime_pybind11_state.EPFail: Unknown provider option: "migraphx_model_cache_dir".',
    ),
    (
        "ort-provider-missing",
        "UserWarning: Specified provider 'MIGraphXExecutionProvider' is not in available provider names.Available "
        "providers: 'CPUExecutionProvider'",
    ),
    ("ort-on-cpu", "Falling back to ['CPUExecutionProvider'] and retrying."),
    (
        "epcontext-arch",
        "EP context binary was compiled for GPU architecture 'gfx942:sramecc+:xnack-' but current GPU is "
        "'gfx90a:sramecc+:xnack-'. Please recompile the model for the current hardware.",
    ),
    (
        "epcontext-sdk",
        "EP context binary was compiled with MIGraphX SDK 2.17.0 but current SDK is 3.0.0. Major version mismatch - "
        "please "
        "recompile the model.",
    ),
    (
        "epcontext-path",
        "for security purpose, the `ep_cache_context` must contain a relative path to MXR file: /srv/net.mxr",
    ),
    (
        "epcontext-path",
        "for security purpose, the file path of the `ep_cache_context` attribute must not include '..' - it is not "
        "allowed "
        "to point outside the directory.",
    ),
    ("epcontext-file", "the MXR cache file does not exist: /models/net_ctx.mxr"),
    ("epcontext-load", "loading MXR file failed: /models/net_ctx.mxr"),
    ("epcontext-load", "loading embedded MXR binary failed: Failed to call function"),
    (
        "epcontext-no-provider",
        "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : EPContext node generated by 'MIGraphXExecutionProvider' is not "
        "compatible with any execution provider added to the session.",
    ),
    ("epcontext-no-provider", "no EPContext node found for MIGraphXExecutionProvider"),
    ("epcontext-attribute", "`embed_mode` attribute must be an integer type"),
    ("epcontext-attribute", "ep_cache_context is empty for embed_mode=1"),
    (
        "epcontext-dynamic",
        "ep.context_enable is set but the graph has dynamic input shapes at compile time; EPContext currently "
        "supports one "
        "statically compiled MXR per partition",
    ),
    ("ort-name-zero", "loading /cache/20f00-a590ed2ec43fea01-8e96240bd18e6f87-0.mxr"),
    ("ort-name-collision", "loading /cache/21000-52d4355587658066-560872bf9988f016-519c70b1cf0f20ca.mxr"),
    (
        "ort-compiling",
        "[W:onnxruntime:Default, migraphx_execution_provider.cc:1295 compile_program] Model Compile: Begin",
    ),
    (
        "ort-status",
        "ONNXRuntime Exception: Non-zero status code returned while running MGXKernel_graph__624279303755776568_0 "
        "node. "
        "Name:'MIGraphXExecutionProvider_MGXKernel_graph__624279303755776568_0_0' Status Message: Failed to call "
        "function",
    ),
    # AMD Inference Server
    (
        "amdinfer-model-file",
        "migraphx worker cannot open the model file /mnt/models/resnet50.onnx.  Does this path exist?",
    ),
    ("amdinfer-model-file", "model file /mnt/models/resnet50_b64_b64.onnx not found or can't be opened"),
    ("amdinfer-no-model", "model file argument missing from model load request"),
    ("amdinfer-type", "Migraph worker model and input data types don't match:   FP32 vs UINT8"),
    ("amdinfer-gpu", "[2026-03-01 03:04:05.006] [error] Failed to call function.  Server could not connect to a GPU."),
    # HIP
    (
        "hip-isa",
        ":1:devprogram.cpp           :1873: 1265234165 us: 21877: [tid:0x7f3bf549b740] Error: The program ISA "
        "amdgcn-amd-amdhsa--gfx900:xnack- is not compatible with the device ISA "
        "amdgcn-amd-amdhsa--gfx906:sramecc+:xnack-",
    ),
    (
        "hip-bundle",
        ":1:hip_fatbin.cpp :255 : 95708404069 us: [pid:2117053 tid:0x7ca06301e740] Cannot find CO in the bundle "
        "/usr/lib64/librocblas.so.4.4 for ISA: amdgcn-amd-amdhsa--gfx1013:xnack-",
    ),
    ("hip-bundle", "Cannot find CO in the bundle for ISA: amdgcn-amd-amdhsa--gfx1100"),
    ("hip-no-binary", '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"'),
    ("hip-no-binary", "HIP failure 209: no kernel image is available for execution on the device ; GPU=0"),
    ("hip-invalid-function", "HIP error: hipErrorInvalidDeviceFunction"),
    ("hip-invalid-image", "hipModuleLoadData: Returned hipErrorInvalidImage :"),
    ("hip-no-device", "hipErrorNoDevice: no ROCm-capable device is detected"),
    ("kfd-permission", "Unable to open /dev/kfd read-write: Permission denied"),
    (
        "illegal-access",
        "HIP failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=n1 ; expr=hipDeviceSynchronize()",
    ),
    ("hip-failure", "HIP failure 999: unknown error ; GPU=0 ; hostname=n1 ; file=migraphx_allocator.cc"),
    # Linux kernel, C library, terminated processes
    ("gpu-hang", "HW Exception by GPU node-1 (Agent handle: 0x2f0fbb70) reason :GPU Hang"),
    ("gpu-hang", "[ 6703.614427] amdgpu 0000:c6:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE"),
    (
        "gpu-hang",
        "Aug 05 08:56:24.670111 my-server kernel: amdgpu 0000:c5:00.0: amdgpu: MES might be in unrecoverable state, "
        "issue a GPU reset",
    ),
    ("gpu-hang", "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3"),
    ("out-of-memory-kill", "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:68719476kB"),
    ("out-of-memory-kill", "memory.events: oom 1 oom_kill 1"),
    ("out-of-memory-kill", "compile child exited with code 137"),
    ("heap-corruption", "corrupted size vs. prev_size"),
    ("segfault", "Segmentation fault (core dumped)"),
    ("segfault", "worker: exit status 139"),
    ("aborted", "terminate called after throwing an instance of 'migraphx::version_2_15_0::exception'"),
    ("aborted", "driver: exit code 134"),
    # MIGraphX: its C, C++ and Python interfaces
    ("failed-to-call", "Failed to call function"),
    # the same texts with the prefix of the C interface
    ("file-truncated", "migraphx_load: Error: insufficient bytes"),
    ("old-pooling-mode", "migraphx_load: Error: Failed to parse: max"),
    ("broken-reference", "migraphx_load: Error: unordered_map::at"),
    (
        "no-tuned-kernel",
        "c++/13/optional:484: const _Tp &std::_Optional_base_impl<migraphx::gpu::tuning_config, "
        "std::_Optional_base<migraphx::gpu::tuning_config>>::_M_get() const: Assertion 'this->_M_is_engaged()' failed.",
    ),
]

WRAPPINGS = [
    "{}",
    "  \t{}  ",
    "2026-03-01T03:04:05.123456789Z {}",
    "Mar 01 03:04:05 node-7 amdinfer[4711]: {}",
    "[pod/serve-0/server] {}",
    "2026-03-01T03:04:05.1+00:00 stderr F {}",
    "server-1  | {}",
    "\x1b[1;31m{}\x1b[0m",
]

ORDINARY = [
    "",
    "\n\n",
    "INFO: Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
    "migraphx worker loading compiled model file /mnt/models/resnet50_b64.mxr",
    "migraphx worker loaded ONNX model file /mnt/models/resnet50.onnx",
    "[ MIGraphX Version: 2.15.0.20250912-17-195-g1afd1b89c ] Complete: migraphx-driver compile",
    "Running [ migraphx-driver perf --onnx resnet50.onnx --fp16 --exhaustive-tune ]",
    "WARNING: LAYERNORM does not support stash_type, it will be ignored.",
    "Model Compile: Begin\nModel Compile: Complete",
    "GET /v1/items 404 Key not found: user:1234",
    "redis: Parameter not found in cache, using the default",
    "ERROR ssm: Parameter not found: /prod/db",
    "Failed to parse: config.json",
    "vfs: insufficient bytes in buffer, growing it",
    "kernel: usb 1-1: no device found on this port",
    "kernel: amdgpu 0000:c1:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
    "memory.events: oom 0 oom_kill 0",
    '"State":{"OOMKilled": false,"ExitCode":0}',
    "process exited with code 0",
    "opened /dev/kfd",
    "Requested 1370 rows, exit code 0",
    f"saved /cache/{HASHED}",
    "migraphx_program.cpp compiled in 137 s",
    "nginx: update_config: done",
    "hipErrorNotReady is not an error here",
    "<html><body>It works!</body></html>",
    "ONNX Runtime providers: ['MIGraphXExecutionProvider', 'CPUExecutionProvider']",
]


@for_each(SAMPLES)
def test_each_known_text_is_recognised(name: str, line: str) -> None:
    found = find_failures(line)
    assert [hit.failure.name for hit in found][:1] == [name]
    assert found[0].line == 1
    assert "{" not in found[0].means.replace("{float", "") + found[0].fix or name == "wrong-shape"


def test_every_row_has_a_sample() -> None:
    assert {name for name, _ in SAMPLES} == {failure.name for failure in FAILURES}


@for_each(WRAPPINGS)
def test_prefixes_colours_and_case_do_not_matter(wrapping: str) -> None:
    for name, line in SAMPLES:
        found = find_failures("started\n" + wrapping.format(line) + "\nended")
        assert found and found[0].failure.name == name, (wrapping, line)
        assert found[0].line == 2


def test_json_logs_are_read() -> None:
    line = json.dumps({"log": f"\x1b[31m{MISMATCH}\x1b[0m\n", "stream": "stderr", "time": "2026-03-01T03:04:05Z"})
    assert [hit.failure.name for hit in find_failures(line)] == ["file-version"]
    option = json.dumps({"msg": 'Unknown provider option: "cache_dirs".'})
    assert "`cache_dirs`" in find_failures(option)[0].means


def test_a_message_broken_over_lines_is_read() -> None:
    broken = "[03:04:05] ERROR    Program version mismatch. MXR file was created\n" + " " * 20
    broken += "using program file version: 7, while installed\n" + " " * 20
    broken += "MIGraphX is using program file version: 8"
    hit = find_failures("first\n" + broken)[0]
    assert (hit.line, hit.failure.name.startswith("file-version")) == (2, True)


@for_each(ORDINARY)
def test_ordinary_logs_contain_no_known_failure(text: str) -> None:
    assert find_failures(text) == []


def test_joined_ordinary_logs_contain_no_known_failure() -> None:
    assert find_failures("\n".join(ORDINARY)) == []


def test_groups_of_the_pattern_fill_the_placeholders() -> None:
    hit = find_failures(MISMATCH)[0]
    assert "format 7" in hit.means and "format 8" in hit.means
    hit = find_failures(next(line for name, line in SAMPLES if name == "epcontext-arch"))[0]
    assert "compiled for gfx942:sramecc+:xnack-" in hit.means
    assert "gfx90a:sramecc+:xnack-" in hit.fix


def test_the_gpu_message_of_amdinfer_is_a_consequence_of_the_hip_error() -> None:
    log = "\n".join(
        [
            "[2026-03-01 03:04:05.001] [info] migraphx worker loading compiled model file /mnt/models/resnet50_b64.mxr",
            "Error: The program ISA amdgcn-amd-amdhsa--gfx942:sramecc+:xnack- is not compatible with the device ISA "
            "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-",
            f"MIGraphX Error: {MGX}targets/gpu/kernel.cpp:70: load_module: Failed to load module: no kernel image is "
            "available for execution on the device",
            "[2026-03-01 03:04:05.006] [error] Failed to call function.  Server could not connect to a GPU.",
        ]
    )
    found = [(hit.failure.name, hit.line, hit.consequence_of) for hit in find_failures(log)]
    assert found == [
        ("hip-isa", 2, None),
        ("module-wrong-arch", 3, "hip-isa"),
        ("amdinfer-gpu", 4, "hip-isa"),
    ]


def test_a_python_traceback_is_reported_at_its_last_line() -> None:
    log = f"""Traceback (most recent call last):
  File "/srv/serve.py", line 12, in <module>
    program = migraphx.load("net.mxr")
              ^^^^^^^^^^^^^^^^^^^^^^^^
{MISMATCH}
"""
    assert [(hit.failure.name, hit.line) for hit in find_failures(log)] == [("file-version", 5)]


def test_the_status_of_onnx_runtime_is_a_consequence() -> None:
    log = f"""2026-03-01 03:04:05.006 [E:onnxruntime:, sequential_executor.cc:516 ExecuteKernel] Non-zero status code \
returned while running MGXKernel_graph_main_0 node. Name:'MIGraphXExecutionProvider_MGXKernel_graph_main_0' \
Status Message: Failed to call function
{MGX}targets/gpu/hip.cpp:128: register_on_gpu: Gpu register failed: invalid argument
"""
    found = [(hit.failure.name, hit.consequence_of) for hit in find_failures(log)]
    assert found == [("offload-copy", None), ("ort-status", "offload-copy")]


def test_the_cpu_fallback_is_a_consequence_of_the_option() -> None:
    log = """*************** EP Error ***************
EP Error /onnxruntime/python/onnxruntime_pybind_state.cc:966 Invalid MIGraphX EP option: migraphx_load_compiled_path
 when using [('MIGraphXExecutionProvider', {'device_id': '0'})]
Falling back to ['CPUExecutionProvider'] and retrying.
****************************************"""
    found = [(hit.failure.name, hit.consequence_of) for hit in find_failures(log)]
    assert found == [("ort-option", None), ("ort-on-cpu", "ort-option")]


def test_a_warning_does_not_cause_a_catch_all() -> None:
    warning = next(line for name, line in SAMPLES if name == "tuned-solution")
    found = find_failures(f"{warning}\nFailed to call function")
    assert [(hit.failure.name, hit.consequence_of) for hit in found] == [
        ("tuned-solution", None),
        ("failed-to-call", None),
    ]


def test_a_cause_of_another_kind_does_not_cause_a_symptom() -> None:
    found = find_failures("Gpu allocation failed: out of memory\nFailed to load module: unknown error")
    assert [(hit.failure.name, hit.consequence_of) for hit in found] == [("gpu-memory", None), ("module-load", None)]


def test_each_failure_is_reported_once_at_its_first_line() -> None:
    found = find_failures("ok\n" + "Failed to call function\n" * 1000)
    assert [(hit.failure.name, hit.line) for hit in found] == [("failed-to-call", 2)]


def test_the_json_form_is_stable() -> None:
    (hit,) = find_failures(MISMATCH)
    document = json.loads(json.dumps(hit.to_json()))
    assert set(document) == {"name", "who", "kind", "line", "text", "means", "fix", "source", "consequence_of"}
    assert document["name"] == "file-version" and document["kind"] == "mismatch" and document["who"] == "migraphx"


def test_a_log_cannot_put_commands_or_escapes_into_the_fix() -> None:
    hit = find_failures("read_buffer: Failure opening file: $(reboot);`id`.mxr")[0]
    assert "reboot" not in hit.fix and "FILE" in hit.fix
    hit = find_failures("read_buffer: Failure opening file: --debug.mxr")[0]
    assert "--debug" not in hit.fix
    hit = find_failures("Requested target 'g\x1b]0;owned\x07pu\u202e\x9b31m' is not loaded or not supported")[0]
    assert (hit.text + hit.means + hit.fix).isprintable()


def test_undecodable_bytes_and_utf_16_are_accepted() -> None:
    assert find_failures(b"\xff\xfeodd") == []
    assert find_failures(b"\x80\xc3( " + MISMATCH.encode() + b"\xed\xa0\x80")[0].failure.name == "file-version"
    assert find_failures(MISMATCH.encode("utf-16"))[0].failure.name == "file-version"
    assert find_failures("\ud800 " + MISMATCH)[0].failure.name == "file-version"


def test_only_the_end_of_a_huge_log_is_read_and_line_numbers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxr.known_failures.explainer.MAX_BYTES", 1 << 20)
    log = b"Failed to call function\n" + b"x" * (1 << 20) + b"\nmore\nSegmentation fault\n"
    assert [(hit.failure.name, hit.line) for hit in find_failures(log)] == [("segfault", 4)]
    many = b"Failed to call function\n" + b"some line\n" * 200_000 + b"Segmentation fault\n"
    assert [(hit.failure.name, hit.line) for hit in find_failures(many)] == [("segfault", 200_002)]


SIZE = 5_000_000 if os.environ.get("MXR_TEST_SOAK") == "1" else 500_000
LIMIT = 2.0
"""Seconds of processor time. Quadratic time on either size would take minutes."""
NEEDLES = " ".join(needle.decode() for failure in FAILURES for needle in failure.needles)
HOSTILE_UNITS = {
    "one line": "a",
    "blanks": " ",
    "lines": "\n",
    "escapes": "\x1b[",
    "open escape": "0;",
    "brackets": "[",
    "json": '{"log":"\n',
    "needles": NEEDLES + " ",
    "needle lines": NEEDLES.replace(" ", "\n") + "\n",
    "each needle a line": "\n".join(needle.decode() for failure in FAILURES for needle in failure.needles) + "\n",
    "shapes": "incorrect shape {",
    "names": "failure opening file: ",
    "name lines": 'write_buffer: failure opening file: ""\n',
    "bundles": "program isa gfx900:xnack- is not compatible ",
    "hashes": "failure opening file: 20f00-1-1-1-1-",
}


@for_each(HOSTILE_UNITS.values())
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = "\x1b[" + unit * (SIZE // len(unit))
    started = time.process_time()
    find_failures(text)
    assert time.process_time() - started < LIMIT


@given(st.text() | st.binary())
def test_any_input_is_accepted(text: str | bytes) -> None:
    find_failures(text)


@given(st.lists(st.sampled_from([line for _, line in SAMPLES]), min_size=1, max_size=8), st.binary(max_size=40))
def test_any_mixture_is_ordered_and_marked(lines: list[str], junk: bytes) -> None:
    found = find_failures(b"\n".join([*(line.encode() for line in lines), junk]))
    assert found
    names = [hit.failure.name for hit in found]
    assert len(names) == len(set(names))
    levels = [("cause", "symptom", "note", "catch-all").index(hit.failure.level) for hit in found]
    assert levels == sorted(levels)
    for hit in found:
        assert hit.consequence_of is None or hit.consequence_of in names[: names.index(hit.failure.name)]


@for_each(FAILURES)
def test_each_row_follows_the_rules_of_the_table(failure) -> None:
    pattern = re.compile(failure.pattern, re.IGNORECASE | re.ASCII)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", failure.name)
    assert set(failure.covers) <= {other.name for other in FAILURES} - {failure.name}
    groups = {name: "x" for name in pattern.groupindex}
    assert failure.means.format_map(groups) and failure.fix.format_map(groups)
    assert all(needle == needle.lower() and len(needle) >= 6 for needle in failure.needles)
    assert failure.source
    assert not re.search(r"(?<!\\)[*+](?![\]:+-])", re.sub(r"\[[^\]]*\]", "", failure.pattern)), "an unbounded repeat"


def test_names_are_unique() -> None:
    names = [failure.name for failure in FAILURES]
    assert len(names) == len(set(names))


def test_fixes_name_only_commands_that_exist() -> None:
    commands = {"fetch", "check", "inspect", "host", "cache", "explain"}
    for failure in FAILURES:
        assert set(re.findall(r"`mxr (\w+)", failure.fix + failure.means)) <= commands


def test_no_advice_can_destroy_a_file() -> None:
    """What is in the way is moved, not deleted, and no path from a text becomes the target of a command."""
    harmful = r"\bdelete\b|\brm\b|\boverwrite\b|--force|remove (the|this) file|-o \{"
    for failure in FAILURES:
        assert not re.search(harmful, failure.fix.lower()), failure.name
