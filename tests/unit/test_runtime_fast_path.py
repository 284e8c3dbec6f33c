"""The fast path that launches take, and the reasons for none that a module and `aotcuda doctor` show."""

from __future__ import annotations

import json
import sys
import types
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from aotcuda import cli
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.launch import fast as extension
from aotcuda.tools import doctor
from support.manifests import kernel

NOT_LOADED = "DLL load failed while importing _launch: " if sys.platform == "win32" else "{}/_launch.so: "


@pytest.fixture
def install(monkeypatch):
    """Return a function that replaces the extension by another module, or by None, and forgets the last search."""

    def install(module):
        monkeypatch.setattr(extension, "_module", [])
        monkeypatch.setattr(extension, "_reason", [])
        monkeypatch.delenv("AOTCUDA_EXTENSION", raising=False)
        monkeypatch.setitem(sys.modules, "aotcuda.runtime.launch.fast._launch", module)
        monkeypatch.setattr("aotcuda.runtime.launch.fast._launch", module, raising=False)
        if module is None:
            monkeypatch.delattr("aotcuda.runtime.launch.fast._launch")

    return install


class TestReasons:
    """The fast path in use, or the reason for none, as modules show it."""

    OWN = types.SimpleNamespace(
        VERSION=extension._VERSION, __file__="/there/_launch.abi3.so", Launcher=type("Launcher", (), {})
    )
    OTHER = types.SimpleNamespace(VERSION=99, __file__="/there/_launch.abi3.so")

    @pytest.mark.parametrize(
        ("module", "variable", "shown"),
        [
            (OWN, "1", "in C"),
            (OWN, "0", "none: AOTCUDA_EXTENSION is 0"),
            (OTHER, "1", "none: /there/_launch.abi3.so belongs to another version of aotcuda; install aotcuda again"),
            (None, "1", "none: this installation of aotcuda has none for cpython-"),
        ],
        ids=["installed", "turned off", "another version", "pure wheel"],
    )
    def test_a_module_shows_its_fast_path_or_the_reason_for_none(
        self, cuda, install, monkeypatch, module, variable, shown
    ):
        packaged = cuda.package(kernel("k", "void(int32)"), load="first-use")
        install(module)
        monkeypatch.setenv("AOTCUDA_EXTENSION", variable)
        assert extension.in_use() is (self.OWN if shown == "in C" else None)
        assert packaged.__aotcuda__.fast_path.startswith(shown)
        assert "fast path" not in repr(packaged.__aotcuda__)
        if module is not self.OWN:
            packaged.k[1, 1](1)
            assert f"; fast path {shown}" in repr(packaged.__aotcuda__)

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            (f"_launch{EXTENSION_SUFFIXES[-1]}", "no library", NOT_LOADED),
            (
                "_launch.py",
                "raise SystemError('init function of _launch returned uninitialized object')",
                "init function",
            ),
        ],
    )
    def test_an_extension_that_cannot_be_loaded_says_why(
        self, cuda, install, monkeypatch, tmp_path, name, content, message
    ):
        install(None)
        (tmp_path / name).write_text(content)
        monkeypatch.delitem(sys.modules, "aotcuda.runtime.launch.fast._launch")
        monkeypatch.setattr("aotcuda.runtime.launch.fast.__path__", [str(tmp_path)])
        assert extension.in_use() is None
        assert extension.why_not().startswith(f"it cannot be imported: {message.format(tmp_path)}")
        assert extension.why_not().endswith("; install aotcuda again with this Python")

    def test_synchronous_launches_take_no_fast_path(self, cuda, monkeypatch):
        module = cuda.package(kernel("k", "void(int32)"), load="first-use")
        monkeypatch.setenv("AOTCUDA_SYNCHRONIZE", "1")
        waiting = "none: launches wait for their kernels, because AOTCUDA_SYNCHRONIZE is 1"
        assert module.__aotcuda__.fast_path == waiting
        module.k[1, 1](1)
        monkeypatch.delenv("AOTCUDA_SYNCHRONIZE")  # it was read when the images were loaded
        assert module.__aotcuda__.fast_path == waiting


class TestDoctor:
    @pytest.mark.parametrize(
        ("supported", "extra"), [("12.4", "cu12"), ("13.1", "cu13"), ("11.8", "cu12"), (None, "cu13")]
    )
    def test_doctor_names_the_extra_for_the_driver(self, install, supported, extra):
        install(None)
        facts = {**doctor.examine(), "front_ends": {"numba-cuda": None}}
        facts["driver"] = {"cuda": supported, "gpus": [], "problem": None if supported else "there is none"}
        lines = [line.split(maxsplit=1) for line in doctor.render(facts).splitlines()]
        assert ["numba-cuda", f"not installed: pip install 'aotcuda[{extra}]'"] in lines

    def test_doctor_reports_what_is_missing(self, install, monkeypatch, capsys):
        monkeypatch.setattr(drivers, "_driver", None)
        monkeypatch.setattr(drivers, "LIBRARY", "libnowhere.so.1")
        for home in ("HOME", "USERPROFILE"):  # Windows has the second one
            monkeypatch.setenv(home, "nowhere")
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        install(None)
        assert cli.main(["doctor", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["driver"]["gpus"] == []
        assert "libnowhere.so.1 cannot be loaded" in facts["driver"]["problem"]
        assert facts["fast_path"]["in"] is None
        assert facts["fast_path"]["path"] is None
        assert "has none for" in facts["fast_path"]["why_not_c"]
        assert facts["cache"] is None
        assert cli.main(["doctor"]) == 0
        assert "cache            none: there is no home folder" in capsys.readouterr().out
