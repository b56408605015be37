"""A test folder as `attnrun check` reads it: model.onnx, tol.txt, test_data_set_N."""
import os
import shutil
import tempfile
from pathlib import Path

import onnx

from .errors import FileError
from .verify import write_tensor


def write(folder, model, cases, rtol, atol):
    """Copies the model, with the file of its weights; there is never half a folder."""
    folder, model = Path(folder), Path(model)
    if folder.exists() and any(folder.iterdir()) and not (folder / "model.onnx").exists():
        raise FileError(f"{folder} exists and is not a test folder, so it is not changed")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".attnrun-"))
        try:
            _fill(made, model, cases, rtol, atol)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(made, folder)
            folder.chmod(0o755)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise FileError(f"cannot write {folder}: {error.strerror or error}") from error


def _fill(folder, model, cases, rtol, atol):
    shutil.copyfile(model, folder / "model.onnx")
    for name in external_files(model):
        shutil.copyfile(model.parent / name, folder / name)
    (folder / "tol.txt").write_text(f"{rtol:g} {atol:g}\n")
    for number, case in enumerate(cases):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        for word, arrays in (("input", case.feeds.values()), ("output", case.wanted)):
            for i, array in enumerate(arrays):
                write_tensor(data / f"{word}_{i}.pb", array)


def external_files(model):
    """Names of the files beside a model that hold its weights."""
    proto = onnx.load(model, load_external_data=False)
    return sorted({entry.value for tensor in proto.graph.initializer
                   for entry in tensor.external_data if entry.key == "location"})
