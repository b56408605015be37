/* matmul_nbits.c - com.microsoft MatMulNBits: Y = A W' + bias, where W (N, K) has 2, 4 or
 * 8 bits an element.
 *
 * A            (…, K), f32 (f16 is computed in f32)
 * B            u8 (N, blocks, block_size * bits / 8): the elements of a block, the first
 *              in the low bits of a byte; blocks = K / block_size, rounded up
 * scales       (N, blocks), or as a vector
 * zero_points  u8 (N, blocks * bits / 8 rounded up), packed like B; or of scales' type
 *              and size; 2^(bits - 1) by default
 * g_idx        i32 (K): the block whose scale and zero point an element of a row has; its
 *              place / block_size by default
 * bias         (N)
 * Y            (…, N);  W = (B - zero_point) * scale
 *
 * accuracy_level (0 to 4) names the least exact arithmetic that is allowed. Only 4 has an
 * effect: like precision auto it permits rounding numbers of A to 8 bits where the CPU
 * has products of bytes (nbits_rounded.c; not with g_idx). Constant weights are packed,
 * `bits` an element (nbits.h); others are packed in shared memory before each product.
 * Cost: 2 m N K FLOPs.
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "nbits.h"

enum { A, B, SCALES, ZEROS, GROUP, BIAS };

struct nbits_args {
    int64_t K, N, bits, block_size, accuracy_level, weight_prepacked;
};
static const attnrun_attr_def nbits_attrs[] = {
    ATTR_INT_REQUIRED(struct nbits_args, K),
    ATTR_INT_REQUIRED(struct nbits_args, N),
    ATTR_INT(struct nbits_args, bits, 4),
    ATTR_INT_REQUIRED(struct nbits_args, block_size),
    ATTR_INT(struct nbits_args, accuracy_level, 0),
    ATTR_INT(struct nbits_args, weight_prepacked, 0),
    ATTR_END
};

/* ---- shapes ---- */

static attn_status nbits_check_args(const attnrun_step *step,
                                    const struct nbits_args *args)
{
    if (args->bits != 2 && args->bits != 4 && args->bits != 8)
        return op_fail(step, ATTNRUN_E_ATTR, "bits is %lld, expected 2, 4 or 8",
                       (long long)args->bits);
    TRY(attn_nbits_check_sizes(step, args->block_size, args->K, args->N));
    if (args->accuracy_level < 0 || args->accuracy_level > 4)
        return op_fail(step, ATTNRUN_E_ATTR, "accuracy_level is %lld, expected 0 to 4",
                       (long long)args->accuracy_level);
    if (args->weight_prepacked != 0)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "weight_prepacked is %lld, expected 0: weights as ONNX files hold "
                       "them",
                       (long long)args->weight_prepacked);
    return ATTNRUN_OK;
}

static int64_t blocks_of(const struct nbits_args *args)
{
    return ceil_div(args->K, args->block_size);
}

static attn_status nbits_check_inputs(const attnrun_step *step,
                                      const struct nbits_args *args)
{
    const int64_t blocks = blocks_of(args);
    const bool packed = op_has_in(step, ZEROS) && step->in[ZEROS].dtype == ATTNRUN_U8;
    if (blocks > ATTN_MAX_DIM / args->block_size)
        return op_fail_size(step, "K, rounded up to whole blocks,", "2^47");
    TRY(attn_nbits_check_count(step, B, args->N,
                               blocks * args->block_size * args->bits / 8));
    TRY(attn_nbits_check_count(step, SCALES, args->N, blocks));
    TRY(attn_nbits_check_count(step, ZEROS, args->N,
                               packed ? ceil_div(blocks * args->bits, 8) : blocks));
    /* Padding of a last block may have a place in g_idx. */
    if (op_has_in(step, GROUP) && op_rank_known(step, GROUP)) {
        TRY(op_need_rank(step, GROUP, 1));
        if (!dim_may_equal(step->in[GROUP].dims[0], dim_of(blocks * args->block_size)))
            TRY(op_need_dim(step, GROUP, 0, dim_of(args->K), "K"));
    }
    return attn_nbits_check_count(step, BIAS, args->N, 1);
}

static bool layout_of(const struct nbits_args *args, const struct attn_kernels *kernels,
                      const attnrun_type *in, int n_in, bool rounded,
                      struct attn_nbits_layout *l)
{
    *l = (struct attn_nbits_layout){ .rounded = rounded,
                                     .k = args->K,
                                     .n = args->N,
                                     .block = args->block_size,
                                     .blocks = blocks_of(args),
                                     .bits = (int32_t)args->bits };
    if (ZEROS < n_in && in[ZEROS].kind != ATTNRUN_ABSENT)
        l->zeros = in[ZEROS].dtype == ATTNRUN_U8 ? NBITS_ZERO_U8 : NBITS_ZERO_F32;
    l->by_group = GROUP < n_in && in[GROUP].kind != ATTNRUN_ABSENT;
    return attn_nbits_layout(kernels, l);
}

