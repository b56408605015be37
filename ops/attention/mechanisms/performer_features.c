/* performer_features.c - computes the features of PerformerAttention for tiles of queries
 * and keys. performer_attention.c has the formulas.
 *
 * In: rows of queries or keys, and the projection W. Out: the features, and their sums
 * over the keys. The features are sqrt(M) times those of the formulas (sqrt(2M) times for
 * softmax_hyp). Parts that could overflow, such as c, are kept in separate numbers.
 * Exponentials are computed as 2^u, with u in units of log 2. Cost: 2 M dim FLOPs a
 * token. */
#include <math.h>

#include "performer.h"
#include "../../tile.h"

/* ---- shared memory ---- */

bool attn_performer_place(struct performer_state *s, int64_t *bytes)
{
    const struct attn_sizes *z = &s->plan.sizes;
    const int64_t size = (int64_t)sizeof(float), weight = round_up(s->rows * z->dim, 16);
    return op_slot(&s->q_max_at, bytes, z->batch * z->q_heads, size) &&
           op_slot(&s->k_max_at, bytes, z->batch * z->kv_heads, size) &&
           op_slot_rows(&s->weights_at, bytes, s->projections, weight, size) &&
           op_slot_rows(&s->panels_at, bytes, s->projections, s->panel_floats, size);
}

struct performer attn_performer_open(const attnrun_step *step, const attnrun_work *work)
{
    const struct performer_state *s = step->state;
    return (struct performer){ .args = step->args,
                               .state = s,
                               .q_max = op_slot_at(work->shared, s->q_max_at),
                               .k_max = op_slot_at(work->shared, s->k_max_at),
                               .weights = op_slot_at(work->shared, s->weights_at),
                               .panels = op_slot_at(work->shared, s->panels_at) };
}

static int64_t projection_of(const struct performer *p, int64_t kv_head)
{
    return p->state->projections > 1 ? kv_head : 0;
}

/* ---- rows of u ---- */

/* Computes |x|^2 times `by` for the rows of a tile. */
static void norms(const struct attn_feature_call *c, float *to, const float *x,
                  int64_t row, int64_t n, float by)
{
    c->kernels->square_rows_f32(to, x, row, (size_t)n, (size_t)c->plan->sizes.dim);
    c->kernels->mul_f32(to, to, 1, &by, 0, (size_t)n);
}

static float *shifts_of(const struct attn_feature_call *c) { return c->rule_scratch; }
static float *factors_of(const struct attn_feature_call *c)
{
    return c->rule_scratch + PERFORMER_TILE;
}
/* Computes u of keys, (M, n), as columns, by W of their head. */
static void project_keys(const struct attn_feature_call *c, struct attn_feature_tile t,
                         const float *w, float *u)
{
    const struct performer *p = c->rule_arg;
    const struct performer_state *s = p->state;
    const int64_t dim = c->plan->sizes.dim;
    struct attn_gemm_f32 g = { .a = w,
                               .a_row = dim,
                               .b = attn_tile_rows(c->o->k, &c->plan->sizes.k, t),
                               .b_row = 1,
                               .b_col = c->plan->sizes.k.row,
                               .c = u,
                               .c_row = ATTN_TRANSPOSED_ROW,
                               .m = (size_t)s->rows,
                               .n = (size_t)t.n,
                               .k = (size_t)dim,
                               .scratch = c->gemm };
    c->kernels->gemm_f32(&g);
}

/* Computes u of queries, (n, M), in rows that are F apart. */
static void project_queries(const struct attn_feature_call *c, struct attn_feature_tile t,
                            float *u)
{
    const struct performer *p = c->rule_arg;
    const struct performer_state *s = p->state;
    const int64_t kv_head = t.head / c->plan->sizes.group;
    struct attn_gemm_f32 g = { .a = attn_tile_rows(c->o->q, &c->plan->sizes.q, t),
                               .a_row = c->plan->sizes.q.row,
                               .b = p->panels +
                                    projection_of(p, kv_head) * s->panel_floats,
                               .packed = 1,
                               .c = u,
                               .c_row = c->plan->query_row,
                               .m = (size_t)t.n,
                               .n = (size_t)s->rows,
                               .k = (size_t)c->plan->sizes.dim,
                               .scratch = c->gemm };
    c->kernels->gemm_f32(&g);
}

