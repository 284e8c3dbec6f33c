"""Run the worker process of a build."""
