/* afm_pooling.c - AFMPooling of attentional factorization machines, which pools the
 * products of all pairs of fields i < j:
 *
 *   p_ij = e_i * e_j    s_ij = h . relu(p_ij W + b)    Y = sum over pairs of a_ij p_ij
 *
 * where a is the softmax of s over all pairs.
 *
 * E           f32 (batch, fields, dim)
 * W           f32 (dim, units)
 * h           f32 (units)
 * b           f32 (units), optional
 * field_mask  b8 (batch, fields), optional: a pair counts where both of its fields are
 *             true; Y is zeros where no pair counts
 * Y           f32 (batch, dim)
 * weights     f32 (batch, fields (fields - 1) / 2), in the order (0, 1), (0, 2), …;
 *             optional
 * attention   1 by default; with 0 every a_ij is 1, so Y is a plain sum
 *
 * Refused: other ranks, sizes that disagree, a W with a dim of 0.
 * Cost: fields^2 dim units FLOPs. The products p exist only for a tile of up to 128
 * pairs.
 * Source: Xiao 2017, arXiv:1708.04617. Compared with deepctr-torch 0.3.0 AFMLayer before
 * its projection. The authors' code 09c6756 takes its softmax over an axis of size 1,
 * which makes all weights 1; this operator does not follow that. */
#include <math.h>

#include "../../matmul/gemm.h"
#include "../core/heads.h"
#include "../core/softmax_pooling.h"

enum { E, W, H, B, FIELD_MASK, MAX_TILE = 128 };

struct afm_args {
    int64_t attention;
};

static const attnrun_attr_def afm_attrs[] = {
    ATTR_FLAG(struct afm_args, attention, 1),
    ATTR_END,
};

struct afm_state {
    struct attn_pooling pooling; /* a row; its tokens are the pairs */
    int64_t fields, units, hidden_floats;
};

/* ---- infer ---- */

struct afm_shape {
    attnrun_dim batch, fields, dim, units;
};

static attn_status afm_check_operands(const attnrun_step *step, struct afm_shape *s)
{
    TRY(op_need_rank(step, E, 3));
    TRY(op_need_rank(step, W, 2));
    TRY(op_need_rank(step, H, 1));
    s->batch = attn_dim_of_input(step, E, 0);
    s->fields = attn_dim_of_input(step, E, 1);
    s->dim = attn_known_of(attn_dim_of_input(step, E, 2), attn_dim_of_input(step, W, 0));
    s->units =
        attn_known_of(attn_dim_of_input(step, W, 1), attn_dim_of_input(step, H, 0));
    TRY(op_need_dim(step, W, 0, s->dim, "the size of E"));
    TRY(op_need_dim(step, H, 0, s->units, "the columns of W"));
    TRY(op_need_vector(step, B, s->units, "the columns of W"));
    if (dim_is(s->dim, 0) || dim_is(s->units, 0))
        return op_fail_input(step, W, ATTNRUN_E_SHAPE, "expected no dim of 0");
    if (!op_has_in(step, FIELD_MASK))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, FIELD_MASK, 2));
    TRY(op_need_dim(step, FIELD_MASK, 0, s->batch, "the batch"));
    return op_need_dim(step, FIELD_MASK, 1, s->fields, "the fields");
}

/* The number of pairs, n (n - 1) / 2; 0 for 0 fields. */
static attnrun_dim pairs_of(const attnrun_step *step, attnrun_dim n)
{
    if (dim_is(n, 0))
        return n;
    const attnrun_dim less = attnrun_dim_sub(step, n, dim_of(1));
    return attnrun_dim_div(step, attnrun_dim_mul(step, n, less), dim_of(2));
}

static attn_status plan_afm_pooling(attnrun_step *step, const struct afm_shape *shape)
{
    const struct afm_args *args = step->args;
    struct afm_state *s = step->state;
    struct attn_pooling *w = &s->pooling;
    s->fields = shape->fields.value;
    s->units = shape->units.value;
    *w = (struct attn_pooling){
        .batch = shape->batch.value,
        .rows = 1,
        .block = 1,
        .tokens = pairs_of(step, shape->fields).value,
        .v_dim = shape->dim.value,
        .form = args->attention != 0 ? ATTN_POOLING_SOFTMAX : ATTN_POOLING_PLAIN,
    };
    int64_t floats;
    if (!ck_add(w->v_dim, s->units, &floats) || floats > INT32_MAX)
        return op_fail_size(step, "the sum of the embedding size and the hidden units",
                            "2^31 - 1");
    w->tile = attn_pooling_tile(floats);
    w->tile = w->tile < MAX_TILE ? w->tile : MAX_TILE;
    s->hidden_floats = attn_logits_floats(w->tile, w->v_dim, s->units); /* p W, too */
    w->extra_floats = s->hidden_floats + attn_logits_floats(w->tile, s->units, 1) +
                      round_up(w->tile * w->v_dim, 16);
    w->token_ns = (double)w->v_dim * (0.015 * (double)s->units + 0.3) + 10;
    TRY(attn_pooling_plan(step, w));
    attn_pooling_tasks(step, w);
    return ATTNRUN_OK;
}

static attn_status afm_infer(attnrun_step *step)
{
    const struct afm_args *args = step->args;
    struct afm_shape shape;
    TRY(attn_need_int(step, "attention", args->attention, 0, 1));
    TRY(afm_check_operands(step, &shape));
    const attnrun_dim y[2] = { shape.batch, shape.dim };
    const attnrun_dim weights[2] = { shape.batch, pairs_of(step, shape.fields) };
    TRY(op_out(step, 0, ATTNRUN_F32, 2, y));
    TRY(op_out(step, 1, ATTNRUN_F32, 2, weights));
    return step->concrete ? plan_afm_pooling(step, &shape) : ATTNRUN_OK;
}