/* The larger of a and b; NaN where either is NaN. */
static float larger(float a, float b) { return a > b || isnan(a) ? a : b; }

/* The largest u of a tile of keys, over the keys that count for it. */
static float max_of_keys(const struct attn_feature_call *c, struct attn_feature_tile t,
                         const float *u)
{
    const struct performer *p = c->rule_arg;
    const uint8_t *keep = attn_tile_keep(c, t);
    float max = -INFINITY;
    if (p->args->mask_in_max == 0 || keep == NULL) {
        for (int64_t r = 0; r < p->state->rows; r++)
            max = larger(max, c->kernels->reduce_max_f32(u + r * ATTN_TRANSPOSED_ROW,
                                                         (size_t)t.n));
        return max;
    }
    float *columns = factors_of(c);
    for (int64_t i = 0; i < t.n; i++)
        columns[i] = -INFINITY;
    c->kernels->max_columns_f32(columns, u, ATTN_TRANSPOSED_ROW, (size_t)p->state->rows,
                                (size_t)t.n, NULL);
    for (int64_t i = 0; i < t.n; i++)
        max = keep[i] != 0 ? larger(max, columns[i]) : max;
    return max;
}

/* ---- features ---- */

static int32_t kernel_map(const struct performer_args *args)
{
    static const int32_t maps[] = { ATTN_MAP_RELU, ATTN_MAP_REQU,    ATTN_MAP_EXP,
                                    ATTN_MAP_ELU1, ATTN_MAP_SIGMOID, ATTN_MAP_TANH,
                                    ATTN_MAP_GELU, ATTN_MAP_ABS,     ATTN_MAP_COS,
                                    ATTN_MAP_SIN,  ATTN_MAP_IDENTITY };
    return maps[args->kernel_fn];
}

/* Computes both halves of hyp and trig, or all features, from the description of the
 * first half. */
static void both_halves(const struct attn_feature_call *c, struct attn_features *f,
                        int64_t half)
{
    const struct performer *p = c->rule_arg;
    struct attn_features second = *f;
    float other[PERFORMER_TILE];
    if (p->args->features == PERFORMER_POS ||
        p->args->features == PERFORMER_GENERALIZED) {
        c->kernels->features_f32(f);
        return;
    }
    second.y = f->y + half;
    if (p->args->features == PERFORMER_HYP)
        second.scale = -1;
    else
        second.map = ATTN_MAP_SIN;
    if (f->row_sums != NULL)
        second.row_sums = f->row_sums + p->state->rows;
    if (f->dots != NULL) {
        second.weights = f->weights + p->state->rows;
        second.dots = other;
    }
    c->kernels->features_f32(&second); /* first: f may write over u */
    c->kernels->features_f32(f);
    for (size_t r = 0; f->dots != NULL && r < f->rows; r++)
        f->dots[r] += other[r];
}

static int32_t map_of(const struct performer *p)
{
    return p->args->features == PERFORMER_GENERALIZED ? kernel_map(p->args)
           : p->args->features == PERFORMER_TRIG      ? ATTN_MAP_COS
                                                      : ATTN_MAP_EXP2;
}

/* Computes the features of generalized without a projection, row by row. */
static void plain_keys(const struct attn_feature_call *c, struct attn_feature_tile t,
                       float *features, const struct attn_feature_sum *sum)
{
    const struct performer *p = c->rule_arg;
    struct attn_features f = { .x = attn_tile_rows(c->o->k, &c->plan->sizes.k, t),
                               .y = features,
                               .x_row = c->plan->sizes.k.row,
                               .y_row = c->plan->features,
                               .rows = (size_t)t.n,
                               .n = (size_t)c->plan->features,
                               .map = kernel_map(p->args),
                               .scale = p->state->x_scale,
                               .add = p->args->kernel_epsilon,
                               .row_factor = attn_tile_keep_factors(c, t, factors_of(c)),
                               .column_sums = sum->tile_z };
    c->kernels->features_f32(&f);
}

