"""What only some images need: a choice between them, a part of them, callbacks, exceptions of debug kernels."""
