"""decoder.py - a Llama shape of half a billion parameters with random weights of few bits, as
onnxruntime_genai's builder writes it: one token for a cache, from its embedding to logits."""
import numpy as np

LAYERS, HIDDEN, INNER, WORDS = 24, 896, 4864, 151936
HEADS, KV_HEADS, DIM, POSITIONS = 14, 2, 64, 2048
KV = KV_HEADS * DIM
MATRICES = {"q": (HIDDEN, HIDDEN), "k": (HIDDEN, KV), "v": (HIDDEN, KV), "o": (HIDDEN, HIDDEN),
            "gate": (HIDDEN, INNER), "up": (HIDDEN, INNER), "down": (INNER, HIDDEN)}


def weights():
    """Elements of all matrices."""
    return LAYERS * sum(k * n for k, n in MATRICES.values()) + HIDDEN * WORDS


def weight_bytes(bits, block):
    """With a scale of 4 bytes a block."""
    return weights() * bits // 8 + weights() // block * 4


def flops(past):
    return 2 * weights() + 4 * LAYERS * HIDDEN * (past + 1)


def feed(past):
    rng = np.random.default_rng(0)
    given = {"embedding": rng.standard_normal((1, 1, HIDDEN), np.float32),
             "attention_mask": np.ones((1, past + 1), np.int64)}
    for i in range(2 * LAYERS):
        given[f"past_{'kv'[i % 2]}{i // 2}"] = rng.standard_normal(
            (1, KV_HEADS, past, DIM), np.float32)
    return given


class Writer:
    def __init__(self, bits, block):
        self.bits, self.block, self.rng = bits, block, np.random.default_rng(7)
        self.nodes, self.constants = [], []

    def constant(self, name, value):
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op, inputs, outputs, domain="com.microsoft", **attributes):
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def product(self, x, name, k, n):
        blocks = k // self.block
        q = self.rng.integers(0, 256, (n, blocks, self.block * self.bits // 8), np.uint8)
        scales = self.rng.uniform(0.5, 1, (n, blocks)) / (k**0.5 * 2**(self.bits - 1))
        return self.node("MatMulNBits", [
            x, self.constant(f"{name}_q", q),
            self.constant(f"{name}_s", scales.astype(np.float32))], [f"{name}_y"],
            K=k, N=n, bits=self.bits, block_size=self.block)

    def lengths(self, mask):
        """seqlens_k and total_length, as the builder takes them from the attention mask."""
        one = self.constant("one", np.array([1], np.int64))
        seen = self.node("ReduceSum", [mask, one], ["seen"], "", keepdims=0)
        self.node("Cast", [self.node("Sub", [seen, one], ["last"], "")], ["seqlens_k"], "", to=6)
        axis = self.constant("axis", np.array(1, np.int64))
        sizes = self.node("Shape", [mask], ["sizes"], "")
        total = self.node("Gather", [sizes, axis], ["tokens"], "", axis=0)
        self.node("Cast", [total], ["total_length"], "", to=6)

    def norm(self, name):
        return self.constant(name, np.ones(HIDDEN, np.float32))

    def layer(self, i, x, residual):
        def product(y, which):
            return self.product(y, f"{which}{i}", *MATRICES[which])

        past = [f"past_{c}{i}" for c in "kv"]
        self.node("GroupQueryAttention",
                  [product(x, "q"), product(x, "k"), product(x, "v"), *past, "seqlens_k",
                   "total_length", "cos", "sin"],
                  [f"attention{i}", *(p.replace("past", "present") for p in past)],
                  num_heads=HEADS, kv_num_heads=KV_HEADS, do_rotary=1)
        x, residual = self.add_norm(f"a{i}", residual, product(f"attention{i}", "o"))
        gate = product(x, "gate")
        self.node("Sigmoid", [gate], [f"sigmoid{i}"], "")
        self.node("Mul", [gate, f"sigmoid{i}"], [f"silu{i}"], "")
        self.node("Mul", [f"silu{i}", product(x, "up")], [f"inner{i}"], "")
        return self.add_norm(f"b{i}", residual, product(f"inner{i}", "down"))

    def add_norm(self, name, residual, x):
        self.node("SkipSimplifiedLayerNormalization",
                  [residual, x, self.norm(f"{name}_w")], [f"{name}_n", "", "", f"{name}_r"],
                  epsilon=1e-6)
        return f"{name}_n", f"{name}_r"


def write(path, bits, block):
    import onnx
    from onnx import TensorProto, helper

    w = Writer(bits, block)
    angles = np.arange(POSITIONS)[:, None] / 1e4**(np.arange(0, DIM, 2) / DIM)
    w.constant("cos", np.cos(angles).astype(np.float32))
    w.constant("sin", np.sin(angles).astype(np.float32))
    x = w.node("SimplifiedLayerNormalization", ["embedding", w.norm("first_w")], ["first"], "",
               axis=-1, epsilon=1e-6, stash_type=1)
    w.lengths("attention_mask")
    residual = "embedding"
    for i in range(LAYERS):
        x, residual = w.layer(i, x, residual)
    logits = w.product(x, "head", HIDDEN, WORDS)
    caches = [f"{{}}_{c}{i}" for i in range(LAYERS) for c in "kv"]

    def value(name, dims, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, dims)

    inputs = [value("embedding", [1, 1, HIDDEN]),
              value("attention_mask", [1, "total"], TensorProto.INT64)]
    inputs += [value(c.format("past"), [1, KV_HEADS, "past", DIM]) for c in caches]
    outputs = [value(logits, [1, 1, WORDS])]
    outputs += [value(c.format("present"), [1, KV_HEADS, "total", DIM]) for c in caches]
    graph = helper.make_graph(w.nodes, "decoder", inputs, outputs, w.constants)
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    onnx.save(model, path)
