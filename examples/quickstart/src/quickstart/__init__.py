"""A package whose GPU code is compiled when its wheel is built."""
