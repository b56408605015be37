/* qmoe.c - com.microsoft QMoE: a mixture of experts (mixture.h) whose weights have 2, 4
 * or 8 bits.
 *
 * fc*            u8 (E, lines, elements * bits / 8), the first element in the low bits
 * scales         (E, lines), or (E, lines, elements / block_size) with block_size
 * zero points    u8, packed like the weights: along the lines (E, lines * bits / 8), or
 *                along the blocks (E, lines, blocks * bits / 8); 2^(bits - 1) by default
 * router_weights (tokens, E): the weights of the chosen experts instead of their softmax
 *
 * W = (fc - zero point) * scale. Products are sums of floats. accuracy_level 4 and
 * precision auto permit rounding their left operand to 8 bits
 * (ops/kernels/nbits_rounded.c). Constant weights are packed, `bits` an element
 * (ops/matmul/nbits.h); an earlier phase packs other weights in shared memory. Weights of
 * quant_type fp4, nvfp4 and fp8, and those of 3 bits, have no kernel for CPUs in ONNX
 * Runtime either. Cost: see mixture.h. Source: ONNX Runtime contrib operators; compared
 * with onnxruntime 1.32.0. */
#include <math.h>

#include "../matmul/nbits.h"
#include "mixture.h"

enum { X, ROUTER, W1, S1, B1, W2, S2, B2, W3, S3, B3, Z1, Z2, Z3, MIX };
static const int32_t scales_of[MIXTURE_MATRICES] = { S1, S2, S3 };
static const int32_t zeros_of[MIXTURE_MATRICES] = { Z1, Z2, Z3 };

struct qmoe_args {
    struct mixture_args shared;
    int32_t quant_type;
    int64_t weights_prepacked, accuracy_level, block_size, expert_weight_bits;
    int64_t fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits;
};
enum { QMOE_INT };
static const attnrun_attr_def qmoe_attrs[] = {
    MIXTURE_ATTR_ROWS,
    ATTR_ENUM(struct qmoe_args, quant_type, "int|fp4|nvfp4|fp8|wfp4afp8", QMOE_INT),
    ATTR_CHOICE(struct qmoe_args, weights_prepacked, "-1..1", -1),
    ATTR_INT(struct qmoe_args, accuracy_level, 0),
    ATTR_INT(struct qmoe_args, block_size, 0),
    ATTR_INT(struct qmoe_args, expert_weight_bits, 4),
    ATTR_INT(struct qmoe_args, fc1_expert_weight_bits, 0),
    ATTR_INT(struct qmoe_args, fc2_expert_weight_bits, 0),
    ATTR_INT(struct qmoe_args, fc3_expert_weight_bits, 0),
    ATTR_END
};

struct qmoe_state {
    struct mixture_state shared;
    struct attn_nbits_layout layouts[MIXTURE_MATRICES]; /* up[0], up[1], down */
    bool pack_in_run;
};

static int32_t bits_of(const struct qmoe_args *args, int which)
{
    const int64_t own[MIXTURE_MATRICES] = { args->fc1_expert_weight_bits,
                                            args->fc2_expert_weight_bits,
                                            args->fc3_expert_weight_bits };
    return (int32_t)(own[which] != 0 ? own[which] : args->expert_weight_bits);
}

static attn_status qmoe_multiply(const attnrun_step *step, const attnrun_work *work,
                                 struct mixture_product *product)
{
    const struct qmoe_state *state = step->state;
    const struct mixture_matrix *m = product->matrix;
    const struct attn_nbits_layout *l =
        &state->layouts[m == &state->shared.down ? 2 : m - state->shared.up];
    const uint8_t *packed = state->pack_in_run ? work->shared : step->node->packed;
    const struct attn_nbits b =
        attn_nbits_at(l, packed + m->packed_at + product->expert * m->packed_bytes,
                      (float)(1 << (l->bits - 1)));
    struct attn_nbits_block block = { .b = &b,
                                      .a = product->a,
                                      .bias = product->bias,
                                      .c = product->c,
                                      .scratch = product->scratch,
                                      .a_row = product->a_row,
                                      .c_row = product->c_row,
                                      .m = product->m,
                                      .column = product->column,
                                      .n = product->n };
    if (attn_nbits_same_rows(l, state->layouts)) /* then the bits are, which say `zero` */
        block.rows = product->rows;
    TRY(attn_nbits_multiply(l, step->kernels, &block));
    product->rows = block.rows;
    return ATTNRUN_OK;
}

