"""An autotuner of the package's own, as fla's `ops/utils/cache.py` has one; no import of it was changed."""

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
