"""The structures of XLA's FFI as the extension declares them, compared with the header in JAX."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

FAST = Path(__file__).parents[2] / "aotcuda" / "runtime" / "launch" / "fast"

# The extension's name, JAX's name, and the members of both in order.
SAME = [
    ("XlaExtension", "XLA_FFI_Extension_Base", "struct_size type next", ""),
    (
        "XlaVersion",
        "XLA_FFI_Api_Version",
        "struct_size extension major minor",
        "extension_start major_version minor_version",
    ),
    ("XlaMetadata", "XLA_FFI_Metadata", "struct_size version traits", "api_version traits"),
    ("XlaMetadataExtension", "XLA_FFI_Metadata_Extension", "metadata", "metadata"),
    ("XlaErrorArgs", "XLA_FFI_Error_Create_Args", "message code", "message errc"),
    ("XlaStreamArgs", "XLA_FFI_Stream_Get_Args", "context stream", "ctx stream"),
    (
        "XlaApi",
        "XLA_FFI_Api",
        "version internal error_create error_get_message error_destroy handler_register stream_get",
        (
            "api_version internal_api XLA_FFI_Error_Create XLA_FFI_Error_GetMessage XLA_FFI_Error_Destroy"
            " XLA_FFI_Handler_Register XLA_FFI_Stream_Get"
        ),
    ),
    ("XlaBuffer", "XLA_FFI_Buffer", "dtype data rank dims", ""),
    ("XlaList", "XLA_FFI_Args", "size types values", "size types args"),
    ("XlaList", "XLA_FFI_Rets", "size types values", "size types rets"),
    ("XlaSpan", "XLA_FFI_ByteSpan", "text length", "ptr len"),
    ("XlaScalar", "XLA_FFI_Scalar", "dtype value", ""),
    ("XlaAttributes", "XLA_FFI_Attrs", "size types names values", "size types names attrs"),
    ("XlaFrame", "XLA_FFI_CallFrame", "api context stage args results attributes", "api ctx stage args rets attrs"),
]
CONSTANTS = {
    "XLA_METADATA": "XLA_FFI_Extension_Metadata",
    "XLA_BUFFER": "XLA_FFI_ArgType_BUFFER",
    "XLA_SCALAR": "XLA_FFI_AttrType_SCALAR",
    "XLA_S64": "XLA_FFI_DataType_S64",
    "XLA_EXECUTE": "XLA_FFI_ExecutionStage_EXECUTE",
    "XLA_COMMAND_BUFFER_COMPATIBLE": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
    "XLA_MAJOR": "XLA_FFI_API_MAJOR",
    "XLA_INVALID_ARGUMENT": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "XLA_FAILED_PRECONDITION": "XLA_FFI_Error_Code_FAILED_PRECONDITION",
    "XLA_INTERNAL": "XLA_FFI_Error_Code_INTERNAL",
}


@pytest.fixture(scope="module")
def header():
    found = find_spec("jaxlib")
    if found is None or found.origin is None:
        pytest.skip("JAX is not installed")
    return Path(found.origin).parent / "include" / "xla" / "ffi" / "api" / "c_api.h"


def test_structures_equal_those_of_the_jax_header(header, tmp_path):
    checks = [f'_Static_assert({ours} == {theirs}, "{ours}");' for ours, theirs in CONSTANTS.items()]
    for ours, theirs, members, named in SAME:
        for member, other in zip(
            members.split()[-len((named or members).split()) :], (named or members).split(), strict=True
        ):
            offset, expected = f"offsetof({ours}, {member})", f"offsetof({theirs}, {other})"
            checks.append(f'_Static_assert({offset} == {expected}, "{ours}.{member}");')
            sizes = f"sizeof((({ours} *)0)->{member}) == sizeof((({theirs} *)0)->{other})"
            checks.append(f'_Static_assert({sizes}, "{ours}.{member}");')
    source = tmp_path / "abi.c"
    source.write_text("\n".join([f'#include "{FAST / "xla.c"}"', f'#include "{header}"', *checks]))
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    include = f"-I{sysconfig.get_path('include')}"
    done = subprocess.run([compiler, "-fsyntax-only", include, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, re.findall("error: .*", done.stderr)
    assert len(checks) > 80
