"""bad_values.py - attributes, shapes and run-time values that do not fit.

S attributes and shapes, R values at run, RL and RM control flow, P further operators,
C valid twins. Shapes and attributes are exit code 5, values at run 7, memory 6; where a
value is a constant it may be refused before the run, so 5 and 7 are both right there.
"""
from bad_case import (FLOAT, INT64, TensorProto, graph_of, helper, model_case, model_of,
                      node_case, np, simple, value)

RANGE = (5, 7)
TOO_BIG = (5, 6, 7)
MIN, MAX = -2**63, 2**63 - 1


def f32(*shape):
    return np.ones(shape, np.float32)


def i64(*values):
    return np.array(values, np.int64)


def limited(*args, **options):
    """A case that asks for more memory than it may have."""
    return node_case(*args, extra=["--max-memory", "256M"], **options)


X4 = f32(1, 4, 8, 8)
W3 = f32(4, 4, 3, 3)

SHAPES = [
    node_case("S01_conv_group_0", "Conv group 0", 5, "group", "Conv", {"x": X4},
              {"w": W3}, group=0),
    node_case("S02_conv_group_neg", "Conv group -2", 5, "group", "Conv", {"x": X4},
              {"w": W3}, group=-2),
    node_case("S03_conv_group_3", "Conv group 3 of 4 channels", 5, "group|channels",
              "Conv", {"x": X4}, {"w": W3}, group=3),
    node_case("S04_conv_stride_0", "Conv strides 0", 5, "stride", "Conv", {"x": X4},
              {"w": W3}, strides=[0, 0]),
    node_case("S05_conv_channels", "weights of 3 channels for 4", 5, "channels|Conv",
              "Conv", {"x": X4}, {"w": f32(4, 3, 3, 3)}),
    node_case("S07_conv_kernel_lie", "kernel_shape [9, 9], weights 3x3", 5,
              "kernel_shape|Conv", "Conv", {"x": X4}, {"w": W3}, kernel_shape=[9, 9]),
    node_case("S08_conv_kernel_too_big", "a kernel larger than the image", 5, "Conv",
              "Conv", {"x": X4}, {"w": f32(4, 4, 99, 99)}),
    node_case("S10_conv_pads_wrap", "pads near 2^63", (5, 6), "pad|Conv", "Conv",
              {"x": X4}, {"w": W3}, pads=[MAX, MAX, MAX, MAX]),
    node_case("S11_conv_pads_neg", "pads -100", 5, "pad|Conv", "Conv", {"x": X4},
              {"w": W3}, pads=[-100] * 4),
    node_case("S13_conv_w_rank", "weights have one axis more", 5, "Conv", "Conv",
              {"x": X4}, {"w": f32(4, 4, 3, 3, 3)}),
    node_case("S15_conv_dilation_huge", "dilations 2^62", 5, "dilation|Conv", "Conv",
              {"x": X4}, {"w": W3}, dilations=[2**62, 2**62]),
    node_case("S17_conv_bias_len", "bias has 1 of 4 values", 5, "Conv", "Conv",
              {"x": X4}, {"w": W3, "b": f32(1)}),
    node_case("S18_pool_kernel_0", "MaxPool kernel 0", 5, "kernel", "MaxPool", {"x": X4},
              kernel_shape=[0, 0]),
    node_case("S19_pool_stride_neg", "MaxPool stride -1", 5, "stride", "MaxPool",
              {"x": X4}, kernel_shape=[2, 2], strides=[-1, -1]),
    node_case("S22_pool_pad_ge_kernel", "pads not below the kernel", (0, 5), "pad",
              "AveragePool", {"x": X4}, kernel_shape=[2, 2], pads=[5, 5, 5, 5]),
    node_case("S23_transpose_rank", "Transpose perm of 3 for rank 2", 5, "perm",
              "Transpose", {"x": f32(2, 3)}, perm=[0, 1, 2]),
    node_case("S24_transpose_dup", "Transpose perm [0, 0]", 5, "perm", "Transpose",
              {"x": f32(2, 3)}, perm=[0, 0]),
    node_case("S25_transpose_range", "Transpose perm [0, 7]", 5, "perm|axis 7", "Transpose",
              {"x": f32(2, 3)}, perm=[0, 7]),
    node_case("S28_concat_axis", "Concat axis 9", 5, "axis", "Concat",
              {"x": f32(2, 3), "z": f32(2, 3)}, axis=9),
    node_case("S30_concat_dims_dyn", "Concat [2,3] and [4,5] at run", 5, "Concat",
              "Concat", {"x": f32(2, 3), "z": f32(4, 5)}, axis=0),
    node_case("S32_matmul_dyn", "MatMul [2,3] x [2,3] at run", 5,
              "inner sizes differ: input 0 A 'x' is f32\\[2,3\\], 3 in dim 1; "
              "input 1 B 'z' is f32\\[2,3\\], 2 in dim 0", "MatMul",
              {"x": f32(2, 3), "z": f32(2, 3)}),
    node_case("S32_matmul_vector", "MatMul [2,3] x [2] at run", 5,
              "x' is f32\\[2,3\\], 3 in dim 1; input 1 B 'z' is f32\\[2\\], 2 in dim 0",
              "MatMul", {"x": f32(2, 3), "z": f32(2)}),
    node_case("S32_half_names", "f16 operand of a row that computes in f32, at run", 5,
              "input 2 V 'value.*is f32\\[1,3,4\\]", "LocalAttention",
              {"q": np.zeros((1, 2, 4), np.float16), "key": np.zeros((1, 2, 4), np.float16),
               "value": np.zeros((1, 3, 4), np.float16)}, out=(TensorProto.FLOAT16,),
              domain="attnrun", q_num_heads=2, left_window=[1]),
    node_case("S33_matmul_batch", "MatMul batches 2 and 3", 5,
              "batches cannot be broadcast: input 0 A 'x' is f32\\[2,4,5\\], 2 in dim 0; "
              "input 1 B 'z' is f32\\[3,5,4\\], 3 in dim 0", "MatMul",
              {"x": f32(2, 4, 5), "z": f32(3, 5, 4)}),
    node_case("S34_add_broadcast", "Add [2,3] and [2,4]", 5,
              "shapes cannot be broadcast: input 0 A 'x' is f32\\[2,3\\], 3 in dim 1; "
              "input 1 B 'z' is f32\\[2,4\\], 4 in dim 1", "Add",
              {"x": f32(2, 3), "z": f32(2, 4)}),
    node_case("S35_gemm_c_len", "Gemm C [5] for a [2,2] result", 5, "Gemm", "Gemm",
              {"x": f32(2, 3)}, {"w": f32(3, 2), "c": f32(5)}),
    node_case("S36_gemm_rank", "Gemm A of rank 3", 5, "Gemm", "Gemm",
              {"x": f32(2, 2, 3)}, {"w": f32(3, 2)}),
    node_case("S37_softmax_axis_min", "Softmax axis INT64_MIN", 5, "axis", "Softmax",
              {"x": f32(2, 3)}, axis=MIN),
    node_case("S38_softmax_empty", "Softmax over an axis of 0", (0, 5), "Softmax",
              "Softmax", {"x": f32(2, 0)}),
    node_case("S40_tile1_scalar", "Tile-1 of a scalar, which has no axis", 5, "Tile|rank", "Tile",
              {"x": np.float32(1), "t": np.float32(2), "a": np.float32(0)}, opset=5),
    node_case("S41_ln_scale_len", "LayerNormalization scale has 1 of 64", 5,
              "LayerNormalization|scale", "LayerNormalization", {"x": f32(2, 64)},
              {"s": f32(3)}),
    node_case("S43_bn_scale_len", "BatchNormalization scale has 3 of 4", 5,
              "BatchNormalization", "BatchNormalization", {"x": X4},
              {"s": f32(3), "b": f32(4), "m": f32(4), "v": f32(4)}),
    node_case("S43_bn_test_stats", "BatchNormalization-1 is_test 1 with mean and variance", 5,
              "is_test is 1", "BatchNormalization", {"x": X4},
              {"s": f32(4), "b": f32(4), "m": f32(4), "v": f32(4)}, out=(FLOAT,) * 3, opset=6,
              is_test=1),
    node_case("S43_bn_test_ok", "BatchNormalization-1 is_test 1 with Y alone", 0, "",
              "BatchNormalization", {"x": X4},
              {"s": f32(4), "b": f32(4), "m": f32(4), "v": f32(4)}, opset=6, is_test=1),
    node_case("S44_gn_groups_0", "GroupNormalization num_groups 0", 5, "num_groups",
              "GroupNormalization", {"x": X4}, {"s": f32(4), "b": f32(4)}, opset=21,
              num_groups=0),
    node_case("S45_einsum_junk", "Einsum 'i,,->' on one matrix", 5, "Einsum|equation",
              "Einsum", {"x": f32(2, 3)}, equation="i,,->"),
    node_case("S46_einsum_dims", "Einsum ij,jk with j 3 and 4", 5, "Einsum", "Einsum",
              {"x": f32(2, 3), "z": f32(4, 2)}, equation="ij,jk->ik"),
    node_case("S47_depth_to_space_0", "DepthToSpace blocksize 0", 5, "blocksize",
              "DepthToSpace", {"x": X4}, blocksize=0),
    node_case("S48_depth_to_space_3", "DepthToSpace blocksize 3 of 4 channels", 5,
              "DepthToSpace|blocksize", "DepthToSpace", {"x": X4}, blocksize=3),
    node_case("S49_squeeze_not_1", "Squeeze an axis of 3", 5, "Squeeze", "Squeeze",
              {"x": f32(2, 3)}, {"a": i64(1)}),
    node_case("S50_unsqueeze_dup", "Unsqueeze axes [0, 0]", 5, "Unsqueeze|axes",
              "Unsqueeze", {"x": f32(2, 3)}, {"a": i64(0, 0)}),
    node_case("S51_flatten_axis", "Flatten axis 9", 5, "axis", "Flatten",
              {"x": f32(2, 3)}, axis=9),
    node_case("S52_lstm_hidden_0", "LSTM hidden_size 0", 5, "hidden_size|LSTM", "LSTM",
              {"x": f32(3, 1, 4)}, {"w": f32(1, 8, 4), "r": f32(1, 8, 2)}, hidden_size=0),
    node_case("S53_lstm_w_shape", "LSTM W of the wrong size", 5, "LSTM", "LSTM",
              {"x": f32(3, 1, 4)}, {"w": f32(1, 6, 4), "r": f32(1, 8, 2)}, hidden_size=2),
    node_case("S61_attn_heads_0", "Attention q_num_heads 0", 5, "num_heads", "Attention",
              {"q": f32(1, 2, 8), "k": f32(1, 2, 8), "v": f32(1, 2, 8)}, opset=23,
              q_num_heads=0, kv_num_heads=0),
    node_case("S62_attn_kv_heads", "q heads 4, kv heads 3", 5, "head", "Attention",
              {"q": f32(1, 4, 2, 8), "k": f32(1, 3, 2, 8), "v": f32(1, 3, 2, 8)},
              opset=23),
    node_case("S63_attn_mask_shape", "a mask [7,7] for 2x2 scores", 5, "mask|Attention",
              "Attention", {"q": f32(1, 1, 2, 8), "k": f32(1, 1, 2, 8),
                            "v": f32(1, 1, 2, 8), "m": f32(7, 7)}, opset=23),
    node_case("S65_attn_kv_len", "K has 2 positions, V has 9", 5, "Attention",
              "Attention", {"q": f32(1, 1, 2, 8), "k": f32(1, 1, 2, 8),
                            "v": f32(1, 1, 9, 8)}, opset=23),
    node_case("P15_rope_pos", "RotaryEmbedding position 10^6 of a cache of 4", 7,
              "position|RotaryEmbedding|1000000", "RotaryEmbedding",
              {"x": f32(1, 1, 2, 8), "c": f32(4, 4), "s": f32(4, 4),
               "p": np.array([[0, 10**6]])}, opset=23),
    node_case("P15_rope_caches", "RotaryEmbedding: cosines of one sequence, sines of two", 5,
              "cos_cache's shape", "RotaryEmbedding", {"x": f32(2, 1, 2, 8), "c": f32(1, 2, 4),
                                                       "s": f32(2, 2, 4)}, opset=23),
    node_case("P20_tscatter_oob", "TensorScatter write index 99", 7,
              "TensorScatter|99", "TensorScatter",
              {"x": f32(1, 1, 4, 8), "u": f32(1, 1, 2, 8), "i": i64(99)}, opset=24),
    node_case("P43_convt_group_0", "ConvTranspose group 0", 5, "group", "ConvTranspose",
              {"x": X4}, {"w": W3}, group=0),
    node_case("P44_type_string", "Add of int64 and float", 5,
              "'z' is i64.*, expected f32, as input 0 'x' is",
              "Add", {"x": f32(2), "z": i64(1, 2)}),
]


