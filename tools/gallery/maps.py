"""maps.py - the pictures of systems over maps: Runner -> [Picture], a function a system.

All see the same map of 16 x 16 pixels: a disc and a bar on a ground, each with channels of
its own. A picture is what one pixel, outlined, sees: the weights of all pixels, or how much
the result at this pixel moves with each of them.
"""
import numpy as np
from onnx import helper

from operators import sensitivity, to_map, to_tokens
from picture import Picture

SIDE, CHANNELS = 16, 32
PIXELS = SIDE * SIDE
SEEN = {"disc": (5, 5), "bar": (11, 12), "ground": (12, 4)}


def kinds():
    """(16, 16): 1 in the disc, 2 in the bar, else 0."""
    row, column = np.mgrid[:SIDE, :SIDE]
    disc = (row - 5) ** 2 + (column - 5) ** 2 <= 12
    bar = (row >= 7) & (column >= 11) & (column <= 13)
    return disc + 2 * bar


def pixels(noise=0.3):
    """(256, channels)"""
    draw = np.random.default_rng(20)
    own = draw.standard_normal((3, CHANNELS))
    return own[kinds().ravel()] + noise * draw.standard_normal((PIXELS, CHANNELS))


X = pixels()


def views(matrix, scale="linear"):
    """Rows of a matrix of pixels by pixels, as maps; a scale "log" is of what moves."""
    return [Picture(f"from a pixel of the {name}",
                    matrix[row * SIDE + column].reshape(SIDE, SIDE), scale, (row, column),
                    scale == "log") for name, (row, column) in SEEN.items()]


def weights(draw, **shapes):
    return {name: draw.standard_normal(shape) * shape[-1] ** -0.5
            for name, shape in shapes.items()}


def moved(apply):
    """How pixels move with pixels; apply works on maps."""
    return sensitivity(lambda x: to_tokens(apply(to_map(x, SIDE))), X)


def squeeze_excite(runner):
    given = weights(np.random.default_rng(21), w1=(8, CHANNELS))
    more = weights(np.random.default_rng(22), w2=(CHANNELS, 8))
    return views(moved(lambda x: runner.run(
        "SqueezeExcite", {"x": x, **given, "b1": None, **more})), "log")


def cbam(runner):
    draw = np.random.default_rng(23)
    given = {**weights(draw, w1=(8, CHANNELS)), "b1": None,
             **weights(draw, w2=(CHANNELS, 8)), "b2": None,
             "ws": draw.standard_normal((1, 2, 7, 7)) * 0.3}
    return views(moved(lambda x: runner.run("CBAM", {"x": x, **given})), "log")


def selective_kernel(runner):
    """Convolutions of 3 x 3 with Relu, one of dilation 2, and what is selected of both."""
    draw, d = np.random.default_rng(25), 8
    given = {f"kernel{k}": draw.standard_normal((CHANNELS, CHANNELS, 3, 3)) / (
        3 * CHANNELS ** 0.5) for k in (1, 2)}
    given |= weights(draw, w1=(d, CHANNELS), wsel=(2, CHANNELS, d))
    given = {name: value.astype(np.float32) for name, value in given.items()}
    nodes = []
    for k in (1, 2):
        nodes += [helper.make_node("Conv", ["x", f"kernel{k}"], [f"c{k}"], pads=[k] * 4,
                                   dilations=[k, k]),
                  helper.make_node("Relu", [f"c{k}"], [f"f{k}"])]
    nodes.append(helper.make_node("SKSelect", ["w1", "", "wsel", "", "", "f1", "f2"], ["Y"],
                                  domain="attnrun"))
    return views(moved(lambda x: runner.nodes(nodes, {"x": x, **given})), "log")


def with_one_hot():
    """Content, then a channel for each pixel: what is summed of these are weights."""
    return to_map(np.concatenate([X, np.eye(PIXELS)], 1)[None], SIDE)


def of_content(matrix):
    """A product that reads the content alone."""
    return np.concatenate([matrix, np.zeros((len(matrix), PIXELS))], 1)


def of_one_hot(rows):
    """A product that hands the one-hot channels on, with zeros in front of them."""
    return np.eye(rows, CHANNELS + PIXELS, CHANNELS - (rows - PIXELS))


def sagan(runner):
    draw, x = np.random.default_rng(26), with_one_hot()
    turn = draw.standard_normal((16, CHANNELS)) * 0.1
    y = runner.run("SAGANAttention", {
        "x": x, "wq": of_content(turn), "bq": None, "wk": of_content(turn), "bk": None,
        "wv": of_one_hot(CHANNELS + PIXELS), "bv": None, "gamma": np.ones(1)})
    return views(to_tokens(y - x)[0, :, CHANNELS:])


def external(runner):
    """Values are one-hot, so that the result is the weight of each slot."""
    slots = 16
    y = runner.run("ExternalAttention", {
        "x": to_map(X[None], SIDE),
        "mk": np.random.default_rng(27).standard_normal((slots, CHANNELS)) * 0.25,
        "mv": np.eye(slots)})
    best = [int(np.argmax([y[0, s][kinds() == k].mean() for s in range(slots)]))
            for k in range(3)]
    return [Picture(f"slot {slot + 1} of 16: its weight at each pixel", y[0, slot])
            for slot in dict.fromkeys(best)]


def halo(runner):
    draw, block, border = np.random.default_rng(28), 4, 2
    turn = draw.standard_normal((PIXELS, CHANNELS)) * 0.1
    reach = 2 * (block + 2 * border) - 1
    near = -np.abs(np.arange(reach) - reach // 2)[:, None] * 0.004 * np.ones(PIXELS)
    y = runner.run("HaloAttention", {
        "x": with_one_hot(), "wq": of_content(turn), "wk": of_content(turn),
        "wv": of_one_hot(PIXELS), "rel_h": near, "rel_w": near},
        num_heads=1, block_size=block, halo_size=border)
    return views(to_tokens(y)[0])


def involution(runner):
    draw, k = np.random.default_rng(29), 7
    away = (np.arange(k) - k // 2) ** 2
    shape = np.exp(-0.15 * (away[:, None] + away)).ravel()
    y = runner.run("Involution", {
        "x": with_one_hot(),
        "w1": of_content(draw.standard_normal((16, CHANNELS)) * 0.3), "b1": np.zeros(16),
        "w2": draw.standard_normal((k * k, 16)) * 0.08, "b2": shape}, kernel_size=k,
        groups=1)
    return views(to_tokens(y)[0, :, CHANNELS:], "signed")
