"""The fast path that launches take, and the reasons for none that a module and `aotcuda doctor` show."""

from __future__ import annotations

import json
import sys
import types
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from aotcuda import cli
from aotcuda.runtime import driver as drivers
from aotcuda.runtime import fast as extension
from aotcuda.tools import doctor
from support.manifests import kernel

NOT_LOADED = "DLL load failed while importing _launch: " if sys.platform == "win32" else "{}/_launch.so: "


@pytest.fixture
def looking(monkeypatch):
    """Search for the extension again, with another module in its place; None for none."""

    def look(module):
        monkeypatch.setattr(extension, "_module", [])
        monkeypatch.setattr(extension, "_reason", [])
        monkeypatch.delenv("AOTCUDA_EXTENSION", raising=False)
        monkeypatch.setitem(sys.modules, "aotcuda.runtime.fast._launch", module)
        monkeypatch.setattr("aotcuda.runtime.fast._launch", module, raising=False)
        if module is None:
            monkeypatch.delattr("aotcuda.runtime.fast._launch")

    return look


class TestWhichFastPath:
    """The fast path in use, and the module's text about it."""

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
        self, cuda, looking, monkeypatch, module, variable, shown
    ):
        packaged = cuda.package(kernel("k", "void(int32)"), load="first-use")
        looking(module)
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
        self, cuda, looking, monkeypatch, tmp_path, name, content, message
    ):
        looking(None)
        (tmp_path / name).write_text(content)
        monkeypatch.delitem(sys.modules, "aotcuda.runtime.fast._launch")
        monkeypatch.setattr("aotcuda.runtime.fast.__path__", [str(tmp_path)])
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
    def test_doctor_names_the_extra_for_the_driver(self, looking, supported, extra):
        looking(None)
        found = {**doctor.examine(), "front_ends": {"numba-cuda": None}}
        found["driver"] = {"cuda": supported, "gpus": [], "problem": None if supported else "there is none"}
        lines = [line.split(maxsplit=1) for line in doctor.render(found).splitlines()]
        assert ["numba-cuda", f"not installed: pip install 'aotcuda[{extra}]'"] in lines

    def test_doctor_reports_what_is_missing(self, looking, monkeypatch, capsys):
        monkeypatch.setattr(drivers, "_driver", None)
        monkeypatch.setattr(drivers, "LIBRARY", "libnowhere.so.1")
        for home in ("HOME", "USERPROFILE"):  # Windows has the second one
            monkeypatch.setenv(home, "nowhere")
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        looking(None)
        assert cli.main(["doctor", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["driver"]["gpus"] == []
        assert "libnowhere.so.1 cannot be loaded" in found["driver"]["problem"]
        assert found["fast_path"]["in"] is None
        assert found["fast_path"]["path"] is None
        assert "has none for" in found["fast_path"]["why_not_c"]
        assert found["cache"] is None
        assert cli.main(["doctor"]) == 0
        assert "cache            none: there is no home folder" in capsys.readouterr().out
