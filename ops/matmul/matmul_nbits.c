/* matmul_nbits.c - com.microsoft MatMulNBits: Y = A W' + bias, where W (N, K) is 2, 4 or
 * 8 bits an element.
 *
 * A            (…, K), f32 (f16 is computed in f32)
 * B            u8 (N, blocks, block_size * bits / 8): the elements of a block, the first
 * in the low bits of a byte; blocks = K / block_size, rounded up scales       (N,
 * blocks), or as a vector zero_points  u8 (N, blocks * bits / 8 rounded up), packed like
 * B; or of scales' type and size; 2^(bits - 1) by default g_idx        i32 (K): the block
 * whose scale and zero point an element of a row has; its place / block_size by default
 * bias         (N)
 * Y            (…, N);  W = (B - zero_point) * scale
 * accuracy_level (0 to 4) names the least exact arithmetic that is allowed; here it is
 * f32 always. Constant weights are packed, `bits` an element (nbits.h); others are packed
 * in shared memory before each product. Source: ONNX Runtime contrib operators; compared
 * with onnxruntime 1.32.0. */
#include "nbits.h"

enum { A, B, SCALES, ZEROS, GROUP, BIAS, PANELS_A_TASK = 4 };

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

struct nbits_state {
    struct attn_nbits_layout layout;
    struct attn_nbits_plan plan;
};

/* ---- shapes ---- */

static attn_status check_args(const attnrun_step *step, const struct nbits_args *args)
{
    const int64_t block = args->block_size;
    if (args->bits != 2 && args->bits != 4 && args->bits != 8)
        return op_fail(step, ATTNRUN_E_ATTR, "bits is %lld, expected 2, 4 or 8",
                       (long long)args->bits);
    if (block < 16 || block > 1 << 20 || (block & (block - 1)) != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "block_size is %lld, expected a power of 2 from 16 on",
                       (long long)block);
    if (args->K < 1 || args->N < 1 || args->K > ATTN_MAX_DIM || args->N > ATTN_MAX_DIM)
        return op_fail(step, ATTNRUN_E_ATTR, "K is %lld and N %lld, expected over 0",
                       (long long)args->K, (long long)args->N);
    if (args->accuracy_level < 0 || args->accuracy_level > 4)
        return op_fail(step, ATTNRUN_E_ATTR, "accuracy_level is %lld, expected 0 to 4",
                       (long long)args->accuracy_level);
    if (args->weight_prepacked != 0)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "weight_prepacked is %lld: only weights as ONNX files hold them",
                       (long long)args->weight_prepacked);
    return ATTNRUN_OK;
}

static int64_t blocks_of(const struct nbits_args *args)
{
    return args->K / args->block_size + (args->K % args->block_size != 0);
}

/* Fails unless input `in`, where it is there, has n elements (lines of `each`). */
static attn_status check_count(const attnrun_step *step, int in, int64_t lines,
                               int64_t each)
{
    int64_t n;
    if (!op_has_in(step, in) || !op_rank_known(step, in))
        return ATTNRUN_OK;
    const attnrun_type *x = &step->in[in];
    attnrun_dim count = op_dims_product(step, x->dims, 0, x->rank);
    if (!ck_mul(lines, each, &n) || !dim_may_equal(count, dim_of(n)))
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "expected %lld times %lld elements", (long long)lines,
                             (long long)each);
    return ATTNRUN_OK;
}

static attn_status check_inputs(const attnrun_step *step, const struct nbits_args *args)
{
    const int64_t blocks = blocks_of(args);
    const bool packed = op_has_in(step, ZEROS) && step->in[ZEROS].dtype == ATTNRUN_U8;
    if (blocks > ATTN_MAX_DIM / args->block_size)
        return op_fail(step, ATTNRUN_E_LIMIT, "the matrix is too large");
    TRY(check_count(step, B, args->N, blocks * args->block_size * args->bits / 8));
    TRY(check_count(step, SCALES, args->N, blocks));
    TRY(check_count(step, ZEROS, args->N,
                    packed ? (blocks * args->bits + 7) / 8 : blocks));
    /* Padding of a last block may have a place in g_idx. */
    if (op_has_in(step, GROUP) && op_rank_known(step, GROUP)) {
        TRY(op_need_rank(step, GROUP, 1));
        if (!dim_may_equal(step->in[GROUP].dims[0], dim_of(blocks * args->block_size)))
            TRY(op_need_dim(step, GROUP, 0, dim_of(args->K), "K"));
    }
    return check_count(step, BIAS, args->N, 1);
}

