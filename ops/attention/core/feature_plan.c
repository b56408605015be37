/* feature_plan.c - chooses the phases, tasks and scratch of attention by features, and reads tiles
 * of keys.
 * feature_attention.h describes the operands and the cost.
 *
 * In: the sizes of struct attn_feature_plan. Out: its slices, blocks and memory, and the
 * tasks of the step. All of them depend on shapes alone. */
#include "feature_attention.h"
#include "../../tile.h"

enum {
    CHUNK = ATTN_FEATURE_CHUNK,
    PANEL = ATTN_FEATURE_PANEL,
    QUERIES = 128, /* at one time, where all keys are seen */
    BLOCK = 1024,  /* queries of a task */
    PARTS = 32,    /* wanted: (key heads) x slices of a sample */
    MIN_SLICE = 1024,
    MAX_SLICE = 1 << 15,  /* keys that are summed before their sum is added to others */
    MAX_SHARED = 1 << 18, /* floats of all slices of a sample beyond one for each head */
    MANY_HEADS = 32,
    TOGETHER = ATTN_FEATURE_TOGETHER,
    TOGETHER_FLOATS = 3 << 15
};

static int64_t feature_plan_gemm_floats(const struct attn_feature_plan *p)
{
    const size_t f = (size_t)p->features, v = (size_t)p->sizes.v_dim;
    const size_t n = (size_t)p->chunk, tile = (size_t)p->tile;
    size_t a = attn_gemm_scratch(f, v, tile), b = attn_gemm_scratch(n, v, f);
    size_t c = attn_gemm_scratch(PANEL, n, f), d = attn_gemm_scratch(PANEL, v, n);
    if (p->sizes.dims_first)
        c = attn_gemm_scratch(v, n, f), d = attn_gemm_scratch(1, n, f);
    a = a > b ? a : b;
    c = c > d ? c : d;
    return round_up(max64((int64_t)(a > c ? a : c), p->rule_gemm), 16);
}

static void feature_plan_cut(struct attn_feature_plan *p)
{
    const struct attn_sizes *s = &p->sizes;
    const int64_t heads = s->batch * s->kv_heads;
    p->chunk = s->causal ? CHUNK : QUERIES;
    p->slices =
        min64(min64(ceil_div(PARTS, max64(1, s->kv_heads)), s->kv_len / MIN_SLICE),
              MAX_SHARED / p->sum_floats / max64(1, s->kv_heads));
    p->slices = max64(1, max64(p->slices, ceil_div(s->kv_len, MAX_SLICE)));
    /* Slices end with whole tiles; causal, also with whole chunks, and all but the keys
     * before the first query are in step with queries. */
    const int64_t unit = max64(p->tile, p->chunk);
    p->slice = max64(1, ceil_div(ceil_div(s->kv_len, p->slices), unit)) * unit;
    p->slices = max64(1, ceil_div(s->kv_len, p->slice));
    p->whole =
        heads >= (s->causal ? PARTS / 4 : MANY_HEADS) || (s->causal && p->slices == 1);
    p->block = max64(QUERIES, BLOCK / max64(1, s->group) / QUERIES * QUERIES);
    p->blocks = ceil_div(s->q_len, p->block);
}

static int64_t nanoseconds(double x) { return op_ns(x + 100); }

static void state_tasks(attnrun_step *step, const struct attn_feature_plan *p)
{
    const struct attn_sizes *s = &p->sizes;
    const double sum =
        (double)p->features * (double)(s->v_dim + 1) * 0.01 + p->token_cost;
    const double triangle =
        s->causal ? 0.01 * CHUNK * (double)(p->features + s->v_dim) : 0.0;
    const double answer = sum + triangle;
    const int64_t heads = s->batch * s->kv_heads;
    const int first = p->first_phase;
    if (p->whole) {
        op_tasks(step, first, heads,
                 nanoseconds(sum * (double)s->kv_len +
                             answer * (double)s->q_len * (double)s->group));
        return;
    }
    op_tasks(step, first, heads * p->slices, nanoseconds(sum * (double)p->slice));
    op_tasks(step, first + 1, heads,
             nanoseconds(0.3 * (double)p->sum_floats * (double)p->slices));
    if (s->causal)
        op_tasks(step, first + 2, heads * p->slices,
                 nanoseconds((sum + answer * (double)s->group) * (double)p->slice));
    else
        op_tasks(step, first + 2, heads * p->blocks,
                 nanoseconds(answer * (double)(p->block * s->group)));
}

/* The number of heads whose sums and panels are kept at the same time. */
static int64_t sharing(const struct attn_feature_plan *p)
{
    const int64_t one = p->sum_floats + p->panel_floats;
    return max64(1, min64(TOGETHER, TOGETHER_FLOATS / one));
}

/* The floats of these sums: with slices, also of the slice under way, and of both together. */
static int64_t kept_floats(const struct attn_feature_plan *p)
{
    return p->sum_floats * (p->slices > 1 ? 2 * p->together + 1 : p->together);
}