def gather(name, what, exits, index, size=2):
    says = "is empty" if size == 0 else "'i' is .* and holds -?[0-9]+ at 0, expected -2 to 1"
    return node_case(name, what, exits, says, "Gather",
                     {"x": f32(size, 3), "i": np.array([index])})


INDEXES = [
    gather("R01_gather_eq_dim", "Gather index 2 in a dim of 2", 7, 2),
    gather("R01_gather_min", "Gather index INT64_MIN", 7, MIN),
    node_case("R02_gather_init_max", "Gather constant index INT64_MAX", RANGE,
              "Gather|index", "Gather", {"x": f32(2, 3)}, {"i": i64(MAX)}),
    gather("R03_gather_neg_ok", "Gather index -1: valid", 0, -1),
    gather("R04_gather_empty_dim", "Gather 0 from a dim of 0", 7, 0, 0),
    node_case("R06_gatherel_oob", "GatherElements index 9", 7, "GatherElements|9",
              "GatherElements", {"x": f32(2, 3), "i": np.array([[9, 0, 0]])}),
    node_case("R10_gathernd_oob", "GatherND index [1, -9]", 7, "GatherND|-9", "GatherND",
              {"x": f32(2, 3), "i": np.array([[1, -9]])}),
    node_case("R11_gathernd_zero_dim", "GatherND index 0 into a dim of 0", 7, "is empty",
              "GatherND", {"x": f32(0, 3), "i": np.array([[0]])}),
    node_case("R12_gathernd_deep", "GatherND index of 5 for rank 2", 5, "GatherND",
              "GatherND", {"x": f32(2, 3), "i": np.zeros((1, 5), np.int64)}),
    node_case("R13_gathernd_batch", "GatherND batch 2 against 3", 5, "GatherND|batch",
              "GatherND", {"x": f32(2, 3), "i": np.zeros((3, 1), np.int64)}, batch_dims=1),
    node_case("R14_scatterel_oob", "ScatterElements index 9", 7, "ScatterElements|9",
              "ScatterElements", {"x": f32(2, 3), "i": np.array([[9]]), "u": f32(1, 1)}),
    node_case("R15_scatterel_neg", "ScatterElements index -3", 7, "ScatterElements|-3",
              "ScatterElements", {"x": f32(2, 3), "i": np.array([[-3]]), "u": f32(1, 1)}),
    node_case("R17_scatterel_big", "ScatterElements indices larger than data", 5,
              "ScatterElements", "ScatterElements",
              {"x": f32(2, 3), "i": np.zeros((2, 9), np.int64), "u": f32(2, 9)}),
    node_case("R18_scatternd_oob", "ScatterND index [9, 9]", 7, "ScatterND|9",
              "ScatterND", {"x": f32(2, 3), "i": np.array([[9, 9]]), "u": f32(1)}),
    node_case("R21_scatternd_upd", "ScatterND updates too short", 5, "ScatterND",
              "ScatterND", {"x": f32(2, 3), "i": np.zeros((2, 1), np.int64),
                            "u": f32(1, 3)}),
    node_case("R65_topk_over", "TopK k 99 of 3", RANGE, "TopK|99|k", "TopK",
              {"x": f32(3), "k": i64(99)}, out=(FLOAT, INT64)),
    node_case("R66_topk_huge", "TopK k 2^62", (5, 6, 7), "TopK|k", "TopK",
              {"x": f32(3), "k": i64(2**62)}, out=(FLOAT, INT64)),
    node_case("R67_topk_neg", "TopK k -1", RANGE, "TopK|k", "TopK",
              {"x": f32(3), "k": i64(-1)}, out=(FLOAT, INT64)),
    node_case("R68_topk_nan", "TopK over NaN", (0, 7), "TopK", "TopK",
              {"x": np.array([np.nan, 1, np.nan, 2], np.float32), "k": i64(3)},
              out=(FLOAT, INT64)),
    node_case("R69_onehot_depth_neg", "OneHot depth -3", RANGE, "OneHot|depth", "OneHot",
              {"i": i64(0, 1), "d": i64(-3), "v": f32(2)}),
    node_case("RA8_maxunpool_oob", "MaxUnpool index 10^9", 7, "MaxUnpool|1000000000",
              "MaxUnpool", {"x": f32(1, 1, 1, 1), "i": np.full((1, 1, 1, 1), 10**9)},
              kernel_shape=[2, 2]),
]