/* Raises c to `max`, and multiplies the sums so that they are relative to it; NaN stays. */
static void raise_max(const struct attn_feature_call *c,
                      const struct attn_feature_sum *sum, float max)
{
    const float old = sum->more[PERFORMER_MAX];
    if (max <= old)
        return;
    const float by = old == -INFINITY ? 0.0f : exp2f(old - max);
    c->kernels->mul_f32(sum->s, sum->s, 1, &by, 0,
                        (size_t)(c->plan->features * c->plan->sizes.v_dim));
    c->kernels->mul_f32(sum->z, sum->z, 1, &by, 0, (size_t)c->plan->features);
    sum->more[PERFORMER_MAX] = max;
}

/* Adds the values of the keys that count to `more`. */
static void add_plain_values(const struct attn_feature_call *c,
                             struct attn_feature_tile t, const float *keep, float *to)
{
    float *ones = factors_of(c);
    for (int64_t i = 0; keep == NULL && i < t.n; i++)
        ones[i] = 1;
    struct attn_gemm_f32 g = { .a = ones,
                               .a_row = t.n,
                               .b_col = 1,
                               .c = to,
                               .c_row = c->plan->sizes.v_dim,
                               .m = 1,
                               .n = (size_t)c->plan->sizes.v_dim,
                               .k = (size_t)t.n,
                               .accumulate = 1,
                               .scratch = c->gemm };
    int64_t row;
    g.b = attn_tile_values(c, t, &row);
    g.b_row = row;
    if (row == 1) { /* one column: summed in the same order whatever its stride */
        c->kernels->gemm_pack_f32(c->column, g.b, 1, 1, g.k, 1);
        g.b = c->column;
        g.packed = 1;
    }
    c->kernels->gemm_f32(&g);
}

static void write_keys(const struct attn_feature_call *c, struct attn_feature_tile t,
                       float *features, const struct attn_feature_sum *sum)
{
    const struct performer *p = c->rule_arg;
    const struct performer_state *s = p->state;
    const int32_t kind = p->args->features;
    const float *k_max = p->k_max + t.batch * c->plan->sizes.kv_heads + t.head;
    float max = s->extremes ? *k_max : 0.0f, *shifts = shifts_of(c);
    project_keys(c, t,
                 p->weights + projection_of(p, t.head) *
                                  round_up(s->rows * c->plan->sizes.dim, 16),
                 features);
    if (s->one_pass) {
        raise_max(c, sum, max_of_keys(c, t, features));
        max = sum->more[PERFORMER_MAX] == -INFINITY ? 0.0f : sum->more[PERFORMER_MAX];
    }
    const float *k = attn_tile_rows(c->o->k, &c->plan->sizes.k, t);
    norms(c, shifts, k, c->plan->sizes.k.row, t.n, s->norm_scale);
    float *keep = attn_tile_keep_factors(c, t, factors_of(c));
    struct attn_features f = { .x = features,
                               .y = features,
                               .x_row = ATTN_TRANSPOSED_ROW,
                               .y_row = ATTN_TRANSPOSED_ROW,
                               .rows = (size_t)s->rows,
                               .n = (size_t)t.n,
                               .map = map_of(p),
                               .scale = 1,
                               .row_sums = sum->tile_z };
    if (kind == PERFORMER_TRIG) {
        for (int64_t i = 0; i < t.n; i++)
            shifts[i] = keep != NULL && keep[i] == 0.0f ? 0.0f : expf(shifts[i] - max);
        f.column_factor = shifts;
    } else if (kind == PERFORMER_GENERALIZED) {
        f.column_factor = keep;
        f.add = p->args->kernel_epsilon;
    } else {
        for (int64_t i = 0; i < t.n; i++)
            shifts[i] += max;
        f.column_shift = shifts;
        f.column_factor = keep; /* 0 also where the feature is NaN */
        if (kind == PERFORMER_POS && c->plan->sizes.causal)
            f.add = p->args->feature_epsilon;
    }
    both_halves(c, &f, s->rows * ATTN_TRANSPOSED_ROW);
    if (kind == PERFORMER_POS && !c->plan->sizes.causal)
        add_plain_values(c, t, keep, sum->more + PERFORMER_VALUES);
}

