"""Test the line that the error table makes from the text of a compiler or linker."""

from __future__ import annotations

import tempfile

import pytest

from aotcuda.builder.frontends import error_table

TEMPORARY = tempfile.gettempdir()
EXPLAINED = {
    "row with groups": (
        "KeyError: <ufunc 'sqrt'>",
        (
            "k: kernels cannot call sqrt (a.py:3); use an operator or the math module's function for each number, or "
            "write its computation out"
        ),
    ),
    "a kernel as a function": (
        "TypingError: No conversion from none to float32 for '$96return_value.8', defined at None",
        (
            "k: its signature returns float32, and it returns nothing (a.py:3); return a value, or move a kernel from "
            "functions to kernels, with a signature void(...)"
        ),
    ),
    "hexadecimal sizes": (
        "ptxas error   : Entry function 'f' uses too much shared data (0x13880 bytes, 0xc000 max)",
        (
            "k: f has 80000 bytes of shared memory of a fixed size, and 49152 are the most (a.py:3); make it smaller, "
            "or give it no size in the source and its bytes at the launch"
        ),
    ),
    "colours and noise": (
        "TypingError: Failed in cuda mode pipeline (step: nopython frontend)\n\x1b[1mno such thing at 0x7f00.\x1b[0m",
        "k: no such thing (a.py:3)",
    ),
    "temporary folder": (
        f"compiler failed\nptxas {TEMPORARY}/tmpab/x.ptx, line 12; error   : Unknown symbol in {TEMPORARY}/tmpab/x.ptx",
        (
            "k: Unknown symbol in x.ptx (a.py:3)\n    compiler failed\n"
            "    ptxas x.ptx, line 12; error   : Unknown symbol in x.ptx"
        ),
    ),
    "type of an exception": ("NameError: name 'n' is not defined", "k: NameError: name 'n' is not defined (a.py:3)"),
    "nothing": ("", "k: the compiler refuses it (a.py:3)"),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_compiler_text_becomes_place_fact_and_remedy(name: str) -> None:
    text, expected = EXPLAINED[name]
    assert error_table.explain("k", text, "a.py:3") == expected


def test_exception_without_message_shows_the_failed_line() -> None:
    def fail() -> None:
        raise AssertionError

    with pytest.raises(AssertionError) as caught:
        fail()
    assert error_table.error_text(caught.value) == "AssertionError: raise AssertionError"