SIZES = [
    node_case("R23_slice_full", "Slice over everything: valid", 0, "", "Slice",
              {"x": f32(4), "b": i64(MIN), "e": i64(MAX), "a": i64(0), "s": i64(1)}),
    node_case("R24_slice_step_min", "Slice step INT64_MIN", (0, 5, 7), "Slice|step",
              "Slice", {"x": f32(4), "b": i64(3), "e": i64(MIN), "a": i64(0),
                        "s": i64(MIN)}),
    node_case("R25_slice_step_0", "Slice step 0", RANGE, "Slice|step", "Slice",
              {"x": f32(4), "b": i64(0), "e": i64(4), "a": i64(0), "s": i64(0)}),
    node_case("R26_slice_axis", "Slice axis 5", RANGE, "Slice|axis|axes", "Slice",
              {"x": f32(4), "b": i64(0), "e": i64(4), "a": i64(5)}),
    node_case("R27_slice_dup_axes", "Slice axes [0, 0]", (0, 5, 7), "Slice|axis|axes",
              "Slice", {"x": f32(4), "b": i64(0, 1), "e": i64(4, 3), "a": i64(0, 0)}),
    node_case("R28_slice_lengths", "Slice of 2 starts and 1 end", RANGE, "Slice", "Slice",
              {"x": f32(4, 4), "b": i64(0, 0), "e": i64(4)}),
    limited("R31_pad_wrap", "Pad so that the size wraps", TOO_BIG, "Pad|memory", "Pad",
            {"x": f32(2), "p": i64(MAX, MAX)}),
    node_case("R33_pad_neg_over", "Pad -5 on a dim of 2", RANGE, "Pad|pad", "Pad",
              {"x": f32(2), "p": i64(-5, 0)}),
    node_case("R35_pad_reflect_big", "reflect pad 50 on a dim of 2", (0, 5, 7), "Pad|pad",
              "Pad", {"x": f32(2), "p": i64(50, 50)}, mode="reflect"),
    node_case("R36_pad_reflect_empty", "reflect pad of an empty dim", (5, 7), "Pad|pad",
              "Pad", {"x": f32(0), "p": i64(2, 2)}, mode="reflect"),
    limited("R38_expand_4tb", "Expand to [2^40]", 6, "Expand|memory|bytes", "Expand",
            {"x": f32(1), "s": i64(2**40)}),
    limited("R39_expand_wrap", "Expand to [2^32, 2^32]", TOO_BIG, "Expand|memory",
            "Expand", {"x": f32(1), "s": i64(2**32, 2**32)}),
    node_case("R40_expand_neg", "Expand to [-2]", RANGE, "Expand|-2", "Expand",
              {"x": f32(1), "s": i64(-2)}),
    limited("R45_tile_wrap", "Tile by [2^32, 2^32]", TOO_BIG, "Tile|memory", "Tile",
            {"x": f32(1, 1), "r": i64(2**32, 2**32)}),
    node_case("R46_tile_neg", "Tile by -1", RANGE, "Tile|-1", "Tile",
              {"x": f32(2), "r": i64(-1)}),
    limited("R50_cos_wrap", "ConstantOfShape [2^32, 2^32]", TOO_BIG,
            "ConstantOfShape|memory", "ConstantOfShape", {"s": i64(2**32, 2**32)}),
    node_case("R51_cos_neg", "ConstantOfShape [-4]", RANGE, "ConstantOfShape|-4",
              "ConstantOfShape", {"s": i64(-4)}),
    node_case("R54_range_delta_0", "Range delta 0", RANGE, "Range|delta", "Range",
              {"a": np.int64(0), "b": np.int64(5), "d": np.int64(0)}, out=(INT64,)),
    node_case("R55_range_nan", "Range with NaN", RANGE, "Range", "Range",
              {"a": np.float32(0), "b": np.float32(np.nan), "d": np.float32(1)}),
    limited("R57_range_denorm", "Range 0..1 by 1e-45", TOO_BIG, "Range|memory", "Range",
            {"a": np.float32(0), "b": np.float32(1), "d": np.float32(1e-45)}),
    limited("R58_range_huge", "Range of 2^62 numbers", TOO_BIG, "Range|memory", "Range",
            {"a": np.int64(0), "b": np.int64(2**62), "d": np.int64(1)}, out=(INT64,)),
    limited("R60_onehot_depth_4t", "OneHot depth 2^40", TOO_BIG, "OneHot|memory",
            "OneHot", {"i": i64(0, 1), "d": i64(2**40), "v": f32(2)}),
    node_case("R71_reshape_wrap", "Reshape [2^62, 4]: wraps to 0", TOO_BIG, "Reshape",
              "Reshape", {"x": f32(0), "s": i64(2**62, 4)}),
    node_case("R72_reshape_wrap6", "Reshape whose product wraps to 6", TOO_BIG, "Reshape",
              "Reshape", {"x": f32(6), "s": i64(2**63 - 2**62 + 3, 2)}),
    node_case("R73_reshape_div0", "Reshape [0, -1] of an empty tensor, allowzero", RANGE,
              "Reshape", "Reshape", {"x": f32(0), "s": i64(0, -1)}, allowzero=1),
    node_case("R74_reshape_two", "Reshape [-1, -1]", RANGE, "Reshape", "Reshape",
              {"x": f32(6), "s": i64(-1, -1)}),
    node_case("R75_reshape_count", "Reshape 6 elements to [4, -1]", RANGE, "Reshape",
              "Reshape", {"x": f32(6), "s": i64(4, -1)}),
    node_case("R92_split_neg", "Split [5, -3] of 2 rows", RANGE, "Split", "Split",
              {"x": f32(2), "s": i64(5, -3)}, out=(FLOAT, FLOAT)),
    node_case("R94_split_both", "Split by split and num_outputs", 5, "num_outputs",
              "Split", {"x": f32(4), "s": i64(1, 2)}, out=(FLOAT, FLOAT), num_outputs=2),
    node_case("R95_expand_not", "Expand 3 elements to 4", 5, "expected 1 or 4", "Expand",
              {"x": f32(3), "s": i64(4)}),
    node_case("R96_reduce_scalar", "ReduceMax of a scalar along axis 0", 5, "axis 0",
              "ReduceMax", {"x": np.float32(1), "a": i64(0)}),
    node_case("R93_split_sum", "Split [1, 3] of 2 rows", RANGE, "Split", "Split",
              {"x": f32(2), "s": i64(1, 3)}, out=(FLOAT, FLOAT)),
    node_case("R94_trilu_min", "Trilu k INT64_MIN", (0, 5, 7), "Trilu", "Trilu",
              {"x": f32(3, 3), "k": np.int64(MIN)}),
    node_case("RA1_resize_scale_nan", "Resize scales NaN", RANGE, "Resize|scale",
              "Resize", {"x": X4, "s": np.array([1, 1, np.nan, 1], np.float32)},
              order=["x", "", "s"]),
    limited("RA2_resize_scale_huge", "Resize scales 1e18", TOO_BIG, "Resize|memory|scale",
            "Resize", {"x": X4, "s": np.array([1, 1, 1e18, 1], np.float32)},
            order=["x", "", "s"]),
    node_case("RA3_resize_cubic_ok", "Resize of bytes, cubic_coeff_a 1e30", 0, "", "Resize",
              {"x": np.ones((1, 1, 6, 6), np.uint8)}, {"s": i64(1, 1, 3, 3)},
              out=(TensorProto.UINT8,), order=["x", "", "", "s"], opset=19, mode="cubic",
              antialias=1, cubic_coeff_a=1e30),
    node_case("RA3_resize_size_neg", "Resize sizes -4", RANGE, "Resize|size", "Resize",
              {"x": X4, "s": i64(1, 4, -4, 8)}, order=["x", "", "", "s"]),
]