/* Computes row shifts or factors of queries, from their norms and largest u. */
static void query_rows(const struct attn_feature_call *c, struct attn_feature_tile t,
                       struct attn_features *f)
{
    const struct performer *p = c->rule_arg;
    const struct performer_state *s = p->state;
    const float max =
        s->extremes ? p->q_max[t.batch * c->plan->sizes.q_heads + t.head] : 0.0f;
    float *shifts = shifts_of(c);
    if (p->args->features == PERFORMER_GENERALIZED) {
        f->add = p->args->kernel_epsilon;
        return;
    }
    norms(c, shifts, attn_tile_rows(c->o->q, &c->plan->sizes.q, t), c->plan->sizes.q.row,
          t.n, s->norm_scale);
    if (p->args->features == PERFORMER_TRIG) {
        for (int64_t i = 0; i < t.n; i++)
            shifts[i] = expf(shifts[i] - max);
        f->row_factor = shifts;
        return;
    }
    f->row_shift = shifts;
    f->add = p->args->features == PERFORMER_POS ? p->args->feature_epsilon : 0.0f;
    for (int64_t i = 0; i < t.n; i++) {
        if (p->args->features == PERFORMER_HYP)
            shifts[i] += max;
        else if (p->args->stabilizer != 0)
            shifts[i] += c->kernels->reduce_max_f32(f->x + i * f->x_row, f->n);
    }
}

static void write_queries(const struct attn_feature_call *c, struct attn_feature_tile t,
                          float *features, const float *z, float *dots)
{
    const struct performer *p = c->rule_arg;
    const struct performer_state *s = p->state;
    struct attn_features f = { .x = features,
                               .y = features,
                               .x_row = c->plan->query_row,
                               .y_row = c->plan->query_row,
                               .rows = (size_t)t.n,
                               .n = (size_t)s->rows,
                               .map = map_of(p),
                               .scale = 1,
                               .weights = z,
                               .dots = dots };
    if (s->rows == 0) {
        f.x = attn_tile_rows(c->o->q, &c->plan->sizes.q, t);
        f.x_row = c->plan->sizes.q.row;
        f.n = (size_t)c->plan->features;
        f.scale = s->x_scale;
    } else {
        project_queries(c, t, features);
    }
    query_rows(c, t, &f);
    both_halves(c, &f, s->rows);
}

/* ---- one pass over the keys ---- */

static void begin_sum(const struct attn_feature_call *c,
                      const struct attn_feature_sum *sum)
{
    const struct performer *p = c->rule_arg;
    if (p->state->one_pass)
        sum->more[PERFORMER_MAX] = -INFINITY;
}

static void combine_sums(const struct attn_feature_call *c,
                         const struct attn_feature_sum *into,
                         const struct attn_feature_sum *from)
{
    const struct performer *p = c->rule_arg;
    if (p->args->features != PERFORMER_POS || c->plan->sizes.causal)
        return;
    if (p->state->one_pass) {
        raise_max(c, into, from->more[PERFORMER_MAX]);
        raise_max(c, from, into->more[PERFORMER_MAX]);
    }
    float *to = into->more + PERFORMER_VALUES;
    c->kernels->add_f32(to, to, 1, from->more + PERFORMER_VALUES, 1,
                        (size_t)c->plan->sizes.v_dim);
}

static void end_sum(const struct attn_feature_call *c, const struct attn_feature_sum *sum)
{
    const struct performer *p = c->rule_arg;
    const int64_t v_dim = c->plan->sizes.v_dim;
    const bool pos = p->args->features == PERFORMER_POS;
    const float epsilon = pos ? p->args->feature_epsilon : 0.0f;
    float *values = sum->more + PERFORMER_VALUES;
    for (int64_t i = 0; pos && i < v_dim; i++)
        values[i] *= epsilon;
    for (int64_t r = 0; pos && epsilon != 0.0f && r < c->plan->features; r++)
        c->kernels->add_f32(sum->s + r * v_dim, sum->s + r * v_dim, 1, values, 1,
                            (size_t)v_dim);
    for (int64_t r = 0; r < c->plan->features; r++)
        sum->z[r] += epsilon * sum->more[0] + p->state->keys_epsilon;
}

