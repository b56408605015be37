"""patterns.py - the pictures of systems over tokens: Runner -> [Picture], a function a system.

All see the same 64 tokens: eight runs of eight, each run of one of four topics (A B C B A D
C D), so that content shows as squares and position as bands. Values are one-hot rows, so
that row i of the result is the weight of each key. Where an operator has no values to weigh,
the picture is how much row i moves with token j.
"""
import numpy as np
from onnx import helper

from operators import sensitivity
from picture import Picture

N, DIM = 64, 64
TOPICS = (0, 1, 2, 1, 0, 3, 2, 3)
ONE_HOT = np.eye(N)[None]


def tokens(seed=0, order=TOPICS, strength=3.4, noise=0.35):
    """(64, 64): a direction for each topic, and what is the token's own."""
    draw = np.random.default_rng(seed)
    topics = np.linalg.qr(np.random.default_rng(7).standard_normal((DIM, DIM)))[0][:4]
    own = draw.standard_normal((N, DIM)) * noise
    return topics[np.repeat(order, N // len(order))] * strength + own


def topics_of_content():
    return np.linalg.qr(np.random.default_rng(7).standard_normal((DIM, DIM)))[0][:4]


X = tokens()
QKV = {"Q": X[None], "K": tokens(1)[None], "V": ONE_HOT}
DECODER = {**QKV, "Q": tokens(2, TOPICS[::-1])[None]}  # other tokens, the other way round
ONE = {"q_num_heads": 1}
BOTH = {"q_num_heads": 1, "kv_num_heads": 1}


def linear(caption, matrix):
    return Picture(caption, np.asarray(matrix).reshape(-1, np.shape(matrix)[-1]))


def dense(runner, operands=None, mask=None, **attributes):
    given = dict(operands or QKV)
    if mask is not None:
        given["mask"] = mask
    return runner.run("Attention", given, "", **BOTH, **attributes)[0]


def transformer(runner):
    return [linear("encoder", dense(runner)),
            linear("decoder, causal", dense(runner, is_causal=1)),
            linear("decoder to encoder", dense(runner, DECODER))]


def bert(runner):
    seen = np.arange(N) < 52
    return [linear("the last 12 keys are padding", dense(runner, mask=seen[None, None, None]))]


def linear_attention(runner, causal=False):
    q = {**QKV, "Q": QKV["Q"] * 2, "K": QKV["K"] * 2}
    return [linear("linear" + (", causal" if causal else ""),
                   runner.run("LinearAttention", q, is_causal=int(causal), **ONE)),
            linear("dense attention of the same", dense(runner, is_causal=int(causal)))]


def smooth(rows, columns, width):
    """Bumps: column c is about row c * rows / columns; each column sums to 1."""
    at = (np.arange(columns) + 0.5) * rows / columns
    bump = np.exp(-0.5 * ((np.arange(rows)[:, None] + 0.5 - at) / width) ** 2)
    return bump / bump.sum(0)


def in_blocks(runner, block, before=1):
    return runner.run("ChunkedLocalAttention", QKV, chunk_size=block, chunks_before=before,
                      is_causal=1, **ONE)


def linformer(runner):
    slots = smooth(N, 8, 2.5)
    return [linear("8 slots", runner.run("LinformerAttention", {**QKV, "E": slots}, **ONE))]


def reformer(runner):
    draw = np.random.default_rng(5)
    alike = tokens(noise=0.12)

    def picture(rounds, **more):
        turns = draw.standard_normal((1, DIM, rounds, 4))
        return runner.run("ReformerAttention", {"QK": alike[None], "V": ONE_HOT,
                                                "rotations": turns},
                          num_hashes=rounds, num_buckets=[8], chunk_length=8, scale=0.5,
                          self_value=-2.0, **more, **ONE)
    return [linear("1 round of hashing", picture(1)), linear("4 rounds", picture(4)),
            linear("4 rounds, causal", picture(4, is_causal=1)),
            linear("the local layers, chunks of 8", in_blocks(runner, 8))]


def global_at(*places):
    mask = np.zeros((1, N), bool)
    mask[0, list(places)] = True
    return mask


def longformer(runner):
    near = {**QKV, "key_mask": None, "global_mask": global_at(0, 24)}
    return [linear("±5, tokens 0 and 24 global",
                   runner.run("LongformerAttention", near, window=[5], **ONE)),
            linear("±5, each second token",
                   runner.run("LongformerAttention", QKV, window=[5], dilation=[2], **ONE))]


def led(runner):
    near = {**QKV, "key_mask": None, "global_mask": global_at(0)}
    return [linear("encoder: ±5, first token global",
                   runner.run("LongformerAttention", near, window=[5], **ONE)),
            linear("decoder, causal", dense(runner, is_causal=1)),
            linear("decoder to encoder", dense(runner, DECODER))]


def big_bird(runner):
    block, draw = 4, np.random.default_rng(3)
    blocks = N // block
    rows = [draw.choice([b for b in range(1, blocks - 1) if abs(b - i) > 1], 2, False)
            for i in range(1, blocks - 1)]
    return [linear("blocks of 4: window, first and last, 2 random",
                   runner.run("BigBirdAttention",
                              {**QKV, "rand_blocks": np.array(rows, np.int32)[None]},
                              block_size=block, **ONE))]


def synthesizer(runner):
    draw = np.random.default_rng(2)

    def picture(component, **operands):
        order = ("q", "k", "hid", "W2", "b2", "a", "b", "R", "R1", "R2")
        given = {"V": ONE_HOT, **{name: operands.get(name) for name in order}}
        return linear(component.replace("_", " "), runner.run(
            "SyntheticAttention", given, components=[component], **ONE))
    low = draw.standard_normal((2, 1, N, 4)) * 0.8
    table = draw.standard_normal((1, N, N))
    hidden = np.maximum(X @ draw.standard_normal((DIM, 16)) * 0.3, 0)
    parts = [X @ draw.standard_normal((DIM, 8)) * 0.25 for _ in range(2)]
    return [picture("dense", hid=hidden[None], W2=draw.standard_normal((1, 16, N)) * 0.6,
                    b2=np.zeros((1, N))),
            picture("random", R=table),
            picture("factorized_dense", a=parts[0][None], b=parts[1][None]),
            picture("factorized_random", R1=low[0], R2=low[1])]


def sparse_transformer(runner, *patterns):
    return [linear(caption, runner.run("SparseTransformerAttention", QKV, pattern=[pattern],
                                       stride=8, summary=2, **ONE))
            for caption, pattern in patterns]


def sparse_strided(runner):
    return sparse_transformer(runner, ("a head of the last 8", "local"),
                              ("a head of each 8th", "strided"),
                              ("both in one head", "strided_merged"))


def sparse_fixed(runner):
    return sparse_transformer(runner, ("blocks of 8, ends of 2", "fixed"))


def top_k(runner):
    return [linear("the 8 largest scores of a row",
                   runner.run("TopKAttention", QKV, k=8, **ONE))]


def sha_rnn(runner):
    """The memory is keys and values at once: content, then a one-hot row."""
    draw = np.random.default_rng(4)
    queries = np.concatenate([X, np.zeros((N, N))], 1)[None]
    memory = np.concatenate([tokens(1), np.eye(N)], 1)[None]
    gate = np.concatenate([1 / (1 + np.exp(-draw.standard_normal(DIM))), np.ones(N)])
    y = runner.run("SingleHeadAttention", {"Q": queries, "memory": memory,
                                           "q_gate": gate * 2.5}, is_causal=1)
    return [linear("one head, causal", y[0, :, DIM:]),
            Picture("the LSTM: how states move with tokens",
                    recurrent(runner, "LSTM", "forward", 4), "log", moved=True)]


def lama(runner):
    draw, heads = np.random.default_rng(6), 16
    weights = runner.run("LAMAAttention", {
        "X": X[None], "P": draw.standard_normal((DIM, heads)),
        "Q": draw.standard_normal((DIM, heads))}, outputs=("Y", "weights"))
    return [linear("16 heads of rank 1 (rows) over the tokens", weights[0])]


def orthogonal(draw, rows):
    blocks = [np.linalg.qr(draw.standard_normal((DIM, DIM)))[0] for _ in range(rows // DIM)]
    lengths = np.linalg.norm(draw.standard_normal((rows, DIM)), axis=1)
    return np.concatenate(blocks) * lengths[:, None]


def performer(runner, causal=False):
    given = {**QKV, "projection": orthogonal(np.random.default_rng(8), 256)}
    return [linear("256 random features", runner.run("PerformerAttention", given,
                                                     is_causal=int(causal), **ONE)),
            linear("dense attention, which it is near to",
                   dense(runner, is_causal=int(causal)))]


def routing(runner):
    means = topics_of_content()[None]
    return [linear("4 clusters of 16",
                   runner.run("RoutingAttention", {**QKV, "means": means}, window=16, **ONE)),
            linear("the same, causal",
                   runner.run("RoutingAttention", {**QKV, "means": means}, window=16,
                              is_causal=1, **ONE)),
            linear("the local heads, chunks of 16", in_blocks(runner, 16))]


def sinkhorn(runner):
    """What is brought to a bucket: any but itself, so logits of the own bucket are low."""
    mean = X.reshape(8, 8, DIM).mean(1)
    logits = mean @ mean.T / 2 - 100 * np.eye(8)
    given = {**QKV, "sort_logits": logits[None, None]}
    return [linear("buckets of 8: its own and the best one",
                   runner.run("SinkhornAttention", given, bucket_size=8, **ONE)),
            linear("sorted by Sinkhorn's iteration", runner.run(
                "SinkhornAttention", {**given, "sort_logits": mean[None, None] @ mean.T},
                bucket_size=8, mode="sinkhorn", temperature=0.75, **ONE))]


def compressed(runner):
    """The convolution is the mean of four tokens, channel by channel."""
    mean = np.eye(DIM)[:, :, None] * np.full(4, 0.25)
    return [linear("convolution of 4", runner.run("CompressedAttention",
                                                  {**QKV, "Wk": mean}, compression=4, **ONE)),
            linear("the same, causal", runner.run("CompressedAttention", {**QKV, "Wk": mean},
                                                  compression=4, is_causal=1, **ONE)),
            linear("the layers of blocks, of 16", in_blocks(runner, 16, 0))]


def fastformer(runner):
    draw = np.random.default_rng(9)
    weights = {name: draw.standard_normal((DIM, 1)) for name in ("Wq", "Wk")}

    def apply(x):
        return runner.run("FastformerAttention", {"Q": x, "K": x, "V": x, **weights},
                          **ONE)
    return [Picture("how the result moves with each token", sensitivity(apply, X), "log",
                    moved=True)]


def alike():
    """Units in pairs, tanh(u + 1) - tanh(u - 1) with u = w . (query - key): they are
    largest where both are alike, as training makes them. The bias is in the query."""
    draw, pairs = np.random.default_rng(10), 96
    w = draw.standard_normal((DIM, pairs)) * 0.25
    signs = np.repeat([1.0, -1.0], pairs)
    return np.tile(DECODER["Q"] @ w, 2) + signs, -np.tile(QKV["K"] @ w, 2), signs * 0.12


def bahdanau(runner):
    query, keys, v = alike()
    return [linear("decoder to encoder", runner.run("AdditiveAttention", {
        "query": query, "keys": keys, "v": v, "bias": None, "values": ONE_HOT}))]


def recurrent(runner, op, direction, gates, hidden=48):
    """How states move with tokens."""
    draw, ways = np.random.default_rng(16), 2 if direction == "bidirectional" else 1
    given = {"W": draw.standard_normal((ways, gates * hidden, DIM)) / DIM ** 0.5,
             "R": draw.standard_normal((ways, gates * hidden, hidden)) / hidden ** 0.5}
    given = {name: value.astype(np.float32) for name, value in given.items()}
    node = helper.make_node(op, ["x", "W", "R"], ["Y"], hidden_size=hidden,
                            direction=direction)

    def apply(x):
        y = runner.nodes([node], {"x": np.ascontiguousarray(x.transpose(1, 0, 2)), **given})
        return y.transpose(2, 0, 1, 3).reshape(len(x), N, -1)
    return sensitivity(apply, X)


def bahdanau_encoder(runner):
    return [Picture("how annotations move with words",
                    recurrent(runner, "GRU", "bidirectional", 3), "log", moved=True)]


ROWS = {"query": DECODER["Q"], "keys": QKV["K"], "values": ONE_HOT}


def luong_dot(runner):
    return [linear("decoder to encoder", runner.run("LuongAttention", ROWS, scale=0.25))]


def luong_general(runner):
    """W learned that tokens of a topic go with those of the next one."""
    topics = topics_of_content()
    turn = topics.T @ np.roll(topics, 1, axis=0)
    return [linear("W sends a topic to the next one", runner.run(
        "LuongAttention", {**ROWS, "query": ROWS["query"] @ turn}, scale=0.25))]


def luong_concat(runner):
    query, keys, v = alike()
    return [linear("decoder to encoder", runner.run(
        "LuongAttention", {"query": query, "keys": keys, "values": ONE_HOT, "pos": None,
                           "v": v}, score="concat"))]


def luong_local(runner):
    steps = np.arange(N) / N
    places = (steps + 0.12 * np.sin(2 * np.pi * steps * 1.5))[None]
    return [linear("±8 around a predicted place", runner.run(
        "LuongAttention", {**ROWS, "pos": np.clip(places, 0, 0.99)}, mode="local_p",
        window=8, scale=0.25))]


def hierarchical(runner):
    """Eight sentences of eight words: the weights of words, and of their sentences."""
    draw = np.random.default_rng(11)
    weights = {"W": draw.standard_normal((DIM, DIM)) * 0.5,
               "c": draw.standard_normal(DIM) * 0.25}

    def pool(x):
        return [runner.run("AttentionPooling", {"X": x, **weights}, outputs=names)
                for names in (("Y",), ("Y", "weights"))]
    words = tokens(strength=1.5, noise=0.6).reshape(8, 8, DIM)
    sentences, word_weights = pool(words)
    sentence_weights = pool(sentences[None])[1]
    return [linear("words (columns) of a sentence (row)", word_weights),
            linear("sentences of the document", sentence_weights),
            linear("all 64 words in the document",
                   (word_weights * sentence_weights[0][:, None]).reshape(1, -1))]


def factorization_machine(runner):
    draw, fields = np.random.default_rng(12), 24
    weights = runner.run("AFMPooling", {
        "E": draw.standard_normal((1, fields, 16)) * 0.75,
        "W": draw.standard_normal((16, 16)) * 0.5,
        "h": draw.standard_normal(16) * 0.4}, outputs=("Y", "weights"))
    pairs = np.zeros((fields, fields))
    pairs[np.triu_indices(fields, 1)] = weights[0]
    return [linear("pairs of 24 fields", pairs)]


def fourier(runner):
    """One sample a token: what its first channel adds to the first channel of all."""
    x = np.zeros((N, N, DIM))
    x[np.arange(N), np.arange(N), 0] = 1
    y = runner.run("FourierMix", {"X": x})
    return [Picture("what a token adds to others, first channel", y[:, :, 0].T, "signed")]


def gating_unit(runner):
    """A matrix over tokens as gMLP learns them: about the same along diagonals."""
    away = np.arange(N)[:, None] - np.arange(N)
    matrix = np.cos(away * 0.7) * np.exp(-np.abs(away) / 9)
    half = np.random.default_rng(13).standard_normal((N, DIM))

    def apply(gate):
        both = np.concatenate([np.broadcast_to(half, gate.shape), gate], 2)
        return runner.run("SpatialGatingUnit", {
            "X": both, "gamma": np.ones(DIM), "beta": np.zeros(DIM), "Ws": matrix[None],
            "bs": np.ones((1, N))})
    return [Picture("how the gated half moves with each token", sensitivity(apply, X),
                    moved=True)]


def mixer(runner):
    draw, hidden = np.random.default_rng(14), 24
    first = smooth(N, hidden, 2.0).T * draw.choice([-1, 1], (hidden, 1)) * 4
    second = smooth(N, hidden, 3.0)[:, draw.permutation(hidden)] * 4

    def apply(x):
        return runner.run("TokenMixing", {"X": x, "W1": first, "W2": second})
    return [Picture("how the result moves with each token", sensitivity(apply, X),
                    moved=True)]


def grouped_queries(runner):
    """Four query heads, two heads of keys, rotary positions. The first keys are alike, so
    that distance alone counts; the second have their topics where rotation is slow."""
    draw, heads, half = np.random.default_rng(15), 4, DIM // 2
    angle = np.arange(N)[:, None] * 10000.0 ** (-np.arange(half) / half)
    slow = draw.standard_normal((4, DIM)) * (np.arange(DIM) % half > 18)
    topics = slow[np.repeat(TOPICS, N // len(TOPICS))]
    near = np.ones((N, DIM)) * (np.arange(DIM) % half < 14)
    given = {"k": np.concatenate([near, topics + 0.1 * draw.standard_normal((N, DIM))], 1),
             "q": np.concatenate([near * 0.8, near * 1.4, topics * 0.7, topics * 1.6], 1)}
    given = {name: value[None] for name, value in given.items()}
    given |= {"cos": np.cos(angle)[None], "sin": np.sin(angle)[None],
              "v": np.tile(ONE_HOT, (1, 1, 2))}
    nodes = [helper.make_node("RotaryEmbedding", [x, "cos", "sin"], [f"{x}r"], num_heads=h)
             for x, h in (("q", heads), ("k", 2))]
    nodes.append(helper.make_node("Attention", ["qr", "kr", "v"], ["Y"], q_num_heads=heads,
                                  kv_num_heads=2, is_causal=1))
    y = runner.nodes(nodes, {k: v.astype(np.float32) for k, v in given.items()})
    by_head = y[0].reshape(N, heads, N)
    return [linear(f"query head {h + 1}, key head {h // 2 + 1}", by_head[:, h])
            for h in range(heads)]


def gated_delta(runner):
    """Keys of length 1, as the layer makes them; it forgets more where a run begins."""
    unit = [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (X, tokens(1))]
    decay = np.full((1, N, 1), -0.02)
    decay[0, ::8] = -0.35
    y = runner.run("LinearAttention", {
        "query": unit[0][None], "key": unit[1][None], "value": ONE_HOT, "past": None,
        "decay": decay, "beta": np.full((1, N, 1), 0.6)}, "", opset=27, scale=1.0,
        update_rule="gated_delta", **BOTH)
    return [Picture("weights of values, causal", y[0], "signed")]
