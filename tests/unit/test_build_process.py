"""Check the environment and tools of workers, and signals during a build."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from aotcuda import registry
from aotcuda.builder.cache import settings
from aotcuda.builder.compile import interrupt, process
from aotcuda.builder.compile.interrupt import NOTHING_WRITTEN, Interrupted
from aotcuda.builder.plan import toolkits
from aotcuda.builder.shards import remote_build
from aotcuda.errors import BuildError
from aotcuda.registry import Registration, Variables
from support.toolkits import toolkit

if TYPE_CHECKING:
    from pathlib import Path


def test_compiler_settings_are_not_passed_to_workers() -> None:
    variables = {
        "PATH": "/bin",
        "NUMBA_OPT": "0",
        "NUMBA_CUDA_DEBUGINFO": "1",
        "NUMBA_FORCE_CUDA_CC": "5.0",
        "NUMBA_CUDA_INCLUDE_PATH": "/headers",
        "NUMBA_CUDA_NVRTC_EXTRA_SEARCH_PATHS": "/more",
    }
    assert process.environment(variables) == {
        "PATH": "/bin",
        "NUMBA_CUDA_INCLUDE_PATH": "/headers",
        "NUMBA_CUDA_NVRTC_EXTRA_SEARCH_PATHS": "/more",
        "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "AOTCUDA_BUILDING": "1",
        "AOTCUDA_LOAD": "first-use",
    }


def test_registered_front_end_names_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Variables(prefixes=("TOY_",), kept=("TOY_HEADERS",), given=(("TOY_QUIET", "1"),))
    registered = Registration("toy", tables="toy.tables", compiler="toy.compiler", requires="toy", variables=toy)
    monkeypatch.setattr(registry, "_registered", {"toy": registered}.get)
    variables = {"TOY_LEVEL": "3", "TOY_HEADERS": "/toys", "NUMBA_OPT": "0"}
    environment = process.environment(variables, "toy")
    assert {name: value for name, value in environment.items() if name.startswith("TOY_")} == {
        "TOY_HEADERS": "/toys",
        "TOY_QUIET": "1",
    }
    assert "NUMBA_OPT" not in environment
    assert process.environment(variables)["TOY_LEVEL"] == "3"


def test_toolkit_of_a_worker_precedes_the_machines(tmp_path: Path) -> None:
    toolkit(tmp_path, 13, "13.0.88")
    (kit,) = toolkits.installed([str(tmp_path)])
    machine = {"CUDA_PATH": "/usr/local/cuda", "LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}
    variables = process.environment(machine, toolkit=kit)
    home = tmp_path / "nvidia" / "cu13"
    assert variables["CUDA_PATH"] == variables["CUDA_HOME"] == str(home)
    assert variables["LD_LIBRARY_PATH"] == f"{home / 'lib'}:/usr/local/cuda/lib64"
    assert process.environment({}, toolkit=kit)["LD_LIBRARY_PATH"] == str(home / "lib")
    assert process.environment(machine).items() >= machine.items()


@pytest.mark.parametrize(
    ("tools", "difference"),
    [
        ({"Python": "3.12", "numba-cuda": "0.30"}, ""),
        ({"Python": "3.13", "numba-cuda": "0.30"}, "has Python 3.13, and the build has 3.12"),
        (
            {"Python": ["cpython-312", "3.12.1\n[GCC]"]},
            "has Python cpython-312, 3.12.1 [GCC], and the build has 3.12",
        ),
        ({"Python": "3.12"}, "has no numba-cuda, and the build has 0.30"),
        ({"Python": "3.12", "numba-cuda": "0.30", "triton": "3.9"}, "has triton 3.9, and the build has none"),
    ],
)
def test_worker_on_another_machine_names_its_other_tools(
    tools: dict[str, str], difference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "tools", lambda *_: tools)
    assert remote_build._difference({"Python": "3.12", "numba-cuda": "0.30"}, []) == difference


def test_worker_on_another_machine_has_the_variables_of_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("AOTCUDA_ARCH", "PYTHONOPTIMIZE", "NUMBA_CUDA_INCLUDE_PATH", "MYPKG_FAST", "PATH")
    monkeypatch.setattr(os, "environ", dict.fromkeys(names, "worker's"))
    request = {"table": {"watch-env": ["MYPKG_*"]}, "variables": {"MYPKG_SIZE": "2"}}
    remote_build._adopt_variables(request)
    assert os.environ == {"PATH": "worker's", "MYPKG_SIZE": "2"}


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_is_raised_with_its_exit_status(number: signal.Signals) -> None:
    with pytest.raises(Interrupted, match=NOTHING_WRITTEN) as caught, interrupt.raise_interrupts():
        os.kill(os.getpid(), number)
    assert caught.value.code == 128 + number


def test_handlers_are_restored() -> None:
    handlers = [signal.getsignal(number) for number in SIGNALS]
    with interrupt.raise_interrupts():
        assert signal.getsignal(signal.SIGTERM) not in handlers
    assert [signal.getsignal(number) for number in SIGNALS] == handlers


def test_another_handler_stays() -> None:
    original = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interrupt.raise_interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, original)


def test_thread_installs_no_handlers() -> None:
    handlers = []

    def build() -> None:
        with interrupt.raise_interrupts():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (BuildError("it fails"), "aotcuda: it fails", 1),
        (Interrupted(NOTHING_WRITTEN), f"aotcuda: {NOTHING_WRITTEN}", 130),
    ],
)
def test_error_or_signal_ends_the_build_with_one_line(error: BaseException, line: str, code: int) -> None:
    ended: list[tuple[str, int]] = []
    with interrupt.end_in_one_line(lambda text, status: ended.append((text, status))):
        raise error
    assert ended == [(line, code)]