def expand_model():
    """An Expand whose input has the dims that the output must have: only the run sees the shape."""
    nodes = [helper.make_node("Expand", ["x", "s"], ["e"]), helper.make_node("Relu", ["e"], ["y"])]
    return model_of(graph_of(nodes, [value("x", FLOAT, [8, 8]), value("s", INT64, [2])],
                             [value("y")]))


def repeated_heads():
    """Attention over 4 heads, whose keys and values are 2 heads that Expand repeats."""
    nodes = [helper.make_node("Concat", ["head", "s"], ["to"], axis=0)]
    for name in "kv":
        nodes += [helper.make_node("Unsqueeze", [name, "two"], [name + "5"]),
                  helper.make_node("Expand", [name + "5", "to"], [name + "r"]),
                  helper.make_node("Reshape", [name + "r", "four"], [name + "4"])]
    nodes += [helper.make_node("Transpose", ["k4"], ["kt"], perm=[0, 1, 3, 2]),
              helper.make_node("MatMul", ["q", "kt"], ["scores"]),
              helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
              helper.make_node("MatMul", ["p", "v4"], ["y"])]
    inputs = [value("q", FLOAT, [1, 4, 8, 8]), value("k", FLOAT, [1, 2, 8, 8]),
              value("v", FLOAT, [1, 2, 8, 8]), value("s", INT64, [2])]
    return model_of(graph_of(nodes, inputs, [value("y")],
                             {"head": i64(1, 2, 2), "two": i64(2), "four": i64(1, 4, 8, 8)}))


