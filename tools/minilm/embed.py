#!/usr/bin/env python3
"""Embed sentences with MiniLM through the command line and print their similarities.

usage: embed.py ATTNRUN MODEL.onnx [SENTENCE...]

Tokens by the package's tokenizer.json; one run of a padded batch with its mask; the
cosine of two sentences is the product of their embeddings, which have length 1.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
from tokenizers import Tokenizer

from fill import package_folder

SENTENCES = [
    "A man is eating pasta in a small restaurant.",
    "Somebody has dinner at an Italian place.",
    "The library runs neural networks on a processor.",
]


def tokens_of(sentences):
    """ids and mask, int64 (sentences, longest)."""
    tokenizer = Tokenizer.from_file(os.path.join(package_folder(), "tokenizer.json"))
    tokenizer.enable_truncation(512)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(sentences)
    return (np.array([e.ids for e in encoded], dtype=np.int64),
            np.array([e.attention_mask for e in encoded], dtype=np.int64))


def embed(attnrun, model, sentences):
    ids, mask = tokens_of(sentences)
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/ids.npy", ids)
        np.save(f"{folder}/mask.npy", mask)
        subprocess.run(
            [attnrun, "run", model, "-i", f"input_ids={folder}/ids.npy",
             "-i", f"attention_mask={folder}/mask.npy", "-o", f"{folder}/out.npz"],
            check=True, stdout=subprocess.DEVNULL)
        with np.load(f"{folder}/out.npz") as outputs:
            return outputs["sentence_embedding"]


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    sentences = sys.argv[3:] or SENTENCES
    vectors = embed(sys.argv[1], sys.argv[2], sentences)
    cosine = vectors @ vectors.T
    print("cosine similarity of the sentence embeddings")
    for i, sentence in enumerate(sentences):
        row = "  ".join(f"{value:6.3f}" for value in cosine[i])
        print(f"  {i + 1}  {row}   {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
