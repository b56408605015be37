"""setup.py - the extension and libattnrun, by CMake from the sources two folders above.

In: `pip install ./tools/python`; a C compiler, protobuf-c with its compiler, pkg-config, and
OpenBLAS where pkg-config finds it (ATTNRUN_BLAS=OFF or ON in the environment decides
otherwise); CMake, which pip brings along where there is none. CMAKE_ARGS in the environment are
options of cmake, ATTNRUN_BUILD_BASE is the folder to build in. Out: attnrun/_attnrun.abi3.so,
attnrun/libattnrun.so.0 and attnrun/libattnrun_ort.so in the package; a free-threaded Python,
which has no stable ABI, gets an extension for itself alone. A source distribution holds the
sources in its folder source/."""
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
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
SOURCES = ("CMakeLists.txt", "LICENSE", "runtime", "loaders", "ops", "tools")
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def root():
    """The folder of the C sources."""
    for folder in (HERE / "source", HERE.parent.parent):
        if (folder / "runtime" / "attnrun.h").exists():
            return folder
    raise SystemExit(f"attnrun: {HERE} is without the C sources, which lie two folders above it "
                     "in a checkout: run `pip install ./tools/python` there")


ROOT = root()
# Nothing is written beside the sources.
BASE = Path(os.environ.get("ATTNRUN_BUILD_BASE", ROOT / "build" / "python-package"))
BASE.mkdir(parents=True, exist_ok=True)


def version():
    text = (ROOT / "runtime" / "attnrun.h").read_text(encoding="utf-8")
    return re.search(r'ATTNRUN_VERSION "([^"]+)"', text).group(1)


def there(library):
    """Whether pkg-config finds it."""
    return subprocess.run(["pkg-config", "--exists", library], check=False).returncode == 0


def demand_tools():
    """One sentence for all that the build needs and does not find, in place of its errors."""
    arguments = os.environ.get("CMAKE_ARGS", "")
    onnx = "ATTNRUN_ONNX=OFF" not in arguments
    compiler = (shlex.split(os.environ.get("CC", "")) or ["cc"])[0]
    missing = [f"{what} (Debian: {package})" for what, package, found in (
        ("cmake", "cmake", shutil.which("cmake")),
        (f"the C compiler {compiler}", "build-essential",
         shutil.which(compiler) or "toolchain" in arguments),
        ("make or ninja", "ninja-build", shutil.which("ninja") or shutil.which("make")),
        ("Python.h", "python3-dev", (Path(sysconfig.get_path("include")) / "Python.h").exists()),
        ("pkg-config", "pkg-config", shutil.which("pkg-config")),
        ("protoc-c", "protobuf-c-compiler", not onnx or shutil.which("protoc-c")),
        ("the library protobuf-c", "libprotobuf-c-dev",
         not onnx or shutil.which("pkg-config") and there("libprotobuf-c"))) if not found]
    if missing:
        raise SystemExit(f"attnrun: the build does not find {', '.join(missing)}")


class CMakeBuild(build_ext):
    """Both libraries, made by CMake, where the package will be."""

    def build_extension(self, ext):
        demand_tools()
        build = Path(self.build_temp).resolve() / "cmake"
        target = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        blas = os.environ.get("ATTNRUN_BLAS") or ("ON" if there("openblas") else "OFF")
        options = ["-DCMAKE_BUILD_TYPE=Release", f"-DATTNRUN_BLAS={blas}",
                   "-DATTNRUN_TOOLS=OFF", "-DATTNRUN_TESTS=OFF",
                   f"-DATTNRUN_PYTHON_INCLUDE={sysconfig.get_path('include')}"]
        options += shlex.split(os.environ.get("CMAKE_ARGS", ""))
        if shutil.which("ninja") and "CMAKE_GENERATOR" not in os.environ:
            options.append("-GNinja")
        self.run_cmake("-S", ROOT, "-B", build, *options)
        self.run_cmake("--build", build, "--target", "attnrun_python", "-j",
                       len(os.sched_getaffinity(0)))
        target.mkdir(parents=True, exist_ok=True)
        for library in (build / "python" / "attnrun").glob("*.so*"):
            place = target / library.name
            if library.name.startswith("_attnrun."):
                place = Path(self.get_ext_fullpath(ext.name)).resolve()
            shutil.copy2(library, place)
            subprocess.run(["strip", "--strip-unneeded", str(place)], check=False)
        shutil.copy2(ROOT / "LICENSE", target)

    @staticmethod
    def run_cmake(*words):
        """What it says stands above; a trace of Python's would tell nothing more."""
        if subprocess.run(["cmake", *map(str, words)], check=False).returncode != 0:
            raise SystemExit("attnrun: cmake failed, see above")


class Abi3Wheel(bdist_wheel):
    """One wheel for Python 3.11 and later; one for each free-threaded version."""

    def finalize_options(self):
        self.py_limited_api = False if FREE_THREADED else "cp311"
        super().finalize_options()


class WithSources(sdist):
    """A source distribution that builds without a checkout around it."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        leave_out = shutil.ignore_patterns("__pycache__", Path(base_dir).name)
        for name in SOURCES:
            place = Path(base_dir) / "source" / name
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place, ignore=leave_out)
            else:
                place.parent.mkdir(exist_ok=True)
                shutil.copy2(ROOT / name, place)


setup(version=version(), setup_requires=[] if shutil.which("cmake") else ["cmake>=3.20"],
      ext_modules=[Extension("attnrun._attnrun", [], py_limited_api=not FREE_THREADED)],
      options={"build": {"build_base": str(BASE)}, "egg_info": {"egg_base": str(BASE)}},
      cmdclass={"build_ext": CMakeBuild, "bdist_wheel": Abi3Wheel, "sdist": WithSources})