def expand_cases():
    for name, build, names in (("dims", expand_model, "x"), ("heads", repeated_heads, "qkv")):
        ones = [word for x in names for word in ("-i", f"{x}=ones")]
        for fused in ([], ["--no-fusion"]):
            text = name + ("" if not fused else "_no_fusion")
            yield model_case(f"R97_expand_{text}", "Expand of 8 elements to 6, known at run", 5,
                             "expected 1 or 6", lambda _, build=build: build(),
                             [*ones, "-i", "s=[6,7]", *fused])
            yield model_case(f"R98_expand_{text}", "Expand of 8 elements to 8 and to 1, at run", 0,
                             "", lambda _, build=build: build(), [*ones, "-i", "s=[8,1]", *fused])


NUMBERS = [
    node_case("R76_div_zero", "int64 Div by 0", 7, "Div|zero|by 0", "Div",
              {"x": i64(1, 2), "z": i64(1, 0)}, out=(INT64,)),
    node_case("R77_div_min", "INT64_MIN / -1", (0, 7), "Div", "Div",
              {"x": i64(MIN), "z": i64(-1)}, out=(INT64,)),
    node_case("R78_mod_zero", "int64 Mod by 0", 7, "Mod|zero|by 0", "Mod",
              {"x": i64(1), "z": i64(0)}, out=(INT64,)),
    node_case("R81_mod_min_32", "INT32_MIN mod -1", (0, 7), "Mod", "Mod",
              {"x": np.array([-2**31], np.int32), "z": np.array([-1], np.int32)},
              out=(TensorProto.INT32,)),
    node_case("R82_cast_nan_int", "Cast NaN, inf, 1e30 to int32", (0, 7), "Cast", "Cast",
              {"x": np.array([np.nan, np.inf, 1e30], np.float32)},
              out=(TensorProto.INT32,), to=TensorProto.INT32),
    node_case("R83_shift_over", "BitShift by 200", (0, 7), "BitShift", "BitShift",
              {"x": np.array([1], np.uint32), "z": np.array([200], np.uint32)},
              out=(TensorProto.UINT32,), direction="LEFT"),
    node_case("RB9_softmax_inf", "Softmax of a row of -inf: NaN", 0, "", "Softmax",
              {"x": np.array([[-np.inf, -np.inf], [0, 1]], np.float32)}),
    node_case("RC0_nan_passthrough", "Relu keeps NaN", 0, "", "Relu",
              {"x": np.array([np.nan], np.float32)}),
    node_case("RC2_validate", "--validate with a NaN", 8, "finite|NaN", "Relu",
              {"x": np.array([np.nan], np.float32)}, extra=["--validate"]),
    node_case("RC1_zero_dim_matmul", "MatMul [2,0] x [0,3]: zeros", 0, "", "MatMul",
              {"x": f32(2, 0), "z": f32(0, 3)}),
    node_case("RC3_no_channels", "InstanceNormalization of no channel", 0, "",
              "InstanceNormalization", {"x": f32(1, 0, 5)}, {"s": f32(0), "b": f32(0)}),
    node_case("RC4_rows_of_nothing", "QLinearConcat of 2^42 rows of nothing", 0, "",
              "QLinearConcat", {"scale": np.float32(1), "zero": np.uint8(1),
                                "x": np.zeros((2**42, 0), np.uint8)},
              {"s": np.float32(2), "z": np.uint8(0)}, out=(TensorProto.UINT8,),
              domain="com.microsoft", axis=1),
    model_case("RC8_external_identity", "ExternalAttention: x of any rank, identity of rank 7", 5,
               "identity", lambda folder: model_of(graph_of(
                   [helper.make_node("ExternalAttention", ["x", "mk", "mv", "", "i"], ["y"],
                                     domain="attnrun")],
                   [value("x", FLOAT, None), value("mk", FLOAT, [8, 4]), value("mv", FLOAT, [4, 8]),
                    value("i", FLOAT, [1] * 7)], [value("y", FLOAT, None)]),
                   domains=("attnrun",))),
    node_case("RC7_unique_of_nothing", "Unique of 2^40 rows of nothing, along axis 1", 0, "",
              "Unique", {"x": np.zeros((2**40, 2, 0), np.float32)}, axis=1),
    *[model_case(f"RC9_constant_of_nothing_{n}", f"a constant [0, 1000], elements at most {n}",
                 6 if n < 1000 else 0, "limit 'elements'" if n < 1000 else "",
                 lambda folder: simple([helper.make_node("Identity", ["c"], ["y"])],
                                       consts={"c": f32(0, 1000)}),
                 extra=["--limit", f"elements={n}"]) for n in (999, 1000)],
    limited("RC5_nothing_of_much", "ConstantOfShape [0, 2^40, 2^40]: nothing, of too much", TOO_BIG,
            "elements|memory", "ConstantOfShape", {}, {"s": i64(0, 2**40, 2**40)}),
    limited("RC6_expand_nothing", "Expand of [0, 1, 2^30] to [0, 2^40, 2^30]",
            TOO_BIG, "elements|memory", "Expand", {"x": np.zeros((0, 1, 2**30), np.float32)},
            {"s": i64(1, 2**40, 1)}),
]


