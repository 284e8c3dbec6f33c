"""Export the recorded timings of autotuners in the form that Triton reads with `TRITON_CACHE_AUTOTUNING=1`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends import python_source
from aotcuda.builder.frontends.triton import decorators

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.frontends.triton.config import TritonUnit
    from aotcuda.tools.export.job import Job, Result


def export(job: Job, loaded: Sequence[tuple[TritonUnit, Any]], result: Result) -> None:
    """Write the timings of one GPU for each autotuned kernel into Triton's cache, by Triton's own function."""
    capability = f"{job.target.major}.{job.target.minor}"
    kernels = {(unit.module, unit.name): unit for unit, _ in loaded}
    for (module, name), unit in kernels.items():
        gpus = {
            gpu: facts["timings"]
            for gpu, facts in job.tuning.get(module, {}).get(name, {}).get("gpus", {}).items()
            if facts.get("capability") == capability and facts.get("timings")
        }
        if job.gpu:
            gpus = {gpu: rows for gpu, rows in gpus.items() if gpu == job.gpu}
        if len(gpus) > 1:
            result.notes.append(
                f"{unit.origin} has timings of {' and '.join(gpus)}, and a cache can hold those of one GPU of a "
                "capability; name it with --gpu"
            )
            continue
        for gpu, rows in gpus.items():
            _export_kernel(job, unit, gpu, rows, result)


def _export_kernel(job: Job, unit: TritonUnit, gpu: str, rows: list[Any], result: Result) -> None:
    configs = job.tuning[unit.module][unit.name]["configs"]
    _, value = python_source.find(unit, unit.sources, job.root)
    tuner = next(iter(decorators.tuners(decorators.layers(value)[0])), None)
    if tuner is None:
        return
    by_text = {_text(_facts_of(config)): config for config in tuner.configs}
    cache = Path(os.environ["TRITON_CACHE_DIR"])
    for key, timed in rows:
        chosen = [by_text[text] for index, _ in timed if (text := _text(configs[index])) in by_text]
        if len(chosen) < len(timed):
            result.notes.append(f"{unit.origin}: the configs for the key {key} have changed; record it again on a GPU")
            continue
        if any(config.pre_hook for config in chosen):
            result.notes.append(f"{unit.origin}: Triton keeps no timings of configs with a pre_hook")
            break
        timings = {config: each for config, (_, each) in zip(chosen, timed, strict=True)}

        def set_timings(timings: dict[Any, Any] = timings) -> None:
            tuner.configs_timings = timings

        before = {path.name for path in cache.iterdir()}
        tuner.check_disk_cache(tuple(key), chosen, set_timings)
        result.timings += [
            {"kernel": unit.origin, "gpu": gpu, "entry": path.name}
            for path in sorted(cache.iterdir())
            if path.name not in before
        ]


def _facts_of(config: Any) -> dict[str, Any]:
    """Return a config as records have it."""
    options = {name: value for name, value in config.all_kwargs().items() if name not in config.kwargs}
    plain = (type(None), bool, int, float, str)
    kwargs = {name: value if type(value) in plain else str(value) for name, value in config.kwargs.items()}
    return {"kwargs": kwargs, **options}


def _text(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)