attn_status attn_feature_plan_make(attnrun_step *step, struct attn_feature_plan *p,
                                   int64_t rule_floats)
{
    const struct attn_sizes *s = &p->sizes;
    int64_t row, sum, count, shared, features;
    p->sum_floats = 1;
    if (s->v_dim >= INT64_C(1) << 40 || p->features >= INT64_C(1) << 40 ||
        !ck_mul(round_up(p->features, 16) + 512, s->v_dim + 1024 + 2 * p->tile, &row) ||
        row > INT64_C(1) << 40 || p->more > INT64_C(1) << 40 ||
        rule_floats > INT64_C(1) << 44)
        return op_fail_size(step,
                            "the number of features, or of columns of V, or the memory "
                            "of a tile of both,",
                            "2^40");
    sum = round_up(p->features * s->v_dim, 16) + round_up(p->features, 16) +
          round_up(p->more, 16);
    p->sum_floats = sum;
    feature_plan_cut(p);
    if (!ck_mul(s->batch, s->kv_heads, &count) || !ck_mul(count, p->slices, &count) ||
        !ck_mul(count, p->whole ? 0 : sum * (int64_t)sizeof(float), &shared) ||
        !ck_add(step->shared_bytes, shared, &step->shared_bytes))
        return op_fail_size(step, "the memory of its running sums in bytes", "2^63 - 1");
    p->shared_offset = step->shared_bytes - shared;
    p->panel_floats = round_up(p->features * op_whole_panels(s->v_dim), 16);
    p->together = sharing(p);
    p->query_row = p->features + (p->features % 256 == 0 ? 16 : 0);
    features =
        round_up(max64(ATTN_TRANSPOSED_ROW, p->chunk) * round_up(p->query_row, 16), 16);
    p->features_floats = features;
    p->values_floats = p->masked ? p->tile * s->v_dim : 0;
    step->scratch_bytes =
        (2 * features + round_up(p->features, 16) + round_up(p->chunk, 16) +
         PANEL * CHUNK + 16 * p->tile + p->panel_floats * p->together + kept_floats(p) +
         feature_plan_gemm_floats(p) + p->values_floats + round_up(rule_floats, 16)) *
        (int64_t)sizeof(float);
    state_tasks(step, p);
    return ATTNRUN_OK;
}

/* ---- scratch ---- */

static void open_scratch(struct attn_feature_call *c, void *scratch)
{
    const struct attn_feature_plan *p = c->plan;
    c->features = scratch;
    c->queries = c->features + p->features_floats;
    c->dots = c->queries + p->features_floats;
    c->tile_z = c->dots + round_up(p->chunk, 16);
    c->scores = c->tile_z + round_up(p->features, 16);
    c->column = c->scores + PANEL * CHUNK;
    c->packed = c->column + 16 * p->tile;
    c->gemm = c->packed + p->panel_floats * p->together;
    c->values = c->gemm + feature_plan_gemm_floats(p);
    c->sum = c->values + p->values_floats;
    c->rule_scratch = c->sum + kept_floats(p);
}

struct attn_feature_call attn_feature_open(const struct attn_feature_plan *plan,
                                           const struct attn_kernels *kernels,
                                           const struct attn_feature_operands *o,
                                           const void *rule_arg, const attnrun_work *work)
{
    struct attn_feature_call c = {
        .plan = plan, .kernels = kernels, .o = o, .rule_arg = rule_arg, .work = work
    };
    open_scratch(&c, work->scratch);
    return c;
}

/* ---- tiles ---- */

const float *attn_tile_values(const struct attn_feature_call *call,
                              struct attn_feature_tile t, int64_t *row)
{
    const struct attn_heads *v = &call->plan->sizes.v;
    *row = v->row;
    return attn_kept_rows(attn_tile_rows(call->o->v, v, t), row, call->plan->sizes.v_dim,
                          attn_tile_keep(call, t), t.n, call->values);
}

float *attn_tile_keep_factors(const struct attn_feature_call *call,
                              struct attn_feature_tile t, float *factors)
{
    const uint8_t *keep = attn_tile_keep(call, t);
    bool all = true;
    for (int64_t i = 0; keep != NULL && i < t.n; i++) {
        factors[i] = keep[i] != 0 ? 1.0f : 0.0f;
        all = all && keep[i] != 0;
    }
    return all ? NULL : factors;
}

float attn_tile_count(const struct attn_feature_call *call, struct attn_feature_tile t)
{
    const uint8_t *keep = attn_tile_keep(call, t);
    int64_t n = 0;
    if (keep == NULL)
        return (float)t.n;
    for (int64_t i = 0; i < t.n; i++)
        n += keep[i] != 0;
    return (float)n;
}

int64_t attn_tile_hidden(const struct attn_feature_call *call, struct attn_feature_tile t)
{
    const uint8_t *keep = attn_tile_keep(call, t);
    int64_t n = 0;
    while (keep != NULL && n < t.n && keep[n] == 0)
        n++;
    return n;
}

void attn_feature_scale_columns(const struct attn_feature_call *c, float *x, int64_t row,
                                int64_t rows, int64_t n, const float *factors)
{
    const struct attn_features f = { .x = x,
                                     .y = x,
                                     .x_row = row,
                                     .y_row = row,
                                     .rows = (size_t)rows,
                                     .n = (size_t)n,
                                     .map = ATTN_MAP_IDENTITY,
                                     .scale = 1,
                                     .column_factor = factors };
    c->kernels->features_f32(&f);
}