def loop_model(trip, body, carried, scanned=()):
    node = helper.make_node("Loop", ["m", "", "x"], [*carried, *scanned], body=body)
    return model_of(graph_of(
        [node], [value("m", INT64, []), value("x", FLOAT, [None])],
        [value(name) for name in [*carried, *scanned]]), 18)


def loop_body(nodes, last, scanned=(), consts=None):
    inputs = [value("i", INT64, []), value("c", TensorProto.BOOL, []), value("v")]
    nodes = [helper.make_node("Identity", ["c"], ["k"]), *nodes]
    outputs = [value("k", TensorProto.BOOL, []), value(last)]
    return graph_of(nodes, inputs, outputs + [value(s) for s in scanned], consts)


def loop_case(name, what, exits, says, trip, model, extra=()):
    def build(folder):
        np.save(f"{folder}/m.npy", np.int64(trip))
        np.save(f"{folder}/x.npy", f32(4))
        return model
    return model_case(name, what, exits, says, build,
                      ["-i", "m=m.npy", "-i", "x=x.npy", *extra])


def add_one():
    return loop_body([helper.make_node("Add", ["v", "v"], ["w"])], "w")


def growing():
    nodes = [helper.make_node("Identity", ["v"], ["w"]),
             helper.make_node("Tile", ["v", "r"], ["s"])]
    return loop_body(nodes, "w", ["s"], {"r": i64(256)})


def doubling():
    return loop_body([helper.make_node("Concat", ["v", "v"], ["w"], axis=0)], "w")


def scan_lengths(folder):
    body = graph_of([helper.make_node("Add", ["a", "b"], ["s"])], [value("a"), value("b")],
                    [value("s")])
    np.save(f"{folder}/x.npy", f32(2, 3))
    np.save(f"{folder}/z.npy", f32(9, 3))
    node = helper.make_node("Scan", ["x", "z"], ["y"], body=body, num_scan_inputs=2)
    return model_of(graph_of([node], [value("x", FLOAT, [None, None]),
                                      value("z", FLOAT, [None, None])], [value("y")]))


