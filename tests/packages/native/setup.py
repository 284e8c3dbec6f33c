"""Test what pyproject.toml has no word for: an extension module, and a build that lists its steps itself."""

from setuptools import Extension, setup
from setuptools.command.build import build


class Build(build):
    sub_commands = [("build_ext", None), ("build_py", None)]


setup(ext_modules=[Extension("native._factor", ["src/native/_factor.c"])], cmdclass={"build": Build})
