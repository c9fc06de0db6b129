"""Reading Triton's config.pbtxt by protobuf's own text parser, against the fields of its schema that mxr writes.

Source: triton-inference-server/common, protobuf/model_config.proto.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, text_format

TYPES = {"TYPE_BOOL": 1, "TYPE_INT32": 8, "TYPE_INT64": 9, "TYPE_FP16": 10, "TYPE_FP32": 11, "TYPE_FP64": 12}
FIELD = descriptor_pb2.FieldDescriptorProto
STRING, INT64, MESSAGE, ENUM = FIELD.TYPE_STRING, FIELD.TYPE_INT64, FIELD.TYPE_MESSAGE, FIELD.TYPE_ENUM
SCHEMA: dict[str, list[tuple[str, int, int, bool, str]]] = {
    "Shape": [("shape", 1, INT64, True, "")],
    "Tensor": [
        ("name", 1, STRING, False, ""),
        ("data_type", 2, ENUM, False, ".t.DataType"),
        ("dims", 4, INT64, True, ""),
        ("reshape", 5, MESSAGE, False, ".t.Shape"),
    ],
    "Parameter": [("string_value", 1, STRING, False, "")],
    "Specific": [("versions", 1, INT64, True, "")],
    "Policy": [("specific", 3, MESSAGE, False, ".t.Specific")],
    "Batching": [("preferred_batch_size", 1, INT64, True, "")],
    "Entry": [("key", 1, STRING, False, ""), ("value", 2, MESSAGE, False, ".t.Parameter")],
    "Config": [
        ("name", 1, STRING, False, ""),
        ("version_policy", 3, MESSAGE, False, ".t.Policy"),
        ("max_batch_size", 4, INT64, False, ""),
        ("input", 5, MESSAGE, True, ".t.Tensor"),
        ("output", 6, MESSAGE, True, ".t.Tensor"),
        ("dynamic_batching", 11, MESSAGE, False, ".t.Batching"),
        ("parameters", 14, MESSAGE, True, ".t.Entry"),
        ("backend", 17, STRING, False, ""),
    ],
}


def _config() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    enum = file.enum_type.add(name="DataType")
    for name, number in {"TYPE_INVALID": 0, **TYPES}.items():
        enum.value.add(name=name, number=number)
    for name, rows in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated, of in rows:
            label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
            message.field.add(name=field, number=number, type=kind, label=label, type_name=of or None)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Config"))


CONFIG = _config()


def read(text: str) -> dict[str, Any]:
    """The configuration as Triton passes it to a Python model: parameters by key."""
    found = json_format.MessageToDict(
        text_format.Parse(text, CONFIG()), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    found["parameters"] = {each["key"]: each["value"] for each in found["parameters"]}
    return found