static const struct mixture_kind qmoe = { .weights = { W1, W2, W3 },
                                          .biases = { B1, B2, B3 },
                                          .router_weights = MIX,
                                          .normalized = true,
                                          .min_weight = 1e-8f,
                                          .multiply = qmoe_multiply };

/* ---- shapes ---- */

static attn_status qmoe_check_args(const attnrun_node *node, const struct qmoe_args *args,
                                   int64_t per[MIXTURE_MATRICES])
{
    const int64_t block = args->block_size;
    if (args->quant_type != QMOE_INT)
        return attn_fail_node(ATTNRUN_E_UNSUPPORTED, node,
                              "quant_type is not int, which is the only one supported");
    if (args->weights_prepacked == 1)
        return attn_fail_node(ATTNRUN_E_UNSUPPORTED, node,
                              "weights_prepacked is 1, expected 0: weights as ONNX files "
                              "hold them");
    if (block != 0 && (block < 16 || block > 1 << 20 || (block & (block - 1)) != 0))
        return attn_fail_node(ATTNRUN_E_ATTR, node,
                              "block_size is %lld, expected a power of 2 from 16 on",
                              (long long)block);
    for (int which = 0; which < MIXTURE_MATRICES; which++) {
        const int64_t bits = bits_of(args, which);
        if (bits != 2 && bits != 4 && bits != 8)
            return attn_fail_node(bits == 3 ? ATTNRUN_E_UNSUPPORTED : ATTNRUN_E_ATTR,
                                  node, "expert_weight_bits is %lld, expected 2, 4 or 8",
                                  (long long)bits);
        per[which] = 8 / bits;
    }
    return ATTNRUN_OK;
}

/* The layouts and places of the packed matrices; false: overflow. */
static bool qmoe_lay_out(const struct attn_kernels *kernels, const struct qmoe_args *args,
                         const attnrun_type *in, int n_in, bool rounded,
                         struct qmoe_state *state)
{
    struct mixture_state *s = &state->shared;
    s->packed_bytes = 0;
    for (int i = 0; i < MIXTURE_MATRICES; i++) {
        struct mixture_matrix *m = i < 2 ? &s->up[i] : &s->down;
        struct attn_nbits_layout *l = &state->layouts[i];
        const int zeros = zeros_of[m->which];
        int64_t all;
        if (i == 1 && s->n_up == 1)
            continue;
        *l = (struct attn_nbits_layout){ .rounded = rounded,
                                         .k = m->k,
                                         .n = m->n,
                                         .block = args->block_size,
                                         .bits = bits_of(args, m->which) };
        if (l->block == 0)
            l->block = round_up(l->k, 16);
        l->blocks = ceil_div(l->k, l->block);
        if (zeros < n_in && in[zeros].kind != ATTNRUN_ABSENT)
            l->zeros = NBITS_ZERO_U8;
        if (!attn_nbits_layout(kernels, l))
            return false;
        m->packed_bytes = l->bytes; /* a multiple of 64 */
        m->packed_at = s->packed_bytes;
        if (!ck_mul(m->packed_bytes, s->experts, &all) ||
            !ck_add(s->packed_bytes, all, &s->packed_bytes))
            return false;
    }
    return true;
}

/* Bytes of the zero points of an expert. */
static int64_t zero_bytes(const struct qmoe_args *args, const struct mixture_matrix *m,
                          const struct attn_nbits_layout *l)
{
    return args->block_size != 0 ? m->lines * ceil_div(l->blocks * l->bits, 8)
                                 : ceil_div(m->lines * l->bits, 8);
}

