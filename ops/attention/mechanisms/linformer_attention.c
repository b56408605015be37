/* linformer_attention.c - LinformerAttention: softmax attention over `slots` weighted
 * sums of the keys and values.
 *
 *   K_p = E' K + E_bias, V_p = F' V + F_bias   along the tokens
 *   Y   = softmax(scale Q K_p') V_p
 *
 * Q, K, V, Y      see heads.h
 * E, F            f32 (max_len, slots), or (kv_heads, max_len, slots): their first kv_len
 *                 rows are used; F is E by default
 * E_bias, F_bias  f32 (slots): added to every channel
 * key_mask        b8 (batch, kv_len): masked rows of K and V count as zeros
 *
 * Refused: kv_len > max_len; is_causal.
 *
 * Phase 0 computes the sums, with a block of E transposed once for several heads. Phase 1
 * is attn_sdpa. If K and V are one tensor with one projection, they are summed once.
 * Cost: O((kv_len + q_len) slots (dim + v_dim)) for each head. Memory: K_p and V_p.
 * Source: Wang 2020, arXiv:2006.04768; compared with linformer 0.2.3
 * (LinformerSelfAttention) and linformer-pytorch 0.19.3 (LinearAttentionHead). */
#include "../core/heads.h"
#include "../../tile.h"

struct linformer_args {
    struct attn_heads_args heads;
};
static const attnrun_attr_def linformer_attrs[] = {
    ATTN_HEADS_ATTRS(struct linformer_args),
    ATTR_END,
};

enum { Q, K, V, E, F, E_BIAS, F_BIAS, KEY_MASK };
enum {
    TOKENS = 256, /* summed in one product */
    TRANSPOSED = TOKENS + 16,
    SLOTS = 128, /* of a task */
    HEADS = 4    /* of a task */
};

struct linformer_state {
    struct attn_sizes sizes;
    struct attn_sdpa sdpa;
    int64_t slots, blocks, groups; /* blocks of slots, groups of heads */
    int64_t heads;                 /* of a group */
    bool one;                      /* V_p is K_p */
    int64_t k_floats, gemm_floats;
    int64_t kept_floats; /* of rows without what is masked */
};

/* ---- infer ---- */

static bool same_input(const attnrun_step *step, int a, int b)
{
    if (!op_has_in(step, a) || !op_has_in(step, b))
        return op_has_in(step, a) == op_has_in(step, b);
    return strcmp(step->node->inputs[a], step->node->inputs[b]) == 0;
}

static attn_status check_projection(const attnrun_step *step, int in,
                                    const struct attn_qkv *shape, attnrun_dim slots)
{
    const attnrun_type *e = &step->in[in];
    if (!op_has_in(step, in) || e->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, in, 2, 3));
    if (e->rank == 3)
        TRY(op_need_dim(step, in, 0, shape->kv_heads, "the key heads"));
    TRY(op_need_dim(step, in, e->rank - 1, slots, "the slots of E"));
    const attnrun_dim max = e->dims[e->rank - 2];
    if (dim_is_const(max) && dim_is_const(shape->kv_len) &&
        max.value < shape->kv_len.value)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "it is for at most %s, expected %lld or more as in K",
                             attn_plural(max.value, "token"),
                             (long long)shape->kv_len.value);
    return ATTNRUN_OK;
}

static attn_status linformer_check_operands(const attnrun_step *step,
                                            const struct attn_qkv *shape)
{
    const struct linformer_args *args = step->args;
    const attnrun_type *e = &step->in[E];
    if (args->heads.is_causal != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "is_causal is 1, expected 0: a slot is a sum over all tokens");
    const attnrun_dim slots =
        e->rank > 0 ? e->dims[e->rank - 1] : attnrun_dim_unknown(step);
    TRY(check_projection(step, E, shape, slots));
    TRY(check_projection(step, F, shape, slots));
    for (int in = E_BIAS; in <= F_BIAS; in++)
        TRY(op_need_vector(step, in, slots, "the slots of E"));
    return attn_key_mask_check(step, KEY_MASK, shape->batch, shape->kv_len);
}

static int64_t linformer_gemm_floats(const struct linformer_state *s)
{
    const size_t a = attn_gemm_scratch(SLOTS, (size_t)s->sizes.dim, TOKENS);
    const size_t b = attn_gemm_scratch(SLOTS, (size_t)s->sizes.v_dim, TOKENS);
    return round_up((int64_t)(a > b ? a : b), 16);
}

