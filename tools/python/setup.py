"""setup.py - the extension and libattnrun, by CMake from the sources two folders above.

In: `pip install ./tools/python`; cmake, a C compiler, protobuf-c with its compiler, and
OpenBLAS where pkg-config finds it (ATTNRUN_BLAS=OFF or ON in the environment decides
otherwise). CMAKE_ARGS in the environment are options of cmake, ATTNRUN_BUILD_BASE is the folder
to build in. Out: attnrun/_attnrun.abi3.so and attnrun/libattnrun.so.0 in the package; a
free-threaded Python, which has no stable ABI, gets an extension for itself alone."""
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def version():
    text = (ROOT / "runtime" / "attnrun.h").read_text(encoding="utf-8")
    return re.search(r'ATTNRUN_VERSION "([^"]+)"', text).group(1)


def blas():
    chosen = os.environ.get("ATTNRUN_BLAS")
    if chosen:
        return chosen
    found = subprocess.run(["pkg-config", "--exists", "openblas"], check=False).returncode == 0
    return "ON" if found else "OFF"


FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

# Nothing is written beside the sources.
BASE = Path(os.environ.get("ATTNRUN_BUILD_BASE", ROOT / "build" / "python-package"))
BASE.mkdir(parents=True, exist_ok=True)


class CMakeBuild(build_ext):
    """Both libraries, made by CMake, where the package will be."""

    def build_extension(self, ext):
        build = Path(self.build_temp).resolve() / "cmake"
        target = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        options = ["-DCMAKE_BUILD_TYPE=Release", f"-DATTNRUN_BLAS={blas()}",
                   "-DATTNRUN_TOOLS=OFF", "-DATTNRUN_TESTS=OFF",
                   f"-DATTNRUN_PYTHON_INCLUDE={sysconfig.get_path('include')}"]
        options += shlex.split(os.environ.get("CMAKE_ARGS", ""))
        if shutil.which("ninja") and "CMAKE_GENERATOR" not in os.environ:
            options.append("-GNinja")
        subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), *options], check=True)
        jobs = str(len(os.sched_getaffinity(0)))
        subprocess.run(["cmake", "--build", str(build), "--target", "attnrun_python", "-j",
                        jobs], check=True)
        target.mkdir(parents=True, exist_ok=True)
        for library in (build / "python" / "attnrun").glob("*.so*"):
            place = target / library.name
            if library.name.startswith("_attnrun."):
                place = Path(self.get_ext_fullpath(ext.name)).resolve()
            shutil.copy2(library, place)
            subprocess.run(["strip", "--strip-unneeded", str(place)], check=False)


class Abi3Wheel(bdist_wheel):
    """One wheel for Python 3.11 and later; one for each free-threaded version."""

    def finalize_options(self):
        self.py_limited_api = False if FREE_THREADED else "cp311"
        super().finalize_options()


setup(version=version(),
      ext_modules=[Extension("attnrun._attnrun", [], py_limited_api=not FREE_THREADED)],
      options={"build": {"build_base": str(BASE)}, "egg_info": {"egg_base": str(BASE)}},
      cmdclass={"build_ext": CMakeBuild, "bdist_wheel": Abi3Wheel})
