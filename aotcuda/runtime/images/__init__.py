"""Parts that only some images need: choice of an image, callbacks, exceptions of debug kernels."""