static attn_status plan_attention(attnrun_step *step, struct linformer_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    int64_t k, v;
    if (!ck_mul(z->batch * z->kv_heads, s->slots, &k) || !ck_mul(k, z->v_dim, &v) ||
        !ck_mul(k, z->dim, &k) || k > INT64_MAX / 64 || v > INT64_MAX / 64)
        return op_fail_size(step, "the memory of its projected keys or values",
                            "2^63 - 1 bytes");
    TRY(attn_sdpa_fits(step, z->batch, z->q_heads, z->q_len, s->slots,
                       z->dim + z->v_dim));
    s->k_floats = round_up(k, 16);
    step->shared_bytes = (s->k_floats + (s->one ? 0 : v)) * (int64_t)sizeof(float);
    s->sdpa = (struct attn_sdpa){
        .batch = z->batch,
        .q_heads = z->q_heads,
        .kv_heads = z->kv_heads,
        .q_len = z->q_len,
        .kv_len = s->slots,
        .head_dim = z->dim,
        .v_dim = z->v_dim,
        .q = z->q,
        .y = z->y,
        .k = { z->kv_heads * s->slots * z->dim, s->slots * z->dim, z->dim },
        .v = { z->kv_heads * s->slots * z->v_dim, s->slots * z->v_dim, z->v_dim },
        .scale = z->scale,
        .left = -1,
        .right = -1
    };
    return attn_sdpa_plan(step, &s->sdpa);
}

static attn_status linformer_plan(attnrun_step *step, struct linformer_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    const attnrun_type *e = &step->in[E];
    s->slots = e->dims[e->rank - 1].value;
    s->one = !op_has_in(step, F) && same_input(step, K, V) &&
             same_input(step, E_BIAS, F_BIAS) && z->dim == z->v_dim;
    TRY(plan_attention(step, s));
    const bool by_head = e->rank == 3 || (op_has_in(step, F) && step->in[F].rank == 3);
    s->heads = by_head ? 1 : HEADS;
    s->groups = ceil_div(z->kv_heads, s->heads);
    s->blocks = ceil_div(s->slots, SLOTS);
    s->gemm_floats = linformer_gemm_floats(s);
    s->kept_floats = op_has_in(step, KEY_MASK) ? TOKENS * max64(z->dim, z->v_dim) : 0;
    const int64_t floats =
        SLOTS * TRANSPOSED + 16 * TOKENS + s->kept_floats + s->gemm_floats;
    step->scratch_bytes = s->sdpa.scratch_bytes > floats * (int64_t)sizeof(float)
                              ? s->sdpa.scratch_bytes
                              : floats * (int64_t)sizeof(float);
    const double cost = 2.0 * (double)z->kv_len * (double)min64(s->slots, SLOTS) *
                        (double)z->dim * (double)s->heads / 150.0;
    op_tasks(step, 0, z->batch * s->groups * s->blocks * (s->one ? 1 : 2),
             op_ns(cost + 500));
    op_tasks(step, 1, s->sdpa.n_tasks, s->sdpa.task_cost);
    return ATTNRUN_OK;
}

static attn_status linformer_infer(attnrun_step *step)
{
    const struct linformer_args *args = step->args;
    struct linformer_state *s = step->state;
    struct attn_qkv shape;
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, 0, &shape));
    TRY(linformer_check_operands(step, &shape));
    TRY(attn_qkv_output(step, &shape, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &s->sizes));
    return linformer_plan(step, s);
}

/* ---- run ---- */

/* K or V of some heads, its projection, and the place of the slots. */
struct sum {
    const float *x, *e, *bias;
    struct attn_heads strides;
    float *to; /* of sample 0, head 0 */
    int64_t dim;
    int64_t e_head; /* from a head's projection to the next; 0: one for all */
};

static struct sum open_sum(const attnrun_step *step, const attnrun_work *work,
                           bool values)
{
    const struct linformer_state *s = step->state;
    const int bias = values ? F_BIAS : E_BIAS;
    const attnrun_tensor *e = &step->x[values && op_has_in(step, F) ? F : E];
    struct sum sum = { .x = step->x[values ? V : K].data,
                       .e = e->data,
                       .bias = op_in_data(step, bias),
                       .strides = values ? s->sizes.v : s->sizes.k,
                       .dim = values ? s->sizes.v_dim : s->sizes.dim,
                       .e_head = e->rank == 3 ? e->dims[1] * s->slots : 0 };
    sum.to = (float *)work->shared + (values ? s->k_floats : 0);
    return sum;
}

