/* matmul_bnb4.c - com.microsoft MatMulBnb4: Y = A W', where W (N, K) has 4 bits an
 * element as bitsandbytes makes them.
 *
 * A        (…, K), f32
 * B        u8: the N * K elements row by row, the first one in the high bits of a byte
 * absmax   f32: a factor for each block_size of them, across rows
 * Y        (…, N);  an element is table[code] * absmax
 *
 * quant_type 0 is FP4 (a sign, two bits of exponent, one of fraction); 1 is NF4. transB
 * must be 1. Weights are packed as in nbits.h. Where blocks do not end with rows, a
 * factor is kept for each gcd(K, block_size) elements. Cost: 2 m N K FLOPs.
 * Source: ONNX Runtime contrib operators; Dettmers 2023, arXiv:2305.14314; compared with
 * onnxruntime 1.32.0. */
#include "nbits.h"

enum { B = 1, ABSMAX };

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
                                     /* Blocks that begin within a word. */
                                     .by_group = block % 8 != 0 };
    return attn_nbits_layout(kernels, l);
}

static attn_status bnb4_check_args(const attnrun_step *step, const struct bnb4_args *args)
{
    int64_t elements;
    if (args->quant_type != 0 && args->quant_type != 1)
        return op_fail(step, ATTNRUN_E_ATTR, "quant_type is %lld, expected 0 or 1",
                       (long long)args->quant_type);
    TRY(attn_nbits_check_sizes(step, args->block_size, args->K, args->N));
    if (!ck_mul(args->K, args->N, &elements) || elements > ATTN_MAX_ELEMENTS)
        return op_fail_size(step, "the number of elements of B (K times N)", "2^46");
    if (args->transB != 1)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "transB is %lld, expected 1",
                       (long long)args->transB);
    TRY(attn_nbits_check_count(step, B, elements / 2 + elements % 2, 1));
    return attn_nbits_check_count(step, ABSMAX, ceil_div(elements, args->block_size), 1);
}

static attn_status bnb4_infer(attnrun_step *step)
{
    const struct bnb4_args *args = step->args;
    struct attn_nbits_state *state = step->state;
    TRY(bnb4_check_args(step, args));
    TRY(attn_nbits_output(step, args->K, args->N));
    if (!step->concrete)
        return ATTNRUN_OK;
    if (!layout_of(args, step->kernels, &state->layout))
        return op_fail_size(step, "the memory of the packed form of B", "2^63 - 1 bytes");
    return attn_nbits_tasks(step);
}

/* With panel 0 comes what all share. */
static attn_status bnb4_fill(const attnrun_node *node, const struct attn_nbits_layout *l,
                             const attnrun_tensor *x, int64_t begin, int64_t end,
                             uint8_t *to)
{
    const struct bnb4_args *args = node->args;
    const uint8_t *b = x[B].data;
    const float *absmax = x[ABSMAX].data;
    float *scale = (float *)(void *)(to + l->scale_at);
    attn_nbits_clear(l, begin, end, to);
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
        TRY(attn_poll_work(l->k));
        for (int64_t i = 0; i < l->blocks; i++)
            scale[attn_nbits_scale(l, i, j)] =
                absmax[(j * l->k + i * l->block) / args->block_size];
    }
    return ATTNRUN_OK;
}

static attn_status bnb4_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    struct attn_nbits_layout l;
    *bytes = 0;
    if (pack->x[B].data == NULL || pack->x[ABSMAX].data == NULL)
        return ATTNRUN_OK;
    if (!layout_of(pack->args, pack->kernels, &l))
        return attn_fail_node(ATTNRUN_E_LIMIT, pack->node,
                              "the packed form of B would be over 2^63 - 1 bytes");
    *bytes = l.bytes;
    pack->replaces = 1u << B | 1u << ABSMAX;
    if (packed == NULL)
        return ATTNRUN_OK;
    memset(packed, 0, (size_t)l.bytes);
    return bnb4_fill(pack->node, &l, pack->x, 0, l.panels, packed);
}

static attn_status bnb4_check_packed(const attnrun_pack *pack, int64_t bytes,
                                     const void *packed)
{
    struct attn_nbits_layout l;
    const bool known = layout_of(pack->args, pack->kernels, &l);
    return attn_nbits_check_packed(known ? &l : NULL, pack, bytes, packed);
}

static attn_status bnb4_run(const attnrun_step *step, const attnrun_work *work)
{
    return attn_nbits_op_run(step, work, bnb4_fill, 0.0f, NULL);
}

const attnrun_op_def op_matmul_bnb4_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "MatMulBnb4",
    .since = 1,
    .inputs = "A:T1 B:u8 absmax:T1",
    .outputs = "Y:T1",
    .types = "T1=f32",
    .args_bytes = sizeof(struct bnb4_args),
    .state_bytes = sizeof(struct attn_nbits_state),
    .attrs = bnb4_attrs,
    .infer = bnb4_infer,
    .pack = bnb4_pack,
    .check_packed = bnb4_check_packed,
    .run = bnb4_run,
    .cost = "O(m n k)",
    .source = "ONNX Runtime contrib operators; arXiv:2305.14314",
};
