"""Record serving engines without a GPU, build packs of them, and write what is packaged and what builds take.

vLLM's engine runs with random weights, by the guide of docs/packs.md. SGLang's files run without a server:
`run_sglang.py` in `engine_programs` calls their functions. In an environment with vLLM, `aotcuda[record,triton]`,
`build`, IPython, orjson, pybase64, setproctitle, interegular and partial_json_parser, and SGLang's wheel, without
dependencies, in a folder of PYTHONPATH:

    python bench/engines.py record /tmp/engines             # dry runs for an H100; again: what is missing
    python bench/engines.py build /tmp/engines vllm sglang  # a pack of each engine's records
    python bench/engines.py write /tmp/engines              # docs/results/engines.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path
from typing import Any

import machine

from packages import MEASURES, PROJECT, variants

_PROGRAMS = Path(__file__).resolve().parent / "engine_programs"
_VLLM = ("llama", "fp8_kv", "lora", "moe", "mla", "mamba2", "next", "ngram")
ENGINES = {"vllm": [("vllm", kind) for kind in _VLLM], "sglang": [("sglang", "files")]}
_TARGETS = {"vllm": ("sm_90", "sm_100"), "sglang": ("sm_90",)}
_PEERS = ("torch", "triton", "vllm", "sglang")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("record", "build", "write"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("engines", nargs="*", help="vllm, sglang (default: both)")
    parser.add_argument("--out", type=Path, default=machine.RESULTS / "engines.json")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    step = {"record": record, "build": build, "write": lambda *given: write(*given, arguments.out)}[arguments.step]
    return max(step(folder, engine) for engine in arguments.engines or ENGINES)


def record(folder: Path, engine: str) -> int:
    """Record each program of an engine that has no record yet, in a dry run."""
    status = 0
    (folder / "drivers").mkdir(parents=True, exist_ok=True)
    for name, kind in ENGINES[engine]:
        out = folder / f"{name}_{kind}"
        if (out / "figures.json").exists():
            continue
        out.mkdir(exist_ok=True)
        (out / "record.json").unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "aotcuda",
            "record",
            "--dry",
            "--gpu",
            "H100",
            "--out",
            str(out / "record.json"),
        ]
        command += ["--packages", name, "--", sys.executable, str(_PROGRAMS / f"run_{name}.py"), kind, str(out)]
        done, figures = _measured(command, out, folder, {})
        status |= done
        if (out / "record.json").exists() and (out / "done").exists():
            (out / "figures.json").write_text(json.dumps(figures))
        print(f"{name}, {kind}: {figures}", flush=True)
    return status


def build(folder: Path, engine: str) -> int:
    """Build a pack of the records of an engine, and look at it with `inspect` and `check`."""
    root = folder / f"{engine}_pack"
    (root / f"{engine}_pack").mkdir(parents=True, exist_ok=True)
    (root / f"{engine}_pack" / "__init__.py").write_text("from aotcuda import packs\n\npacks.use(__name__)\n")
    text = PROJECT.format(name=engine, pack=f"{engine}_pack")
    (root / "pyproject.toml").write_text(text.replace('["sm_90"]', json.dumps(_TARGETS[engine])))
    (root / ".aotcuda-record.json").unlink(missing_ok=True)
    files = [str(folder / f"{name}_{kind}" / "record.json") for name, kind in ENGINES[engine]]
    files = [file for file in files if Path(file).with_name("figures.json").exists()]
    tool = [sys.executable, "-m", "aotcuda"]
    if subprocess.run([*tool, "record", "--packages", engine, "--merge", *files], cwd=root, check=False).returncode:
        return 1
    measures, seconds = folder / "measures", root / "seconds"
    measures.mkdir(exist_ok=True)
    (measures / "sitecustomize.py").write_text(MEASURES)
    seconds.write_text("")
    command = [sys.executable, "-m", "build", "-nxw", "-o", str(root / "dist"), str(root)]
    status, figures = _measured(command, root, folder, {"PYTHONPATH": str(measures), "COMPILER_SECONDS": str(seconds)})
    wheel = next(root.glob("dist/*.whl"), None)
    if wheel is None:
        return 1
    figures |= {
        "compilers": sum(map(float, seconds.read_text().split())),
        "records": [Path(file).parent.name for file in files],
        "targets": _TARGETS[engine],
        "bytes": wheel.stat().st_size,
        **variants(wheel),
    }
    figures["modules"] = _kernels(wheel)
    installed = folder / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    environ = {**_environment(folder), "PYTHONPATH": os.pathsep.join([str(installed), *_site()])}
    looks = {"inspect": ["inspect", wheel], "image": ["check", wheel, "--require", "H100@580"]}
    looks["served"] = ["check", f"{engine}_pack"]
    for name, arguments in looks.items():
        command = [*tool, *map(str, arguments)]  # in another folder than the project's, which has the name of the pack
        done = subprocess.run(command, cwd=wheel.parent, check=False, capture_output=True, text=True, env=environ)
        (root / f"{name}.txt").write_text(done.stdout + done.stderr)
        status |= done.returncode
    served = re.search(r"packs serve (\d+) of", (root / "served.txt").read_text())
    figures["served"] = int(served[1]) if served else 0
    (root / "figures.json").write_text(json.dumps(figures))
    print(f"{engine}: { {key: value for key, value in figures.items() if key != 'modules'} }", flush=True)
    return status


def write(folder: Path, engine: str, out: Path) -> int:
    """Write what was recorded and built of an engine into the file of results."""
    found = json.loads(out.read_text()) if out.exists() else {}
    pack = json.loads((folder / f"{engine}_pack" / "figures.json").read_text())
    records = {}
    launched: dict[str, set[str]] = {}
    for name, kind in ENGINES[engine]:
        home = folder / f"{name}_{kind}"
        if not (home / "figures.json").exists():
            continue
        recorded = json.loads((home / "record.json").read_text())
        functions = recorded["functions"]
        for item in functions:
            launched.setdefault(item["module"], set()).add(re.sub(r"(\.fn)+$", "", item["path"]))
        figures = json.loads((home / "figures.json").read_text())
        records[kind] = {
            "seconds": figures["seconds"],
            "processor": figures["processor"],
            "kernels": len({(item["module"], item["path"]) for item in functions}),
            "variants": len(functions),
            "launches": sum(sum(item["launches"].values()) for item in functions) // recorded["runs"],
        }
    files = folder / f"{engine}_files" / "done"
    found[engine] = {
        "machine": machine.describe(),
        "peers": {name: text for name in _PEERS if (text := machine._version(name))},
        "records": records,
        "pack": pack,
        "launched": {module: sorted(names) for module, names in sorted(launched.items())},
        **({"files": json.loads(files.read_text())} if files.exists() else {}),
    }
    out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which compiled operators find a `libcuda.so.1`, which has their symbols alone."""
    library = folder / "drivers" / "libcuda.so.1"
    if not library.exists():
        site = Path(sysconfig.get_path("purelib"))
        needed = [str(path) for path in (site / "vllm").rglob("*.so")]
        listed = subprocess.run(["nm", "-D", "--undefined-only", *needed], capture_output=True, text=True, check=False)
        names = sorted({*re.findall(r" U (cu[A-Z]\w*)", listed.stdout)})
        source = library.with_name("stub.c")
        source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in names))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    page = (machine.RESULTS.parent / "packs.md").read_text()
    program = next(text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "# record_vllm.py" in text)
    (folder / "record_vllm.py").write_text(program)
    names = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    return {**os.environ, **names, "LD_LIBRARY_PATH": str(library.parent)}


def _measured(command: list[str], out: Path, folder: Path, more: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Run a command; return its exit status, its seconds, its processor time, and the memory of its largest process."""
    environ = {**_environment(folder), **more}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (more.get("PYTHONPATH"), str(folder), *_site())))
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with (out / "log.txt").open("w") as log:
        status = subprocess.run(command, cwd=out, check=False, env=environ, stdout=log, stderr=log).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, {
        "seconds": round(time.perf_counter() - begin, 1),
        "processor": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "largest_mb": round(after.ru_maxrss / 1024),
    }


def _site() -> list[str]:
    return [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []


def _kernels(wheel: Path) -> dict[str, list[str]]:
    """Return the packaged kernels of a pack by the module of their source."""
    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith("/manifest.json"):
                manifest = json.loads(archive.read(name))
                found[manifest["pack"]["source"]] = sorted(kernel["name"] for kernel in manifest["kernels"])
    return found


if __name__ == "__main__":
    sys.exit(main())