const struct attn_feature_callbacks attn_performer_projected = { .keys = write_keys,
                                                                 .queries = write_queries,
                                                                 .begin = begin_sum,
                                                                 .combine = combine_sums,
                                                                 .end = end_sum };
const struct attn_feature_callbacks attn_performer_plain = { .keys = plain_keys,
                                                             .queries = write_queries,
                                                             .end = end_sum };

/* ---- phase 0: W in units of the exponent, and what is largest in a head ---- */

static void scale_projection(const struct attn_feature_call *c, const float *w, int64_t i)
{
    const struct performer *p = c->rule_arg;
    const int64_t dim = c->plan->sizes.dim, rows = p->state->rows;
    float *to = p->weights + i * round_up(rows * dim, 16);
    c->kernels->mul_f32(to, w + i * rows * dim, 1, &p->state->x_scale, 0,
                        (size_t)(rows * dim));
    c->kernels->gemm_pack_f32(p->panels + i * p->state->panel_floats, to, 1, dim,
                              (size_t)dim, (size_t)rows);
}

/* The largest u of the keys of a head, from W as the file gives it. */
static attn_status find_max(const struct attn_feature_call *c, const float *w,
                            int64_t batch, int64_t head)
{
    const struct performer *p = c->rule_arg;
    const struct attn_sizes *z = &c->plan->sizes;
    struct attn_feature_tile t = { batch, head, 0, 0 };
    float max = -INFINITY;
    w += projection_of(p, head) * p->state->rows * z->dim;
    for (; t.first < z->kv_len; t.first += PERFORMER_TILE) {
        if (OP_CANCELLED(c->work))
            return ATTNRUN_E_CANCELLED;
        t.n = z->kv_len - t.first < PERFORMER_TILE ? z->kv_len - t.first : PERFORMER_TILE;
        project_keys(c, t, w, c->features);
        max = larger(max, max_of_keys(c, t, c->features));
    }
    p->k_max[batch * z->kv_heads + head] =
        max == -INFINITY ? 0.0f : max * p->state->x_scale;
    return ATTNRUN_OK;
}

/* The largest norm of the rows of a head: times 2 for hyp, which takes |x|^2. */
static float largest_norm(const struct attn_feature_call *c, const float *x,
                          const struct attn_heads *strides, int64_t batch, int64_t head,
                          int64_t n)
{
    const struct performer *p = c->rule_arg;
    const float by =
        p->state->norm_scale * (p->args->features == PERFORMER_HYP ? 2.0f : 1.0f);
    struct attn_feature_tile t = { batch, head, 0, 0 };
    float max = 0;
    for (; t.first < n; t.first += PERFORMER_TILE) {
        t.n = n - t.first < PERFORMER_TILE ? n - t.first : PERFORMER_TILE;
        norms(c, shifts_of(c), attn_tile_rows(x, strides, t), strides->row, t.n, by);
        max = larger(max, c->kernels->reduce_max_f32(shifts_of(c), (size_t)t.n));
    }
    return max;
}

static attn_status find_extreme(const struct attn_feature_call *c, const float *w,
                                int64_t task)
{
    const struct performer *p = c->rule_arg;
    const struct attn_sizes *z = &c->plan->sizes;
    const int64_t q_tasks =
        p->args->features == PERFORMER_POS ? 0 : z->batch * z->q_heads;
    const bool query = task < q_tasks;
    const struct op_task at = query ? op_task_at(task, z->q_heads, 1)
                                    : op_task_at(task - q_tasks, z->kv_heads, 1);
    if (p->args->features == PERFORMER_POS)
        return find_max(c, w, at.b, at.head);
    if (query)
        p->q_max[task] = largest_norm(c, c->o->q, &z->q, at.b, at.head, z->q_len);
    else
        p->k_max[task - q_tasks] =
            largest_norm(c, c->o->k, &z->k, at.b, at.head, z->kv_len);
    return ATTNRUN_OK;
}

attn_status attn_performer_prepare(const struct attn_feature_call *c, const float *w,
                                   int64_t task)
{
    const struct performer *p = c->rule_arg;
    const int64_t projections = p->state->rows > 0 ? p->state->projections : 0;
    if (task >= projections)
        return find_extreme(c, w, task - projections);
    scale_projection(c, w, task);
    return ATTNRUN_OK;
}
