"""Parts of patterns and of fixes that several failure tables share."""

from __future__ import annotations

FILE = r"[\"']{0,2}(?P<file>[^\"']{1,300}?\.(?:mxr|onnx)\b|[^\s\"']{1,300})"
"""A file name, as group `file`."""

ORT_NAME = r"[0-9a-f]{4,8}(?:-[0-9a-f]{1,16}){3,4}\.mxr"
"""The name that ONNX Runtime gives to a compiled model in its cache."""

GFX = r"(?:amdgcn-amd-amdhsa--)?(?P<%s>gfx[0-9a-f]{3,5}(?:-generic|-[0-9]-generic)?(?::(?:sramecc|xnack)[+-]){0,2})"
"""A GPU architecture. Fill in the name of its group: `GFX % "arch"`."""

REST = r"(?P<why>[^\"]{1,200})"
"""The rest of the message, as group `why`."""

EXCEPTION = r"(?:^|(?:what\(\)|[a-z]{1,40}(?:error|exception)|migraphx_\w{1,60}: error): )"
"""The start of an exception's message."""

RECOMPILE = "Run `mxr fetch MODEL` on this host to get a matching program, or a report of what is missing."
CHECK = "Run `mxr check FILE` to compare the file's requirements with this host."