static bool layout_of(const struct nbits_args *args, const struct attn_kernels *kernels,
                      const attnrun_type *in, int n_in, struct attn_nbits_layout *l)
{
    *l = (struct attn_nbits_layout){ .k = args->K,
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
    const attnrun_type *a = &step->in[A];
    struct nbits_state *state = step->state;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    TRY(check_args(step, args));
    TRY(check_inputs(step, args));
    TRY(op_need_rank_between(step, A, 1, ATTNRUN_MAX_RANK));
    if (a->rank < 0)
        return op_out(step, 0, a->dtype, -1, NULL);
    TRY(op_need_dim(step, A, a->rank - 1, dim_of(args->K), "attribute K"));
    memcpy(dims, a->dims, sizeof dims);
    dims[a->rank - 1] = dim_of(args->N);
    TRY(op_out(step, 0, a->dtype, a->rank, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    struct attn_nbits_layout *l = &state->layout;
    if (!layout_of(args, step->kernels, step->in, step->n_in, l))
        return op_fail(step, ATTNRUN_E_LIMIT, "the matrix is too large");
    TRY(attn_nbits_plan(step, l, op_count(a, 0, a->rank - 1), &state->plan));
    const int first = step->node->packed == NULL;
    if (first) {
        step->shared_bytes = l->bytes;
        op_tasks(step, 0, (l->panels + PANELS_A_TASK - 1) / PANELS_A_TASK,
                 l->k < 1 << 20 ? l->k * 200 : 200 << 20);
    }
    op_tasks(step, first, state->plan.n_tasks, state->plan.task_cost);
    step->scratch_bytes = state->plan.scratch_bytes;
    return ATTNRUN_OK;
}

/* ---- packing ---- */

struct source {
    const uint8_t *b, *zeros_u8;
    const float *scales, *zeros;
    const int32_t *group;
};

static struct source source_of(const attnrun_tensor *x, const struct attn_nbits_layout *l)
{
    struct source from = { .b = x[B].data, .scales = x[SCALES].data };
    if (l->zeros == NBITS_ZERO_U8)
        from.zeros_u8 = x[ZEROS].data;
    else if (l->zeros == NBITS_ZERO_F32)
        from.zeros = x[ZEROS].data;
    if (l->by_group)
        from.group = x[GROUP].data;
    return from;
}

static void pack_column(const struct attn_nbits_layout *l, const struct source *from,
                        int64_t j, uint8_t *to)
{
    const int64_t row = l->blocks * l->block * l->bits / 8, per = 8 / l->bits;
    const int64_t zeros_row = (l->blocks * l->bits + 7) / 8;
    const uint8_t *b = from->b + j * row, mask = (uint8_t)((1 << l->bits) - 1);
    for (int64_t k = 0; k < l->k; k += per) /* places past k are junk that nobody reads */
        to[(j / l->width * ((l->k + per - 1) / per) + k / per) * l->width +
           j % l->width] = b[k / per];
    float *scale = (float *)(void *)(to + l->scale_at);
    float *zero = (float *)(void *)(to + l->zero_at);
    for (int64_t i = 0; i < l->blocks; i++) {
        const int64_t at = attn_nbits_scale(l, i, j);
        scale[at] = from->scales[j * l->blocks + i];
        if (from->zeros != NULL)
            zero[at] = from->zeros[j * l->blocks + i];
        if (from->zeros_u8 != NULL)
            to[l->zero_at + at] =
                from->zeros_u8[j * zeros_row + i / per] >> (i % per * l->bits) & mask;
    }
}

/* Panels [begin, end); the columns that fill up the last one are zeros. */
static void pack_panels(const struct attn_nbits_layout *l, const struct source *from,
                        int64_t begin, int64_t end, uint8_t *to)
{
    const int64_t bytes = (l->k * l->bits + 7) / 8 * l->width;
    const int64_t scales = l->blocks * l->width;
    for (int64_t p = begin; p < end; p++) {
        if ((p + 1) * l->width > l->n) {
            memset(to + p * bytes, 0, (size_t)bytes);
            memset(to + l->scale_at + p * scales * 4, 0, (size_t)scales * 4);
            if (l->zeros != NBITS_ZERO_ONE) {
                const int64_t each = l->zeros == NBITS_ZERO_U8 ? 1 : 4;
                memset(to + l->zero_at + p * scales * each, 0, (size_t)(scales * each));
            }
        }
        for (int64_t j = p * l->width; j < (p + 1) * l->width && j < l->n; j++)
            pack_column(l, from, j, to);
    }
}

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
    if (!layout_of(pack->args, pack->kernels, pack->in, pack->n_in, &l))
        return attn_fail_node(ATTNRUN_E_LIMIT, pack->node, "the matrix is too large");
    *bytes = l.bytes;
    if (packed == NULL)
        return ATTNRUN_OK;
    const struct source from = source_of(pack->x, &l);
    memset(packed, 0, (size_t)l.bytes);
    const int64_t wrong = pack_groups(&l, from.group, packed);
    if (wrong >= 0)
        return attn_fail_node(ATTNRUN_E_RANGE, pack->node,
                              "g_idx[%lld] is %d, expected 0 to %lld", (long long)wrong,
                              from.group[wrong], (long long)(l.blocks - 1));
    pack_panels(&l, &from, 0, l.panels, packed);
    for (int in = B; in <= GROUP; in++)
        if (in < pack->n_in && pack->in[in].kind != ATTNRUN_ABSENT)
            pack->replaces |= UINT32_C(1) << in;
    return ATTNRUN_OK;
}

/* ---- run ---- */

static attn_status run_pack(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_nbits_layout *l = &((struct nbits_state *)step->state)->layout;
    const struct source from = source_of(step->x, l);
    if (work->begin == 0) {
        const int64_t wrong = pack_groups(l, from.group, work->shared);
        if (wrong >= 0)
            return op_fail(step, ATTNRUN_E_RANGE, "g_idx[%lld] is %d, expected 0 to %lld",
                           (long long)wrong, from.group[wrong],
                           (long long)(l->blocks - 1));
    }
    for (int64_t t = work->begin; t < work->end; t++) {
        const int64_t end = (t + 1) * PANELS_A_TASK;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        pack_panels(l, &from, t * PANELS_A_TASK, end < l->panels ? end : l->panels,
                    work->shared);
    }
    return ATTNRUN_OK;
}

static attn_status nbits_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct nbits_state *state = step->state;
    const void *packed = step->node->packed;
    if (packed == NULL && work->phase == 0)
        return run_pack(step, work);
    const struct attn_nbits_operands o = {
        .a = step->x[A].data,
        .bias = op_in_data(step, BIAS),
        .y = step->y[0].data,
        .b = attn_nbits_at(&state->layout, packed != NULL ? packed : work->shared,
                           (float)(1 << (state->layout.bits - 1)))
    };
    return attn_nbits_run(&state->layout, &state->plan, step->kernels, &o, work);
}

const attnrun_op_def op_matmul_nbits_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "com.microsoft",
    .name = "MatMulNBits",
    .since = 1,
    .inputs = "A:T1 B:u8 scales:T1 zero_points:T3? g_idx:i32? bias:T1?",
    .outputs = "Y:T1",
    .types = "T1=f32 T3=u8,f32",
    .args_bytes = sizeof(struct nbits_args),
    .state_bytes = sizeof(struct nbits_state),
    .attrs = nbits_attrs,
    .infer = nbits_infer,
    .pack = nbits_pack,
    .run = nbits_run,
    .cost = "O(m n k)",
    .source = "ONNX Runtime contrib operators",
};
