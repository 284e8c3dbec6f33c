"""Loaded images: which one each GPU takes, the library in the driver, callbacks."""
