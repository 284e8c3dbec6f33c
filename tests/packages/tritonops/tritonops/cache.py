"""A package's autotuner, as fla's `ops/utils/cache.py` has one; the module imports Triton itself."""

from triton.runtime.autotuner import Autotuner


class CachedAutotuner(Autotuner):
    def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs):
        super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs)
        self.kernel_name = fn.fn.__name__

    def run(self, *args, **kwargs):
        self.seen = dict(zip(self.arg_names, args, strict=False))
        return super().run(*args, **kwargs)


def cached_autotune(configs, key):
    return lambda fn: CachedAutotuner(fn, fn.arg_names, configs, key, None, None)
