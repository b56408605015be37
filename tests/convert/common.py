"""What the tests of the converter share: both runtimes, and a count of failures."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy
import onnxruntime

ROOT, ATTNRUN = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(ROOT / "tools" / "convert"))
os.environ["XDG_CACHE_HOME"] = str(Path(ATTNRUN).resolve().parent / "cache")


def run_converter(*arguments):
    """(exit code, standard output, standard error) of a command line of the converter."""
    from attnrun_convert import cli

    out, err = io.StringIO(), io.StringIO()
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main([*map(str, arguments), "--attnrun", ATTNRUN])
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


def in_onnxruntime(path, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options,
                                           providers=["CPUExecutionProvider"])
    return session.run(None, {name: t.numpy() for name, t in feeds.items()})


def in_attnrun(path, feeds, names, *options):
    """Outputs `names` of attnrun's command line."""
    with tempfile.TemporaryDirectory() as folder:
        given = []
        for i, (name, tensor) in enumerate(feeds.items()):
            numpy.save(f"{folder}/{i}.npy", tensor.numpy())
            given += ["-i", f"{name}={folder}/{i}.npy"]
        result = subprocess.run([ATTNRUN, "run", str(path), *given, *options, "-o",
                                 f"{folder}/out.npz"], capture_output=True, text=True,
                                timeout=300)
        if result.returncode != 0:
            raise AssertionError(f"attnrun run: {result.stderr.strip()}")
        with numpy.load(f"{folder}/out.npz") as file:
            return [file[name] for name in names]


def close(got, want, rtol=1e-4, atol=1e-5, what=""):
    assert len(got) == len(want), f"{what}: {len(got)} outputs, expected {len(want)}"
    for a, b in zip(got, want):
        numpy.testing.assert_allclose(a, b.detach().numpy(), rtol, atol, err_msg=what)


def main(tests):
    """Runs each test with a folder of its own; the third argument names some of them."""
    failed = 0
    for test in tests:
        if sys.argv[3:] and test.__name__ not in sys.argv[3:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(Path(folder))
                print(f"ok      {test.__name__}")
            except Exception:  # noqa: BLE001 - the others are tried, too
                failed += 1
                print(f"FAILED  {test.__name__}")
                traceback.print_exc(file=sys.stdout)
    sys.exit(1 if failed else 0)
