/* matmul_bnb4.c - com.microsoft MatMulBnb4: Y = A W', where W (N, K) is 4 bits an element
 * as bitsandbytes makes them.
 *
 * A        (…, K), f32
 * B        u8: the N * K elements row by row, the first one in the high bits of a byte
 * absmax   f32: a factor for each block_size of them, whatever their rows
 * Y        (…, N);  an element is table[code] * absmax
 * quant_type 0: FP4 (a sign, two bits of exponent, one of fraction); 1: NF4 (Dettmers
 * 2023, arXiv:2305.14314). transB must be 1. Weights are packed as in nbits.h. Where
 * blocks do not end with rows, a factor is kept for each gcd(K, block_size) elements.
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "nbits.h"

enum { A, B, ABSMAX, PANELS_A_TASK = 4 };

struct bnb4_args {
    int64_t K, N, block_size, quant_type, transB, training_mode;
};
static const attnrun_attr_def bnb4_attrs[] = {
    ATTR_INT_REQUIRED(struct bnb4_args, K),
    ATTR_INT_REQUIRED(struct bnb4_args, N),
    ATTR_INT_REQUIRED(struct bnb4_args, block_size),
    ATTR_INT_REQUIRED(struct bnb4_args, quant_type),
    ATTR_INT(struct bnb4_args, transB, 1),
    ATTR_INT(struct bnb4_args, training_mode, 0),
    ATTR_END
};

static const float tables[2][16] = {
    { 0.0f, 5.208333333e-03f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f,
      -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f,
      -0.25f },
    { -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
      -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
      0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f,
      0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
      0.7229568362236023f, 1.0f },
};

struct bnb4_state {
    struct attn_nbits_layout layout;
    struct attn_nbits_plan plan;
};

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool layout_of(const struct bnb4_args *args, const struct attn_kernels *kernels,
                      struct attn_nbits_layout *l)
{
    const int64_t block = gcd(args->K, args->block_size);
    *l = (struct attn_nbits_layout){ .k = args->K,
                                     .n = args->N,
                                     .block = block,
                                     .blocks = args->K / block,
                                     .bits = 4,
                                     .by_table = 1,
                                     /* Blocks that begin within a byte. */
                                     .by_group = block % 2 != 0 };
    return attn_nbits_layout(kernels, l);
}

static attn_status check_count(const attnrun_step *step, int in, int64_t elements,
                               int64_t each)
{
    const attnrun_type *x = &step->in[in];
    const int64_t n = elements / each + (elements % each != 0);
    if (x->rank < 0 ||
        dim_may_equal(op_dims_product(step, x->dims, 0, x->rank), dim_of(n)))
        return ATTNRUN_OK;
    return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected %lld elements",
                         (long long)n);
}

static attn_status check_args(const attnrun_step *step, const struct bnb4_args *args)
{
    int64_t elements;
    if (args->quant_type != 0 && args->quant_type != 1)
        return op_fail(step, ATTNRUN_E_ATTR, "quant_type is %lld, expected 0 or 1",
                       (long long)args->quant_type);
    if (args->block_size < 16 || args->block_size > 1 << 20 ||
        (args->block_size & (args->block_size - 1)) != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "block_size is %lld, expected a power of 2 from 16 on",
                       (long long)args->block_size);
    if (args->K < 1 || args->N < 1 || !ck_mul(args->K, args->N, &elements) ||
        elements > ATTN_MAX_ELEMENTS)
        return op_fail(step, ATTNRUN_E_ATTR, "K is %lld and N %lld, expected over 0",
                       (long long)args->K, (long long)args->N);
    if (args->transB != 1)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "transB is %lld, expected 1",
                       (long long)args->transB);
    TRY(check_count(step, B, elements, 2));
    return check_count(step, ABSMAX, elements, args->block_size);
}

