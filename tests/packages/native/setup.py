"""Build an extension module, by a build command that lists its steps: pyproject.toml cannot express this."""

from setuptools import Extension, setup
from setuptools.command.build import build


class Build(build):
    sub_commands = [("build_ext", None), ("build_py", None)]


setup(ext_modules=[Extension("native._factor", ["src/native/_factor.c"])], cmdclass={"build": Build})
