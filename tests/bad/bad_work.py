"""bad_work.py - small files and empty inputs that ask for much work, and texts with a NUL."""
from bad_case import INT64, helper, loaded, model_case, node_case, np, simple


def f32(*shape):
    return np.ones(shape, np.float32)


def ml_case(name, what, exits, says, op, opset, x, **attributes):
    def build(folder):
        np.save(f"{folder}/x.npy", x)
        node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
        model = simple([node], x.shape)
        model.graph.input[0].type.tensor_type.elem_type = loaded(x).data_type
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", opset))
        return model
    limit = ["--timeout", "1s"] if exits == 124 else []
    return model_case(name, what, exits, says, build, ["-i", "x=x.npy", *limit])


def crowded_keys(n):
    """Keys of one slot: the hash of a number is a product, and its halves are added."""
    inverse = pow(0x9e3779b97f4a7c15, -1, 2**64)
    keys = [(k << 32 | k) * inverse % 2**64 for k in range(n)]
    return ml_case("W03_keys", f"{n} keys of LabelEncoder in one slot", 124, "time limit",
                   "LabelEncoder", 2, np.zeros((1, 1), np.int64), values_floats=[0.0] * n,
                   keys_int64s=[key - 2**64 if key >= 2**63 else key for key in keys])


def crowded_nodes(n):
    """Leaves by (tree, node): the sums 31 tree + node are one number."""
    return ml_case("W04_nodes_ok", f"{n} trees whose ids make one sum", 0, "",
                   "TreeEnsembleRegressor", 3, np.zeros((1, 1), np.float32), n_targets=1,
                   nodes_treeids=list(range(n)), nodes_nodeids=list(range(31 * n, 0, -31)),
                   nodes_featureids=[0] * n, nodes_truenodeids=[0] * n, nodes_values=[0.0] * n,
                   nodes_falsenodeids=[0] * n, nodes_modes=["LEAF"] * n, target_treeids=[0],
                   target_nodeids=[31 * n], target_ids=[0], target_weights=[1.0])


def long_trees(n):
    """n roots of one tree, a chain of n branches."""
    return ml_case("W02_trees", f"{n} trees that are {n} branches deep", 124, "time limit",
                   "TreeEnsemble", 5, np.zeros((1, 1), np.float32), n_targets=1,
                   nodes_featureids=[0] * n, nodes_truenodeids=[*range(1, n), 0],
                   nodes_falsenodeids=[0] * n, nodes_trueleafs=[0] * (n - 1) + [1],
                   nodes_falseleafs=[1] * n, tree_roots=[0] * n, leaf_targetids=[0],
                   nodes_modes=loaded(np.zeros(n, np.uint8)), nodes_splits=loaded(f32(n)),
                   leaf_weights=loaded(f32(1)))


def wrapped(end, before, exits):
    return node_case(f"K_chunks_{end}", f"a window of {before} chunks around 4", exits,
                     "at most 255 with 4 chunks", "ChunkedLocalAttention",
                     {"x": f32(1, 16, 4)}, domain="attnrun", order=["x", "x", "x"], q_num_heads=2,
                     chunk_size=4, chunks_before=before, chunks_after=1, edge="wrap")



CASES = [
    wrapped("huge", 2**31 - 1, 5),
    wrapped("255", 255, 5),
    wrapped("254_ok", 254, 0),
    node_case("K_roi_ok", "a region 300,000 times as large as its image", 0, "", "RoiAlign",
              {"x": f32(1, 1, 8, 8), "r": np.array([[0, 0, 3e5, 3e5]], np.float32),
               "b": np.array([0])},
              order=["x", "r", "b"]),
    node_case("W01_nms_classes_ok", "NonMaxSuppression of 2^40 classes and no box", 0, "",
              "NonMaxSuppression", {"b": f32(1, 0, 4), "s": f32(1, 2**40, 0)},
              {"m": np.array(1)}, out=(INT64,)),
    node_case("W05_grid_ok", "AffineGrid of 2^40 lines of no place", 0, "", "AffineGrid",
              {"t": f32(1, 2, 3)}, {"s": np.array([1, 1, 2**40, 0])}, opset=20),
    long_trees(100000),
    crowded_keys(200000),
    crowded_nodes(200000),
    node_case("W06_einsum_nul", "Einsum 'ij->ji' with text behind a NUL", 5, "Einsum|NUL",
              "Einsum", {"x": f32(2, 3)}, equation=b"ij->ji\0k"),
    node_case("W07_pool_nul", "CBAM whose pool 'avg' has a letter behind a NUL", 5, "pools",
              "CBAM", {"x": f32(1, 4, 5, 5)},
              {"w1": f32(2, 4), "w2": f32(4, 2), "ws": f32(1, 2, 3, 3), "bs": f32(1)},
              order=["x", "w1", "", "w2", "", "ws", "bs"], domain="attnrun",
              pools=[b"avg\0x", b"max"]),
    node_case("W08_activation_nul", "RNN with 'Tanh' and a letter behind a NUL", 5,
              "activation", "RNN", {"x": f32(2, 1, 3)},
              {"w": f32(1, 4, 3), "r": f32(1, 4, 4)}, hidden_size=4,
              activations=[b"Tanh\0x"]),
]