/* Checks the scales and the zero points of a matrix. */
static attn_status check_matrix(const attnrun_step *step, const struct mixture_matrix *m,
                                const struct attn_nbits_layout *l)
{
    const struct qmoe_args *args = step->args;
    const struct mixture_state *s = step->state;
    const int scales = scales_of[m->which], zeros = zeros_of[m->which];
    if (args->block_size != 0 && m->k % args->block_size != 0)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "a row of %lld is not a multiple of block_size, %lld",
                       (long long)m->k, (long long)args->block_size);
    if (!op_has_in(step, scales))
        return op_fail(step, ATTNRUN_E_INPUT, "the scales of input %d are missing",
                       m->weights);
    TRY(attn_nbits_check_count(step, scales, s->experts, m->lines * l->blocks));
    return attn_nbits_check_count(step, zeros, s->experts, zero_bytes(args, m, l));
}

static attn_status qmoe_infer(attnrun_step *step)
{
    const struct qmoe_args *args = step->args;
    struct qmoe_state *state = step->state;
    struct mixture_state *s = &state->shared;
    int64_t per[MIXTURE_MATRICES], scratch = 0;
    TRY(qmoe_check_args(step->node, step->args, per));
    TRY(attn_mixture_output(step));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_mixture_shapes(step, &qmoe, per));
    if (!qmoe_lay_out(step->kernels, step->args, step->in, step->n_in,
                      attn_nbits_rounds(step, 1, args->accuracy_level), state))
        return op_fail_size(step, "the memory of the packed weights", "2^63 - 1 bytes");
    for (int i = 0; i < MIXTURE_MATRICES; i++) {
        if (i == 1 && s->n_up == 1)
            continue;
        const int64_t bytes = attn_nbits_scratch(&state->layouts[i], MIXTURE_ROWS);
        TRY(check_matrix(step, i < 2 ? &s->up[i] : &s->down, &state->layouts[i]));
        scratch = bytes > scratch ? bytes : scratch;
    }
    state->pack_in_run = step->node->packed == NULL;
    s->first_phase = state->pack_in_run;
    if (state->pack_in_run) {
        step->shared_bytes = s->packed_bytes;
        op_tasks(step, 0, s->experts, s->packed_bytes / s->experts);
    }
    return attn_mixture_tasks(step, scratch);
}

/* ---- packing ---- */

/* Packs the matrices of expert e. */
static attn_status qmoe_fill(const struct qmoe_args *args, const struct qmoe_state *state,
                             const attnrun_tensor *x, int64_t e, uint8_t *to)
{
    for (int i = 0; i < MIXTURE_MATRICES; i++) {
        const struct mixture_matrix *m =
            i < 2 ? &state->shared.up[i] : &state->shared.down;
        const struct attn_nbits_layout *l = &state->layouts[i];
        if (i == 1 && state->shared.n_up == 1)
            continue;
        const int64_t per = 8 / l->bits;
        struct attn_nbits_source from = { .first = m->first,
                                          .step = m->step,
                                          .b_line = m->k / per,
                                          .scale_line = l->blocks,
                                          .zero_line = 1 };
        from.b = (const uint8_t *)x[m->weights].data + e * m->lines * from.b_line;
        from.scales =
            (const float *)x[scales_of[m->which]].data + e * m->lines * l->blocks;
        if (l->zeros == NBITS_ZERO_U8)
            from.zeros_u8 =
                (const uint8_t *)x[zeros_of[m->which]].data + e * zero_bytes(args, m, l);
        if (args->block_size != 0)
            from.zero_line = ceil_div(l->blocks, per) * per;
        TRY(attn_nbits_fill(l, &from, 0, l->panels,
                            to + m->packed_at + e * m->packed_bytes));
    }
    return ATTNRUN_OK;
}

static bool all_constant(const attnrun_pack *pack, const struct mixture_matrix *m)
{
    const int inputs[] = { m->weights, scales_of[m->which], zeros_of[m->which] };
    for (int i = 0; i < 3; i++)
        if (inputs[i] < pack->n_in && pack->in[inputs[i]].kind != ATTNRUN_ABSENT &&
            pack->x[inputs[i]].data == NULL)
            return false;
    return true;
}

/* What infer() finds wrong is not packed: the counts of scales and zero points are as the
 * layout wants them. */