static attn_status nbits_infer(attnrun_step *step)
{
    const struct nbits_args *args = step->args;
    struct attn_nbits_state *state = step->state;
    TRY(nbits_check_args(step, args));
    TRY(nbits_check_inputs(step, args));
    TRY(attn_nbits_output(step, args->K, args->N));
    if (!step->concrete)
        return ATTNRUN_OK;
    if (!layout_of(args, step->kernels, step->in, step->n_in,
                   attn_nbits_rounds(step,
                                     op_count(&step->in[A], 0, step->in[A].rank - 1),
                                     args->accuracy_level),
                   &state->layout))
        return op_fail_size(step, "the memory of the packed form of B", "2^63 - 1 bytes");
    return attn_nbits_tasks(step);
}

/* ---- packing ---- */

/* The place of the first number in g_idx that names no block, or -1. */
static int64_t pack_groups(const struct attn_nbits_layout *l, const int32_t *group,
                           uint8_t *to)
{
    for (int64_t k = 0; l->by_group && k < l->k; k++) {
        if (group[k] < 0 || group[k] >= l->blocks)
            return k;
        memcpy(to + l->group_at + k * 4, &group[k], 4);
    }
    return -1;
}

static attn_status nbits_fill(const attnrun_node *node, const struct attn_nbits_layout *l,
                              const attnrun_tensor *x, int64_t begin, int64_t end,
                              uint8_t *to)
{
    const int64_t per = 8 / l->bits;
    struct attn_nbits_source from = { .b = x[B].data,
                                      .scales = x[SCALES].data,
                                      .step = 1,
                                      .b_line = l->blocks * l->block / per,
                                      .scale_line = l->blocks };
    if (begin == 0 && l->by_group) {
        const int32_t *group = x[GROUP].data;
        const int64_t wrong = pack_groups(l, group, to);
        if (wrong >= 0)
            return attn_fail_node(
                ATTNRUN_E_RANGE, node, "g_idx[%lld] is %d, expected 0 to %lld",
                (long long)wrong, group[wrong], (long long)(l->blocks - 1));
    }
    if (l->zeros == NBITS_ZERO_U8) {
        from.zeros_u8 = x[ZEROS].data;
        from.zero_line = ceil_div(l->blocks, per) * per;
    } else if (l->zeros == NBITS_ZERO_F32) {
        from.zeros_f32 = x[ZEROS].data;
        from.zero_line = l->blocks;
    }
    return attn_nbits_fill(l, &from, begin, end, to);
}

static bool all_constant(const attnrun_pack *pack)
{
    for (int in = B; in <= GROUP; in++)
        if (in < pack->n_in && pack->in[in].kind != ATTNRUN_ABSENT &&
            pack->x[in].data == NULL)
            return false;
    return true;
}

static attn_status nbits_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    struct attn_nbits_layout l;
    *bytes = 0;
    if (!all_constant(pack))
        return ATTNRUN_OK;
    if (!layout_of(pack->args, pack->kernels, pack->in, pack->n_in, false, &l))
        return attn_fail_node(ATTNRUN_E_LIMIT, pack->node,
                              "the packed form of B would be over 2^63 - 1 bytes");
    *bytes = l.bytes;
    for (int in = B; in <= GROUP; in++)
        if (in < pack->n_in && pack->in[in].kind != ATTNRUN_ABSENT)
            pack->replaces |= UINT32_C(1) << in;
    if (packed == NULL)
        return ATTNRUN_OK;
    memset(packed, 0, (size_t)l.bytes);
    return nbits_fill(pack->node, &l, pack->x, 0, l.panels, packed);
}

static attn_status nbits_check_packed(const attnrun_pack *pack, int64_t bytes,
                                      const void *packed)
{
    struct attn_nbits_layout l;
    const bool known =
        layout_of(pack->args, pack->kernels, pack->in, pack->n_in, false, &l);
    return attn_nbits_check_packed(known ? &l : NULL, pack, bytes, packed);
}

static attn_status nbits_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_nbits_state *state = step->state;
    return attn_nbits_op_run(step, work, nbits_fill,
                             (float)(1 << (state->layout.bits - 1)),
                             op_in_data(step, BIAS));
}

const attnrun_op_def op_matmul_nbits_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "MatMulNBits",
    .since = 1,
    .inputs = "A:T1 B:u8 scales:T1 zero_points:T3? g_idx:i32? bias:T1?",
    .outputs = "Y:T1",
    .types = "T1=f32 T3=u8,f32",
    .args_bytes = sizeof(struct nbits_args),
    .state_bytes = sizeof(struct attn_nbits_state),
    .attrs = nbits_attrs,
    .infer = nbits_infer,
    .pack = nbits_pack,
    .check_packed = nbits_check_packed,
    .run = nbits_run,
    .cost = "O(m n k)",
    .source = "ONNX Runtime contrib operators",
};