def scan_batches(folder):
    """Scan-8: a state of batch 1, which is not read as an output, and slices of batch 4."""
    body = graph_of([helper.make_node("Add", ["a", "b"], ["s"]),
                     helper.make_node("Identity", ["s"], ["o"])],
                    [value("a"), value("b")], [value("s"), value("o")])
    np.save(f"{folder}/x.npy", f32(1, 64))
    np.save(f"{folder}/z.npy", f32(4, 3, 64))
    node = helper.make_node("Scan", ["", "x", "z"], ["", "y"], body=body, num_scan_inputs=1)
    return model_of(graph_of([node], [value("x", FLOAT, [None, 64]),
                                      value("z", FLOAT, [None, None, 64])], [value("y")]),
                    opset=8)


def scan_nibbles(folder):
    """Slices of three elements of 4 bits begin within a byte."""
    body = graph_of([helper.make_node("Cast", ["a"], ["s"], to=FLOAT)],
                    [value("a", TensorProto.UINT4, [3])], [value("s")])
    np.save(f"{folder}/x.npy", f32(4, 3))
    nodes = [helper.make_node("Cast", ["x"], ["z"], to=TensorProto.UINT4),
             helper.make_node("Scan", ["z"], ["y"], body=body, num_scan_inputs=1)]
    return model_of(graph_of(nodes, [value("x", FLOAT, [None, 3])], [value("y")]), opset=21)


def large_branch(taken):
    """A branch that would make 160 GB of one element, beside one that passes the element on."""
    def build(folder):
        nodes = [helper.make_node("Expand", ["x", "s"], ["b"]),
                 helper.make_node("ReduceMax", ["b"], ["t"])]
        branches = {"then_branch": graph_of(nodes, [], [value("t")]),
                    "else_branch": graph_of([helper.make_node("Neg", ["x"], ["e"])], [],
                                            [value("e")])}
        np.save(f"{folder}/x.npy", f32(1))
        np.save(f"{folder}/c.npy", np.array(taken, bool))
        return model_of(graph_of(
            [helper.make_node("If", ["c"], ["y"], **branches)],
            [value("x", FLOAT, [1]), value("c", TensorProto.BOOL, [])], [value("y")],
            {"s": i64(200000, 200000)}))
    return build


