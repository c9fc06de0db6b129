"""EPContext models for ONNX Runtime's MIGraphX plugin provider: an ONNX file that names its program and its GPU.

The built-in provider (onnxruntime-migraphx up to 1.27.1) rejects such models.
"""

from __future__ import annotations

from mxr.artifact.key import Key
from mxr.display.text import python_quoted
from mxr.errors import UsageError
from mxr.facts import stated
from mxr.onnxfile import OnnxInput
from mxr.onnxfile.writing import WrittenNode, model_bytes

from .consumer import Consumer
from .layout import Delivery, Layout, LayoutFile, need_outputs, refuse_dynamic, whole_arch, written

PROVIDER = "MIGraphXExecutionProvider"
WHO = "An EPContext model"
OPSET = 17


def check_key(key: Key) -> None:
    """Raise `UsageError` for programs of the reference target, with offload_copy, or with dynamic dims."""
    if key.kind != "gpu":
        raise UsageError(f"{WHO} supports only GPU programs.", hint=f"Omit {stated('kind', 'ref')}.")
    if key.offload_copy:
        raise UsageError(
            f"{WHO} needs a program with offload_copy off: the provider binds the buffers.",
            hint=f"Omit {stated('offload_copy', True)}.",
        )
    refuse_dynamic(key, WHO)


def lay_out(delivery: Delivery) -> Layout:
    """The program under a name that contains its hash, then `<stem>_ctx.onnx`, which refers to it.

    Source: onnxruntime/onnxruntime-ep-amdgpu: the reader requires a relative path, an equal `hardware_architecture`,
    and an equal major version in `ep_sdk_version`; the provider itself compiles with fast_math off.
    """
    check_key(delivery.key)
    need_outputs(delivery, WHO)
    program = f"{delivery.stem}_{delivery.program[:12]}.mxr"
    context = f"{delivery.stem}_ctx.onnx"
    notes = ("The provider itself compiles with fast math off, so results may differ in the last digits.",)
    return Layout(
        pieces=(LayoutFile(program, delivery.program), written(context, _model(delivery, program))),
        path=context,
        settings=(
            f"onnxruntime.InferenceSession({python_quoted(delivery.folder / context)}, "
            f"with the plugin provider {PROVIDER})",
            "leave cache_dir unset: the provider would search it first",
        ),
        notes=notes if delivery.key.fast_math else (),
    )


def _model(delivery: Delivery, program: str) -> bytes:
    inputs = tuple(OnnxInput(name, kind, dims) for name, kind, dims in delivery.input_dims())
    outputs = tuple(OnnxInput(name, kind, dims) for name, kind, dims in delivery.output_dims())
    node = WrittenNode(
        name=f"{PROVIDER}_{delivery.stem}",
        op_type="EPContext",
        domain="com.microsoft",
        inputs=tuple(item.name for item in inputs),
        outputs=tuple(output.name for output in outputs),
        attributes={
            "embed_mode": 0,
            "ep_cache_context": program,
            "main_context": 1,
            "source": PROVIDER,
            # The provider compares this string exactly.
            "hardware_architecture": whole_arch(delivery, WHO),
            "ep_sdk_version": delivery.artifact.attributes.migraphx_patch or f"{delivery.key.migraphx}.0",
            "onnx_model_filename": f"{delivery.stem}.onnx",
            "partition_name": f"{PROVIDER}_0",
        },
    )
    return model_bytes(delivery.stem, node, inputs, outputs, {"": OPSET, "com.microsoft": 1})


EPCONTEXT = Consumer(
    name="epcontext",
    summary="ONNX Runtime's MIGraphX plugin provider, with an EPContext model",
    offload_copy=False,
    fast_math=False,
    name_file=None,
    source="onnxruntime/onnxruntime-ep-amdgpu; onnxruntime.ai, EP Context Design",
    check_key=check_key,
    lay_out=lay_out,
    needs_model=True,
    tree="<stem>_<sha256>.mxr, <stem>_ctx.onnx",
)
