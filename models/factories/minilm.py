"""all-MiniLM-L6-v2 with its real weights: BertModel of transformers, the mean over the mask
and a norm. The file is models/minilm-graph.onnx, filled as tools/minilm/fill.py does; it was
exported by tools/minilm/export_graph.py."""
import subprocess
import sys
from pathlib import Path

import torch

from . import _parts as parts

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "minilm"
sys.path.append(str(TOOLS))
from export_graph import SentenceEncoder  # noqa: E402
from fill import package_folder  # noqa: E402


def tokens(batch, length):
    ids = parts.ids(batch, length, low=1000, high=30000)
    ids[:, 0] = 101  # [CLS]
    mask = torch.ones_like(ids)
    for row, count in enumerate((48, 31, 7, 1) if batch == 4 else ()):
        mask[row, count:] = 0
    return ids * mask, mask


def write(path):
    """In place of an export."""
    subprocess.run([sys.executable, str(TOOLS / "fill.py"), str(path)], check=True,
                   stdout=subprocess.DEVNULL)


def build():
    module = SentenceEncoder(package_folder()).eval()
    return module, module, [tokens(*size) for size in ((1, 16), (1, 128), (1, 512), (4, 48))]