def scan_nothing(name, opset, exits, says, *extra):
    """2^40 slices or samples that have no element."""
    def build(folder):
        shape = (2**40, 0, 3)
        with open(f"{folder}/x.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        body = graph_of([helper.make_node("Neg", ["a"], ["b"])], [value("a")], [value("b")])
        node = helper.make_node("Scan", [""] * (opset == 8) + ["x"], ["y"], body=body,
                                num_scan_inputs=1)
        return model_of(graph_of([node], [value("x", FLOAT, [None] * 3)], [value("y")]), opset)
    return model_case(name, f"Scan-{opset} of 2^40 empty slices", exits, says, build,
                      ["-i", "x=x.npy", *extra])


def input_is_init():
    body = loop_body([helper.make_node("Identity", ["v"], ["w"])], "w",
                     consts={"v": f32(4)})
    return loop_model(1, body, ["y"])


LOOPS = [
    loop_case("RL1_loop_max", "Loop of 2^63-1 turns with --timeout", 124, "time", MAX,
              loop_model(MAX, add_one(), ["y"]), ["--timeout", "1s"]),
    loop_case("RL3_loop_scan_grow", "a Loop that gathers 4 kB a turn", (6, 124),
              "memory|limit", 2**40, loop_model(2**40, growing(), ["y"], ["s"]),
              ["--max-memory", "256M", "--timeout", "20s"]),
    loop_case("RL4_loop_double", "64 turns, the tensor doubles", (6, 124), "memory|limit",
              64, loop_model(64, doubling(), ["y"]), ["--max-memory", "256M"]),
    loop_case("RL5_loop_neg", "trip count -1: no turn", 0, "", -1,
              loop_model(-1, add_one(), ["y"])),
    loop_case("RL6_loop_3", "control: three turns", 0, "", 3,
              loop_model(3, add_one(), ["y"])),
    loop_case("RM1_loop_input_is_init", "a body input is a body initializer", (0, 3, 5),
              "'v'", 1, input_is_init()),
    model_case("RM2_scan_len", "Scan inputs of length 2 and 9", 5, "Scan", scan_lengths,
               ["-i", "x=x.npy", "-i", "z=z.npy"]),
    model_case("RM3_scan_batch", "Scan-8 inputs of batch 1 and 4", 5, "batch", scan_batches,
               ["-i", "x=x.npy", "-i", "z=z.npy"]),
    model_case("RM4_scan_nibbles", "Scan of elements of 4 bits", 4, "whole bytes",
               scan_nibbles, ["-i", "x=x.npy"]),
    *[model_case(f"RM5_branch_{taken}", "a branch of 160 GB", exits, "made_bytes",
                 large_branch(taken), ["-i", "x=x.npy", "-i", "c=c.npy"])
      for taken, exits in ((0, 0), (1, 6))],
    scan_nothing("RL7_scan_samples", 8, 124, "time", "--timeout", "1s"),
    scan_nothing("RL8_scan_limit", 8, 6, "after 1000 iter", "--limit", "loop_iterations=1000"),
    scan_nothing("RL9_scan_limit_9", 9, 6, "after 1000 iter", "--limit", "loop_iterations=1000"),
    model_case("M71_fold_loop", "a Loop over constants, 2^62 turns", (124,), "time",
               lambda f: simple([helper.make_node("Loop", ["m", "", "c0"], ["t"],
                                                  body=add_one()),
                                 helper.make_node("Add", ["x", "t"], ["y"])],
                                consts={"m": np.int64(2**62), "c0": f32(2)}),
               ["--timeout", "2s"]),
]


def control(name, op, inputs, consts=None, **options):
    return node_case(f"C_{name}", f"control: {op}", 0, "", op, inputs, consts, **options)


CONTROLS = [
    control("conv", "Conv", {"x": X4}, {"w": W3}),
    control("conv_group", "Conv", {"x": X4}, {"w": f32(4, 2, 3, 3)}, group=2),
    control("conv_transpose", "ConvTranspose", {"x": X4}, {"w": W3}),
    control("maxpool", "MaxPool", {"x": X4}, kernel_shape=[2, 2]),
    control("averagepool", "AveragePool", {"x": X4}, kernel_shape=[2, 2]),
    control("transpose", "Transpose", {"x": f32(2, 3)}, perm=[1, 0]),
    control("concat", "Concat", {"x": f32(2, 3), "z": f32(2, 3)}, axis=1),
    control("matmul", "MatMul", {"x": f32(2, 3), "z": f32(3, 2)}),
    control("gemm", "Gemm", {"x": f32(2, 3)}, {"w": f32(3, 2), "c": f32(2)}),
    control("add", "Add", {"x": f32(2, 3), "z": f32(3)}),
    control("softmax", "Softmax", {"x": f32(2, 3)}),
    control("flatten", "Flatten", {"x": f32(2, 3, 4)}),
    control("layernorm", "LayerNormalization", {"x": f32(2, 64)}, {"s": f32(64)}),
    control("batchnorm", "BatchNormalization", {"x": X4},
            {"s": f32(4), "b": f32(4), "m": f32(4), "v": f32(4)}),
    control("groupnorm", "GroupNormalization", {"x": X4}, {"s": f32(4), "b": f32(4)},
            opset=21, num_groups=2),
    control("einsum", "Einsum", {"x": f32(2, 3), "z": f32(3, 2)}, equation="ij,jk->ik"),
    control("depthtospace", "DepthToSpace", {"x": X4}, blocksize=2),
    control("attention", "Attention", {"q": f32(1, 1, 2, 8), "k": f32(1, 1, 2, 8),
                                       "v": f32(1, 1, 2, 8)}, opset=23),
    control("rotary", "RotaryEmbedding", {"x": f32(1, 1, 2, 8), "c": f32(4, 4),
                                          "s": f32(4, 4), "p": np.array([[0, 3]])},
            opset=23),
    control("gatherelements", "GatherElements", {"x": f32(2, 3), "i": np.array([[1, 0]])}),
    control("gathernd", "GatherND", {"x": f32(2, 3), "i": np.array([[1, -1]])}),
    control("scatterelements", "ScatterElements",
            {"x": f32(2, 3), "i": np.array([[1]]), "u": f32(1, 1)}),
    control("scatternd", "ScatterND", {"x": f32(2, 3), "i": np.array([[1, 2]]),
                                       "u": f32(1)}),
    control("slice", "Slice", {"x": f32(4), "b": i64(3), "e": i64(MIN), "a": i64(0),
                               "s": i64(-2)}),
    control("pad", "Pad", {"x": f32(2), "p": i64(1, 1)}),
    control("pad_neg", "Pad", {"x": f32(4), "p": i64(-1, 2)}),
    control("pad_reflect", "Pad", {"x": f32(4), "p": i64(2, 2)}, mode="reflect"),
    control("expand", "Expand", {"x": f32(1), "s": i64(3)}),
    control("tile", "Tile", {"x": f32(2), "r": i64(2)}),
    control("constantofshape", "ConstantOfShape", {"s": i64(2, 3)}),
    control("range", "Range", {"a": np.int64(0), "b": np.int64(5), "d": np.int64(2)},
            out=(INT64,)),
    control("onehot", "OneHot", {"i": i64(0, 1), "d": i64(3), "v": f32(2)}),
    control("topk", "TopK", {"x": f32(3), "k": i64(2)}, out=(FLOAT, INT64)),
    control("reshape", "Reshape", {"x": f32(6), "s": i64(2, -1)}),
    control("reshape_0", "Reshape", {"x": f32(2, 3), "s": i64(0, 3)}),
    control("div", "Div", {"x": i64(7), "z": i64(-2)}, out=(INT64,)),
    control("mod", "Mod", {"x": i64(7), "z": i64(-2)}, out=(INT64,)),
    control("cast", "Cast", {"x": f32(3)}, out=(INT64,), to=INT64),
    control("unsqueeze", "Unsqueeze", {"x": f32(3)}, {"a": i64(0, 2)}),
    control("squeeze", "Squeeze", {"x": f32(1, 3)}, {"a": i64(0)}),
    control("reducesum", "ReduceSum", {"x": f32(2, 3)}, {"a": i64(1)}),
    control("reducemean", "ReduceMean", {"x": f32(2, 3)}, {"a": i64(-1)}),
    control("argmax", "ArgMax", {"x": f32(2, 3)}, out=(INT64,), axis=1),
    control("split", "Split", {"x": f32(4), "s": i64(1, 3)}, out=(FLOAT, FLOAT)),
    control("cumsum", "CumSum", {"x": f32(4), "a": np.int64(0)}),
    control("trilu", "Trilu", {"x": f32(3, 3), "k": np.int64(1)}),
    control("where", "Where", {"c": np.array([True, False]), "x": f32(2), "z": f32(2)}),
    control("compress", "Compress", {"x": f32(3), "c": np.array([True, False])}, axis=0),
    control("resize", "Resize", {"x": X4, "s": np.array([1, 1, 2, 2], np.float32)},
            order=["x", "", "s"]),
    control("lstm", "LSTM", {"x": f32(3, 1, 4)}, {"w": f32(1, 8, 4), "r": f32(1, 8, 2)},
            hidden_size=2),
]

CASES = SHAPES + INDEXES + SIZES + list(expand_cases()) + NUMBERS + LOOPS + CONTROLS