static attn_status afm_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const struct afm_args *args = pack->args;
    *bytes = 0;
    return args->attention != 0 ? attn_gemm_pack_input(pack, W, false, bytes, packed)
                                : ATTNRUN_OK;
}

static attn_status afm_check_packed(const attnrun_pack *pack, int64_t bytes,
                                    const void *packed)
{
    (void)bytes;
    return attn_gemm_check_input(pack, W, false, packed);
}

/* ---- run ---- */

struct afm_pool {
    const attnrun_step *step;
    float *hidden, *logits, *products;
};

/* Computes the products of the pairs first … first + n - 1. Masked pairs are zeros and get
 * scores of -inf, others 0. */
static void afm_multiply(const struct afm_pool *p, int64_t b, int64_t first, int64_t n,
                         float *seen)
{
    const struct afm_state *s = p->step->state;
    const int64_t dim = s->pooling.v_dim, fields = s->fields;
    const float *e = (const float *)p->step->x[E].data + b * fields * dim;
    const uint8_t *mask = op_has_in(p->step, FIELD_MASK)
                              ? (const uint8_t *)p->step->x[FIELD_MASK].data + b * fields
                              : NULL;
    int64_t i = 0, left = first;
    while (left >= fields - 1 - i)
        left -= fields - 1 - i++;
    int64_t j = i + 1 + left;
    for (int64_t at = 0; at < n; at++) {
        const bool kept = mask == NULL || (mask[i] != 0 && mask[j] != 0);
        float *product = p->products + at * dim;
        seen[at] = kept ? 0.0f : -INFINITY;
        if (kept)
            p->step->kernels->mul_f32(product, e + i * dim, 1, e + j * dim, 1,
                                      (size_t)dim);
        else
            memset(product, 0, (size_t)dim * sizeof *product);
        if (++j == fields)
            j = ++i + 1;
    }
}

static void afm_score(const struct afm_pool *p, float *scores, int64_t n)
{
    const attnrun_step *step = p->step;
    const struct afm_state *s = step->state;
    const struct attn_pooling *w = &s->pooling;
    const bool bias = op_has_in(step, B);
    const struct attn_epilogue steps[2] = { { .kind = ATTN_EPI_ADD,
                                              .alpha = 1.0f,
                                              .col = 1,
                                              .data = bias ? step->x[B].data : NULL },
                                            { .kind = ATTN_EPI_RELU } };
    struct attn_gemm_f32 g = { .a = p->products,
                               .a_row = w->v_dim,
                               .c = p->hidden,
                               .c_row = s->units,
                               .m = (size_t)n,
                               .n = (size_t)s->units,
                               .k = (size_t)w->v_dim,
                               .epilogue = bias ? steps : steps + 1,
                               .n_epilogue = bias ? 2 : 1,
                               .scratch = p->hidden + round_up(w->tile * s->units, 16) };
    attn_gemm_use_weight(&g, step, W);
    step->kernels->gemm_f32(&g);
    const struct attn_logits logits = { .x = p->hidden,
                                        .x_row = s->units,
                                        .k = s->units,
                                        .heads = 1,
                                        .b = step->x[H].data,
                                        .scale = 1.0f,
                                        .activation = -1,
                                        .scratch = p->logits };
    attn_logits_run(&logits, step->kernels, n, scores, w->tile);
}

static void afm_scores(void *arg, const struct attn_pooling_task *task, float *scores,
                       int64_t first, int64_t n)
{
    const struct afm_pool *p = arg;
    const struct afm_args *args = p->step->args;
    float seen[MAX_TILE];
    afm_multiply(p, task->b, first, n, seen);
    if (args->attention != 0)
        afm_score(p, scores, n);
    for (int64_t i = 0; i < n; i++) {
        if (args->attention == 0)
            scores[i] = seen[i] == 0.0f ? 1.0f : 0.0f;
        else if (seen[i] != 0.0f)
            scores[i] = -INFINITY;
    }
}

static attn_status afm_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct afm_state *s = step->state;
    const struct attn_pooling *w = &s->pooling;
    struct afm_pool p = { .step = step };
    struct attn_pooling_operands o = { .v_row = w->v_dim,
                                       .y = step->y[0].data,
                                       .y_batch = w->v_dim,
                                       .weights =
                                           op_has_out(step, 1) ? step->y[1].data : NULL,
                                       .scores = afm_scores,
                                       .arg = &p };
    for (int64_t task = work->begin; task < work->end; task++) {
        if (work->phase == 1) {
            attn_pooling_merge(w, step->kernels, &o, task, work);
            continue;
        }
        const struct attn_pooling_task t = attn_pooling_at(w, task, work->scratch);
        p.hidden = t.extra;
        p.logits = p.hidden + s->hidden_floats;
        p.products = p.logits + attn_logits_floats(w->tile, s->units, 1);
        o.gathered = p.products;
        TRY(attn_pooling_run(w, step->kernels, &o, &t, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_afm_pooling_1 = {
    OP_ROW_OF("attnrun"),
    .name = "AFMPooling",
    .since = 1,
    .inputs = "E:T W:T h:T b:T? field_mask:b8?",
    .outputs = "Y:T weights:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct afm_args),
    .state_bytes = sizeof(struct afm_state),
    .attrs = afm_attrs,
    .infer = afm_infer,
    .pack = afm_pack,
    .check_packed = afm_check_packed,
    .run = afm_run,
    .cost = "O(fields^2 d units), scratch O(tile (d + units))",
    .source = "Xiao 2017, arXiv:1708.04617",
};