/* to (slots, dim) += rows of the projection, transposed at the beginning of scratch, times
 * n tokens at x; keep: of these tokens, or NULL. */
static void add_tokens(const attnrun_step *step, const struct sum *sum, float *scratch,
                       const float *x, const uint8_t *keep, int64_t n, int64_t slots,
                       float *to)
{
    const struct linformer_state *s = step->state;
    float *panel = scratch + SLOTS * TRANSPOSED, *kept = panel + 16 * TOKENS;
    int64_t row = sum->strides.row;
    x = attn_kept_rows(x, &row, sum->dim, keep, n, kept);
    struct attn_gemm_f32 g = { .a = scratch,
                               .a_row = TRANSPOSED,
                               .b = x,
                               .b_row = row,
                               .b_col = 1,
                               .c = to,
                               .c_row = sum->dim,
                               .m = (size_t)slots,
                               .n = (size_t)sum->dim,
                               .k = (size_t)n,
                               .accumulate = 1,
                               .scratch = kept + s->kept_floats };
    if (g.b_row == 1) { /* one column: summed in the same order whatever its stride */
        step->kernels->gemm_pack_f32(panel, x, 1, 1, g.k, 1);
        g.b = panel;
        g.packed = 1;
    }
    step->kernels->gemm_f32(&g);
}

static void begin_slots(const struct sum *sum, int64_t slot, int64_t slots, float *to)
{
    for (int64_t i = 0; i < slots; i++)
        for (int64_t d = 0; d < sum->dim; d++)
            to[i * sum->dim + d] = sum->bias != NULL ? sum->bias[slot + i] : 0.0f;
}

/* Sums a block of slots of a group of heads of a sample. */
static attn_status sum_block(const attnrun_step *step, const attnrun_work *work,
                             int64_t task)
{
    const struct linformer_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const int64_t slot = op_take(&task, s->blocks) * SLOTS,
                  slots = min64(SLOTS, s->slots - slot),
                  first = op_take(&task, s->groups) * s->heads,
                  batch = op_take(&task, z->batch);
    const struct sum sum = open_sum(step, work, task != 0);
    const int64_t last = min64(first + s->heads, z->kv_heads);
    const uint8_t *keep =
        op_has_in(step, KEY_MASK)
            ? (const uint8_t *)step->x[KEY_MASK].data + batch * z->kv_len
            : NULL;
    float *transposed = work->scratch;
    const float *e = sum.e + first * sum.e_head + slot;
    float *to = sum.to + ((batch * z->kv_heads + first) * s->slots + slot) * sum.dim;
    const float *x = sum.x + batch * sum.strides.batch + first * sum.strides.head;
    for (int64_t h = first; h < last; h++)
        begin_slots(&sum, slot, slots, to + (h - first) * s->slots * sum.dim);
    for (int64_t t = 0; t < z->kv_len; t += TOKENS) {
        const int64_t n = min64(TOKENS, z->kv_len - t);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        step->kernels->transpose_f32(transposed, TRANSPOSED, e + t * s->slots, s->slots,
                                     (size_t)n, (size_t)slots);
        for (int64_t j = 0; keep != NULL && j < n; j++)
            for (int64_t i = 0; keep[t + j] == 0 && i < slots; i++)
                transposed[i * TRANSPOSED + j] = 0;
        for (int64_t h = first; h < last; h++)
            add_tokens(step, &sum, transposed,
                       x + (h - first) * sum.strides.head + t * sum.strides.row,
                       keep != NULL ? keep + t : NULL, n, slots,
                       to + (h - first) * s->slots * sum.dim);
    }
    return ATTNRUN_OK;
}

static attn_status linformer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct linformer_state *s = step->state;
    const float *k = work->shared;
    const struct attn_sdpa_operands o = { .q = step->x[Q].data,
                                          .k = k,
                                          .v = s->one ? k : k + s->k_floats,
                                          .y = step->y[0].data };
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(work->phase == 0 ? sum_block(step, work, task)
                             : attn_sdpa_run(&s->sdpa, step->kernels, &o, task, work));
    return ATTNRUN_OK;
}

const attnrun_op_def op_linformer_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "LinformerAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T E:T F:T? E_bias:T? F_bias:T? key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct linformer_args),
    .state_bytes = sizeof(struct linformer_state),
    .attrs = linformer_attrs,
    .infer = linformer_infer,
    .run = linformer_run,
    .cost = "O(tokens slots (dim + v_dim)) per head",
    .source = "arXiv:2006.04768",
};