static attn_status bnb4_infer(attnrun_step *step)
{
    const struct bnb4_args *args = step->args;
    const attnrun_type *a = &step->in[A];
    struct bnb4_state *state = step->state;
    struct attn_nbits_layout *l = &state->layout;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    TRY(check_args(step, args));
    TRY(op_need_rank_between(step, A, 1, ATTNRUN_MAX_RANK));
    if (a->rank < 0)
        return op_out(step, 0, a->dtype, -1, NULL);
    TRY(op_need_dim(step, A, a->rank - 1, dim_of(args->K), "attribute K"));
    memcpy(dims, a->dims, sizeof dims);
    dims[a->rank - 1] = dim_of(args->N);
    TRY(op_out(step, 0, a->dtype, a->rank, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    if (!layout_of(args, step->kernels, l))
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

/* Panels [begin, end) of memory that was zeroed; with panel 0 what all share. */
static void pack_panels(const struct attn_nbits_layout *l, const struct bnb4_args *args,
                        const attnrun_tensor *x, int64_t begin, int64_t end, uint8_t *to)
{
    const uint8_t *b = x[B].data;
    const float *absmax = x[ABSMAX].data;
    float *scale = (float *)(void *)(to + l->scale_at);
    if (begin == 0)
        memcpy(to + l->table_at, tables[args->quant_type], sizeof tables[0]);
    for (int32_t k = 0; begin == 0 && l->by_group && k < l->k; k++) {
        const int32_t block = (int32_t)(k / l->block);
        memcpy(to + l->group_at + (int64_t)k * 4, &block, 4);
    }
    for (int64_t j = begin * l->width; j < end * l->width && j < l->n; j++) {
        for (int64_t k = 0; k < l->k; k++) {
            const int64_t at = j * l->k + k;
            attn_nbits_put(l, to, k, j, b[at / 2] >> (at % 2 == 0 ? 4 : 0) & 15);
        }
        for (int64_t i = 0; i < l->blocks; i++)
            scale[attn_nbits_scale(l, i, j)] =
                absmax[(j * l->k + i * l->block) / args->block_size];
    }
}

static attn_status bnb4_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    struct attn_nbits_layout l;
    *bytes = 0;
    if (pack->x[B].data == NULL || pack->x[ABSMAX].data == NULL)
        return ATTNRUN_OK;
    if (!layout_of(pack->args, pack->kernels, &l))
        return attn_fail_node(ATTNRUN_E_LIMIT, pack->node, "the matrix is too large");
    *bytes = l.bytes;
    if (packed == NULL)
        return ATTNRUN_OK;
    memset(packed, 0, (size_t)l.bytes);
    pack_panels(&l, pack->args, pack->x, 0, l.panels, packed);
    pack->replaces = 1u << B | 1u << ABSMAX;
    return ATTNRUN_OK;
}

/* The panels of a task in shared memory, whose content is undefined before. */
static void pack_task(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct attn_nbits_layout *l = &((struct bnb4_state *)step->state)->layout;
    const int64_t begin = task * PANELS_A_TASK, bytes = (l->k + 1) / 2 * l->width;
    const int64_t end =
        begin + PANELS_A_TASK < l->panels ? begin + PANELS_A_TASK : l->panels;
    const int64_t scales = l->blocks * l->width * 4;
    uint8_t *to = work->shared;
    memset(to + begin * bytes, 0, (size_t)((end - begin) * bytes));
    memset(to + l->scale_at + begin * scales, 0, (size_t)((end - begin) * scales));
    pack_panels(l, step->args, step->x, begin, end, to);
}

static attn_status bnb4_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct bnb4_state *state = step->state;
    const void *packed = step->node->packed;
    if (packed == NULL && work->phase == 0) {
        for (int64_t t = work->begin; t < work->end; t++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            pack_task(step, work, t);
        }
        return ATTNRUN_OK;
    }
    const struct attn_nbits_operands o = {
        .a = step->x[A].data,
        .y = step->y[0].data,
        .b = attn_nbits_at(&state->layout, packed != NULL ? packed : work->shared, 0.0f)
    };
    return attn_nbits_run(&state->layout, &state->plan, step->kernels, &o, work);
}

const attnrun_op_def op_matmul_bnb4_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "com.microsoft",
    .name = "MatMulBnb4",
    .since = 1,
    .inputs = "A:T1 B:u8 absmax:T1",
    .outputs = "Y:T1",
    .types = "T1=f32",
    .args_bytes = sizeof(struct bnb4_args),
    .state_bytes = sizeof(struct bnb4_state),
    .attrs = bnb4_attrs,
    .infer = bnb4_infer,
    .pack = bnb4_pack,
    .run = bnb4_run,
    .cost = "O(m n k)",
    .source = "ONNX Runtime contrib operators; arXiv:2305.14314",
};
