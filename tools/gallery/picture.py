"""picture.py - a matrix of weights as a small indexed image.

`stored` makes what gallery.json keeps: indices into a ramp of colours, packed as a PNG file
packs its rows. `data_uri` puts such a file together, in the colours of a theme; nothing is
compressed then, so that the same JSON gives the same page everywhere. A weight of 0 is left
out (transparent): "not seen" and "hardly seen" differ. Scales:
    linear  from 0 (or the least, where all are much alike) to the 97th percentile
    log     four powers of ten up to the largest
    signed  blue above 0, orange below, both up to the 98th percentile of the sizes
"""
import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np

LIGHT = {"+": ("#c3d7f5", "#3a78d6", "#0a2a66"), "-": ("#f8d3b8", "#e0701a", "#6b2c00")}
DARK = {"+": ("#17365f", "#3f8cff", "#eaf3ff"), "-": ("#4a2a12", "#e8812e", "#ffe9d6")}
STEPS = 120  # colours of a ramp
POWERS = 4


@dataclass(frozen=True, eq=False)
class Picture:
    caption: str
    matrix: np.ndarray   # rows x columns
    scale: str = "linear"
    mark: tuple = ()     # row and column of a pixel to be outlined
    moved: bool = False  # how results move with operands, not weights


# ---- to be kept ----

def shares(matrix, scale):
    """(where each element is on the ramp, 0 … 1; its least and most; whether it was cut)"""
    sizes = np.abs(matrix)
    seen = sizes[sizes > 0]
    if seen.size == 0:
        raise ValueError("nothing is seen")
    if scale == "log":
        most = seen.max()
        return (1 + np.log10(np.maximum(sizes, 1e-300) / most) / POWERS,
                most / 10 ** POWERS, most, False)
    most = np.percentile(seen, 98 if scale == "signed" else 97)
    cut = most < seen.max() * 0.999
    whole = seen.min() > 0.3 * most and seen.size == sizes.size
    least = seen.min() if scale == "linear" and whole and seen.min() < most else 0.0
    low = -most if scale == "signed" else least
    return (sizes - least) / (most - least), low, most, cut


def indices(matrix, scale):
    share, *ends = shares(matrix, scale)
    steps = 1 + np.clip(np.round(share * (STEPS - 1)), 0, STEPS - 1)
    steps = np.where(matrix < 0, steps + STEPS, steps)
    return np.where(matrix != 0, steps, 0).astype(np.uint8), ends


def stored(picture):
    """The picture as JSON takes it."""
    matrix = np.asarray(picture.matrix, np.float64)
    found, (low, high, cut) = indices(matrix, picture.scale)
    rows = b"".join(b"\0" + row.tobytes() for row in found)
    kept = {"caption": picture.caption, "scale": picture.scale, "rows": matrix.shape[0],
            "columns": matrix.shape[1], "low": float(f"{low:.3g}"),
            "high": float(f"{high:.3g}"), "cut": bool(cut),
            "data": base64.b64encode(zlib.compress(rows, 9)).decode()}
    kept |= {"mark": list(picture.mark)} if picture.mark else {}
    return kept | ({"moved": True} if picture.moved else {})


def unpacked(kept):
    """The indices of what `stored` made."""
    rows = np.frombuffer(zlib.decompress(base64.b64decode(kept["data"])), np.uint8)
    return rows.reshape(kept["rows"], kept["columns"] + 1)[:, 1:]


# ---- to be shown ----

def ramp(stops):
    """STEPS colours through the stops, as bytes; no rounding that machines differ in."""
    rgb = [[int(stop[i:i + 2], 16) for i in (1, 3, 5)] for stop in stops]
    found = bytearray()
    for step in range(STEPS):
        part, rest = divmod(step * (len(stops) - 1), STEPS - 1)
        low, high = rgb[part], rgb[min(part + 1, len(rgb) - 1)]
        found += bytes((a * (STEPS - 1 - rest) + b * rest) // (STEPS - 1)
                       for a, b in zip(low, high))
    return bytes(found)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(
        ">I", zlib.crc32(kind + data))


def data_uri(kept, theme):
    """A PNG file: colour 0 is transparent, then the ramp above 0, then the one below."""
    size = struct.pack(">IIBBBBB", kept["columns"], kept["rows"], 8, 3, 0, 0, 0)
    colours = bytes(3) + ramp(theme["+"])
    if kept["scale"] == "signed":
        colours += ramp(theme["-"])
    file = b"\x89PNG\r\n\x1a\n" + b"".join([
        chunk(b"IHDR", size), chunk(b"PLTE", colours), chunk(b"tRNS", b"\0"),
        chunk(b"IDAT", base64.b64decode(kept["data"])), chunk(b"IEND", b"")])
    return "data:image/png;base64," + base64.b64encode(file).decode()