static bool counts_fit(const attnrun_pack *pack, const struct qmoe_args *args,
                       const struct qmoe_state *state, int i)
{
    const struct mixture_matrix *m = i < 2 ? &state->shared.up[i] : &state->shared.down;
    const struct attn_nbits_layout *l = &state->layouts[i];
    const int scales = scales_of[m->which], zeros = zeros_of[m->which];
    return scales < pack->n_in && pack->x[scales].data != NULL &&
           (args->block_size == 0 || m->k % args->block_size == 0) &&
           tensor_count(&pack->x[scales]) ==
               state->shared.experts * m->lines * l->blocks &&
           (l->zeros != NBITS_ZERO_U8 ||
            tensor_count(&pack->x[zeros]) ==
                state->shared.experts * zero_bytes(args, m, l));
}

static attn_status qmoe_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const struct qmoe_args *args = pack->args;
    struct qmoe_state state = { 0 };
    const struct mixture_matrix *m[MIXTURE_MATRICES];
    int64_t per[MIXTURE_MATRICES];
    const char *text;
    int wrong;
    *bytes = 0;
    TRY(qmoe_check_args(pack->node, args, per));
    if (!attn_mixture_matrices(&qmoe, &args->shared, pack->n_in, pack->in, per,
                               &state.shared, &wrong, &text))
        return ATTNRUN_OK; /* infer() says so */
    if (!qmoe_lay_out(pack->kernels, args, pack->in, pack->n_in, false, &state))
        return attn_fail_node(ATTNRUN_E_LIMIT, pack->node,
                              "the packed weights would be over 2^63 - 1 bytes");
    const int n = attn_mixture_list(&state.shared, m);
    for (int i = 0; i < n; i++)
        if (!all_constant(pack, m[i]) ||
            !counts_fit(pack, args, &state, m[i] == &state.shared.down ? 2 : i))
            return ATTNRUN_OK;
    *bytes = state.shared.packed_bytes;
    for (int i = 0; i < n; i++) {
        pack->replaces |= UINT32_C(1) << m[i]->weights | UINT32_C(1)
                                                             << scales_of[m[i]->which];
        if (zeros_of[m[i]->which] < pack->n_in)
            pack->replaces |= UINT32_C(1) << zeros_of[m[i]->which];
    }
    if (packed == NULL)
        return ATTNRUN_OK;
    memset(packed, 0, (size_t)*bytes);
    for (int64_t e = 0; e < state.shared.experts; e++)
        TRY(qmoe_fill(args, &state, pack->x, e, packed));
    return ATTNRUN_OK;
}

/* ---- run ---- */

static attn_status qmoe_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct qmoe_state *state = step->state;
    if (!state->pack_in_run || work->phase > 0)
        return attn_mixture_run(step, work, &qmoe);
    for (int64_t e = work->begin; e < work->end; e++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(qmoe_fill(step->args, state, step->x, e, work->shared));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ms_qmoe_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "QMoE",
    .since = 1,
    .args_bytes = sizeof(struct qmoe_args),
    .state_bytes = sizeof(struct qmoe_state),
    .inputs = "input:T router_probs:T fc1_experts_weights:u8 fc1_scales:T2? "
              "fc1_experts_bias:T? fc2_experts_weights:u8 fc2_scales:T2? "
              "fc2_experts_bias:T? fc3_experts_weights:u8? fc3_scales:T2? "
              "fc3_experts_bias:T? fc1_zero_points:u8? fc2_zero_points:u8? "
              "fc3_zero_points:u8? router_weights:T? fc1_global_scale:T2? "
              "fc2_global_scale:T2? fc1_act_scale:T2? fc2_act_scale:T2? "
              "fc1_act_block_scale:T2? fc2_act_block_scale:T2?",
    .outputs = "output:T",
    .types = "T=f32 T2=f32",
    .attrs = qmoe_attrs,
    .infer = qmoe_infer,
    .pack = qmoe_pack,
    .check_packed = op_packed_is_data,
    .run = qmoe_run,
    .cost = "O(tokens k H I)",
    .source = "ONNX Runtime contrib operators",
};
