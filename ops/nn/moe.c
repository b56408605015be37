/* moe.c - com.microsoft MoE: a mixture of experts whose weights are floats. mixture.h
 * describes the operands and the cost. Constant weights are packed in the type that the
 * file has (f32, f16, bf16). */
#include <math.h>

#include "../matmul/gemm.h"
#include "mixture.h"

enum { X, ROUTER, W1, B1, W2, B2, W3, B3 };

static const attnrun_attr_def moe_attrs[] = { MIXTURE_ATTR_ROWS, ATTR_END };
static const int64_t one_each[MIXTURE_MATRICES] = { 1, 1, 1 };

/* Weights of one element of `matrix` for an expert, where they are not packed. */
static attn_status moe_multiply(const attnrun_step *step, const attnrun_work *work,
                                struct mixture_product *product)
{
    const struct mixture_matrix *m = product->matrix;
    const int32_t dtype = step->in[m->weights].dtype;
    const struct attn_epilogue add = {
        .kind = ATTN_EPI_ADD, .alpha = 1.0f, .col = 1, .data = product->bias
    };
    struct attn_gemm_f32 g = { .a = product->a,
                               .a_row = product->a_row,
                               .b_row = 1,
                               .b_col = m->step * m->k,
                               .b_type = attn_stored_as(dtype),
                               .c = product->c,
                               .c_row = product->c_row,
                               .m = (size_t)product->m,
                               .n = (size_t)product->n,
                               .k = (size_t)m->k,
                               .epilogue = &add,
                               .n_epilogue = product->bias != NULL,
                               .scratch = product->scratch };
    const uint8_t *packed = step->node->packed;
    (void)work;
    if (packed != NULL) {
        packed += m->packed_at + product->expert * m->packed_bytes;
        attn_gemm_use_packed(&g, (const struct attn_packed *)(const void *)packed,
                             product->column);
    } else {
        g.b = attn_stored_at(
            dtype, step->x[m->weights].data,
            (product->expert * m->lines + m->first + product->column * m->step) * m->k);
    }
    step->kernels->gemm_f32(&g);
    return ATTNRUN_OK;
}

static const struct mixture_kind moe = { .weights = { W1, W2, W3 },
                                         .biases = { B1, B2, B3 },
                                         .router_weights = -1,
                                         .multiply = moe_multiply };

/* Places of the packed matrices; false: overflow. */
static bool moe_lay_out(const struct attn_kernels *kernels, const attnrun_type *in,
                        struct mixture_state *s)
{
    const struct mixture_matrix *list[MIXTURE_MATRICES];
    const int n = attn_mixture_list(s, list);
    s->packed_bytes = 0;
    for (int i = 0; i < n; i++) {
        struct mixture_matrix *m = i < s->n_up ? &s->up[i] : &s->down;
        int64_t all;
        m->packed_bytes = attn_gemm_pack_bytes(kernels, in[m->weights].dtype, m->k, m->n);
        m->packed_at = s->packed_bytes;
        if (m->packed_bytes < 0 || !ck_align(m->packed_bytes, 64, &m->packed_bytes) ||
            !ck_mul(m->packed_bytes, s->experts, &all) ||
            !ck_add(s->packed_bytes, all, &s->packed_bytes))
            return false;
    }
    return true;
}

static attn_status moe_infer(attnrun_step *step)
{
    struct mixture_state *s = step->state;
    TRY(attn_mixture_output(step));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_mixture_shapes(step, &moe, one_each));
    if (!moe_lay_out(step->kernels, step->in, s))
        return op_fail_size(step, "the memory of the packed weights", "2^63 - 1 bytes");
    const int64_t k = s->hidden > s->inter ? s->hidden : s->inter;
    return attn_mixture_tasks(
        step, 4 * (int64_t)attn_gemm_scratch(MIXTURE_ROWS, MIXTURE_COLUMNS, (size_t)k));
}

static attn_status moe_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    struct mixture_state s = { 0 };
    const struct mixture_matrix *m[MIXTURE_MATRICES];
    const char *text;
    int wrong;
    *bytes = 0;
    if (!attn_mixture_matrices(&moe, pack->args, pack->n_in, pack->in, one_each, &s,
                               &wrong, &text))
        return ATTNRUN_OK; /* infer() says so */
    const int n = attn_mixture_list(&s, m);
    for (int i = 0; i < n; i++)
        if (pack->x[m[i]->weights].data == NULL)
            return ATTNRUN_OK;
    if (!moe_lay_out(pack->kernels, pack->in, &s))
        return attn_fail_node(ATTNRUN_E_LIMIT, pack->node,
                              "the packed weights would be over 2^63 - 1 bytes");
    *bytes = s.packed_bytes;
    for (int i = 0; i < n; i++)
        pack->replaces |= UINT32_C(1) << m[i]->weights;
    if (packed == NULL)
        return ATTNRUN_OK;
    memset(packed, 0, (size_t)*bytes);
    for (int i = 0; i < n; i++) {
        const int32_t dtype = pack->in[m[i]->weights].dtype;
        for (int64_t e = 0; e < s.experts; e++) {
            const void *from = attn_stored_at(dtype, pack->x[m[i]->weights].data,
                                              (e * m[i]->lines + m[i]->first) * m[i]->k);
            uint8_t *to = (uint8_t *)packed + m[i]->packed_at + e * m[i]->packed_bytes;
            attn_gemm_pack(pack->kernels, (struct attn_packed *)(void *)to, dtype, from,
                           1, m[i]->step * m[i]->k, m[i]->k, m[i]->n);
        }
    }
    return ATTNRUN_OK;
}

/* The head of each expert's matrices. */
static attn_status moe_check_packed(const attnrun_pack *pack, int64_t bytes,
                                    const void *packed)
{
    struct mixture_state s = { 0 };
    const struct mixture_matrix *m[MIXTURE_MATRICES];
    const char *text;
    int wrong;
    if (!attn_mixture_matrices(&moe, pack->args, pack->n_in, pack->in, one_each, &s,
                               &wrong, &text) ||
        !moe_lay_out(pack->kernels, pack->in, &s) || s.packed_bytes != bytes)
        return attn_fail_node(ATTNRUN_E_MODEL, pack->node,
                              "its packed weights do not fit its operands");
    const int n = attn_mixture_list(&s, m);
    for (int i = 0; i < n; i++)
        for (int64_t e = 0; e < s.experts; e++)
            TRY(attn_gemm_check_header(
                pack, (const char *)packed + m[i]->packed_at + e * m[i]->packed_bytes,
                pack->in[m[i]->weights].dtype, m[i]->k, m[i]->n));
    return ATTNRUN_OK;
}

static attn_status moe_run(const attnrun_step *step, const attnrun_work *work)
{
    return attn_mixture_run(step, work, &moe);
}

const attnrun_op_def op_ms_moe_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "MoE",
    .since = 1,
    .args_bytes = sizeof(struct mixture_args),
    .state_bytes = sizeof(struct mixture_state),
    .inputs = "input:T router_probs:T fc1_experts_weights:T fc1_experts_bias:T? "
              "fc2_experts_weights:T fc2_experts_bias:T? fc3_experts_weights:T? "
              "fc3_experts_bias:T?",
    .outputs = "output:T",
    .types = "T=f32",
    .attrs = moe_attrs,
    .infer = moe_infer,
    .pack = moe_pack,
    .check_packed = moe_check_packed,
    .run = moe_run,
    .storage_in = 1u << W1 | 1u << W2 | 1u << W3,
    .cost = "O(tokens k H I)",
    .source = "ONNX Runtime contrib operators",
};
