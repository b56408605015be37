/* mixture.c - shapes, tasks and the phases of a mixture of experts. mixture.h describes
 * the operands and the cost. */
#include <math.h>

#include "../tile.h"

#include "mixture.h"

enum { ROUTE, SORT, UP, DOWN, SUM };
enum { TASK_NS = 50000, COLUMN_STEP = 64 };
struct mixture_tile {
    int32_t expert, first, rows;
};

/* ---- shapes ---- */

attn_status attn_mixture_output(attnrun_step *step)
{
    TRY(op_need_rank_between(step, 0, 2, 3));
    TRY(op_need_rank(step, 1, 2));
    return op_out_like(step, 0, 0);
}

static bool is_there(int n_in, const attnrun_type *in, int input)
{
    return input < n_in && in[input].kind != ATTNRUN_ABSENT;
}

/* Input `in` is (experts, lines, elements / per), or has the last two dims exchanged. */
static bool fits(const attnrun_type *in, int64_t experts, int64_t lines, int64_t elements,
                 int64_t per)
{
    if (in->rank != 3 || elements % per != 0 || in->dims[0].value != experts)
        return false;
    const int64_t a = in->dims[1].value, b = in->dims[2].value;
    return (a == lines && b == elements / per) ||
           (per == 1 ? a == elements && b == lines
                     : lines % per == 0 && a == elements && b == lines / per);
}

static bool constant_dims(const attnrun_type *in)
{
    for (int i = 0; i < 3; i++)
        if (in->rank != 3 || !dim_is_const(in->dims[i]))
            return false;
    return true;
}

static void set_matrices(const struct mixture_kind *kind, const struct mixture_args *args,
                         bool fused, bool with_fc3, struct mixture_state *s)
{
    const bool interleaved = fused && args->swiglu_fusion == 1;
    const struct mixture_matrix fc1 = { .which = MIXTURE_FC1,
                                        .weights = kind->weights[MIXTURE_FC1],
                                        .bias = kind->biases[MIXTURE_FC1],
                                        .k = s->hidden,
                                        .n = s->inter,
                                        .step = interleaved ? 2 : 1,
                                        .lines = fused ? 2 * s->inter : s->inter };
    s->n_up = fused || with_fc3 ? 2 : 1;
    s->up[0] = s->up[1] = s->down = fc1;
    s->up[1].first = interleaved ? 1 : s->inter;
    if (with_fc3) {
        s->up[1].which = MIXTURE_FC3;
        s->up[1].weights = kind->weights[MIXTURE_FC3];
        s->up[1].bias = kind->biases[MIXTURE_FC3];
        s->up[1].first = 0;
    }
    s->down.which = MIXTURE_FC2;
    s->down.weights = kind->weights[MIXTURE_FC2];
    s->down.bias = kind->biases[MIXTURE_FC2];
    s->down.k = s->inter;
    s->down.n = s->down.lines = s->hidden;
    s->down.step = 1;
}

bool attn_mixture_matrices(const struct mixture_kind *kind,
                           const struct mixture_args *args, int n_in,
                           const attnrun_type *in, const int64_t *per,
                           struct mixture_state *s, int *wrong, const char **text)
{
    const attnrun_type *fc1 = &in[kind->weights[MIXTURE_FC1]];
    const attnrun_type *fc2 = &in[kind->weights[MIXTURE_FC2]];
    const bool with_fc3 = is_there(n_in, in, kind->weights[MIXTURE_FC3]);
    const bool gated =
        args->activation_type == MIXTURE_SWIGLU || args->activation_type == MIXTURE_GEGLU;
    const bool fused = gated && args->swiglu_fusion != 0;
    int64_t elements;
    *wrong = -1;
    *text = fused
                ? "fc3 and swiglu_fusion cannot be combined"
                : "the activation has a factor, but swiglu_fusion is 0 and fc3 is absent";
    if ((fused && with_fc3) || (gated && !fused && !with_fc3))
        return false;
    *text = "the sizes are not known";
    if (!constant_dims(fc1) || !constant_dims(fc2) || in[0].rank < 1 ||
        !dim_is_const(in[0].dims[in[0].rank - 1]))
        return false;
    s->hidden = in[0].dims[in[0].rank - 1].value;
    s->experts = fc1->dims[0].value;
    *wrong = kind->weights[MIXTURE_FC2];
    *text = "expected (experts, hidden size, inner size)";
    if (s->hidden < 1 || s->experts < 1 || s->experts > INT32_MAX ||
        !ck_mul(fc2->dims[1].value, fc2->dims[2].value, &elements) ||
        !ck_mul(elements, per[MIXTURE_FC2], &elements) || elements % s->hidden != 0 ||
        elements == 0)
        return false;
    s->inter = elements / s->hidden;
    set_matrices(kind, args, fused, with_fc3, s);
    if (!fits(fc2, s->experts, s->hidden, s->inter, per[MIXTURE_FC2]))
        return false;
    *text = "expected (experts, inner size, twice that where it holds two, hidden size)";
    for (int i = 0; i < s->n_up; i++) {
        *wrong = s->up[i].weights;
        if (!fits(&in[*wrong], s->experts, s->up[i].lines, s->hidden,
                  per[s->up[i].which]))
            return false;
    }
    return true;
}

int attn_mixture_list(const struct mixture_state *s,
                      const struct mixture_matrix *matrices[MIXTURE_MATRICES])
{
    matrices[0] = &s->up[0];
    matrices[1] = s->n_up == 2 ? &s->up[1] : &s->down;
    matrices[2] = &s->down;
    return s->n_up + 1;
}

static attn_status check_rest(const attnrun_step *step, const struct mixture_kind *kind,
                              const struct mixture_state *s)
{
    const struct mixture_args *args = step->args;
    const struct mixture_matrix *m[MIXTURE_MATRICES];
    if (args->k < 1 || args->k > s->experts)
        return op_fail(step, ATTNRUN_E_ATTR, "k is %lld, expected 1 to %s",
                       (long long)args->k, attn_plural(s->experts, "expert"));
    if (args->use_sparse_mixer && args->k != 2)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "k is %lld, expected 2 with use_sparse_mixer 1",
                       (long long)args->k);
    TRY(op_need_dim(step, 1, 0, dim_of(s->tokens), "tokens"));
    TRY(op_need_dim(step, 1, 1, dim_of(s->experts), "experts"));
    if (kind->router_weights >= 0 && op_has_in(step, kind->router_weights)) {
        TRY(op_need_rank(step, kind->router_weights, 2));
        TRY(op_need_dim(step, kind->router_weights, 0, dim_of(s->tokens), "tokens"));
        TRY(op_need_dim(step, kind->router_weights, 1, dim_of(s->experts), "experts"));
    }
    for (int i = attn_mixture_list(s, m) - 1; i >= 0; i--) {
        if (!op_has_in(step, m[i]->bias))
            continue;
        TRY(op_need_rank(step, m[i]->bias, 2));
        TRY(op_need_dim(step, m[i]->bias, 0, dim_of(s->experts), "experts"));
        TRY(op_need_dim(step, m[i]->bias, 1, dim_of(m[i]->lines), "columns"));
    }
    return ATTNRUN_OK;
}

attn_status attn_mixture_shapes(attnrun_step *step, const struct mixture_kind *kind,
                                const int64_t *per)
{
    struct mixture_state *s = step->state;
    const struct mixture_args *args = step->args;
    const char *text;
    int wrong;
    if (!attn_mixture_matrices(kind, args, step->n_in, step->in, per, s, &wrong, &text))
        return wrong < 0 ? op_fail(step, ATTNRUN_E_ATTR, "%s", text)
                         : op_fail_input(step, wrong, ATTNRUN_E_SHAPE, "%s", text);
    s->tokens = op_count(&step->in[0], 0, step->in[0].rank - 1);
    s->k = args->k;
    return check_rest(step, kind, s);
}

/* ---- tasks ---- */

static void mixture_cut(struct mixture_matrix *m, int64_t rows)
{
    const double row = (double)rows / 60, read = 0.4; /* nanoseconds an element of W */
    const double column = (double)m->k * (row > read ? row : read) + 1;
    int64_t columns = (int64_t)(TASK_NS / column) / COLUMN_STEP * COLUMN_STEP;
    columns = columns < COLUMN_STEP ? COLUMN_STEP : min64(columns, MIXTURE_COLUMNS);
    m->columns = columns;
    m->blocks = ceil_div(m->n, columns);
}

static int64_t task_cost(const struct mixture_matrix *m, int64_t rows)
{
    const double cost = (double)m->k * (double)m->columns * ((double)rows / 60 + 0.4);
    return op_ns(cost);
}

static bool mixture_lay_out(struct mixture_state *s, int64_t *bytes)
{
    return op_slot(&s->expert_at, bytes, s->routes, sizeof(int32_t)) &&
           op_slot(&s->weight_at, bytes, s->routes, sizeof(float)) &&
           op_slot(&s->place_at, bytes, s->routes, sizeof(int32_t)) &&
           op_slot(&s->token_at, bytes, s->routes, sizeof(int32_t)) &&
           op_slot(&s->tiles_at, bytes, s->tiles, sizeof(struct mixture_tile)) &&
           op_slot_rows(&s->inner_at, bytes, s->routes, s->inter, sizeof(float)) &&
           op_slot_rows(&s->outer_at, bytes, s->routes, s->hidden, sizeof(float));
}

attn_status attn_mixture_tasks(attnrun_step *step, int64_t product_bytes)
{
    struct mixture_state *s = step->state;
    const int first = s->first_phase;
    int64_t up, down;
    if (!ck_mul(s->tokens, s->k, &s->routes) || s->routes > INT32_MAX)
        return op_fail_size(step, "the number of routes (tokens times k)", "2^31 - 1");
    s->tiles = s->routes / MIXTURE_ROWS + min64(s->experts, s->routes);
    const int64_t rows =
        min64(MIXTURE_ROWS, s->tiles > 0 ? ceil_div(s->routes, s->experts) : 1);
    mixture_cut(&s->up[0], rows);
    s->up[1].columns = s->up[0].columns;
    mixture_cut(&s->down, rows);
    if (!mixture_lay_out(s, &step->shared_bytes) ||
        !ck_mul(s->tiles, s->up[0].blocks, &up) ||
        !ck_mul(s->tiles, s->down.blocks, &down))
        return op_fail_scratch(step);
    s->products_at = 4 * (MIXTURE_ROWS * (s->hidden + MIXTURE_COLUMNS) + MIXTURE_COLUMNS);
    s->products_at = round_up(s->products_at, 64);
    step->scratch_bytes = s->products_at + product_bytes;
    if (step->scratch_bytes < attn_mixture_route_bytes(s->experts))
        step->scratch_bytes = attn_mixture_route_bytes(s->experts);
    if (step->scratch_bytes < 4 * s->experts + 4)
        step->scratch_bytes = 4 * s->experts + 4;
    op_tasks(step, first + ROUTE, ceil_div(s->tokens, MIXTURE_TOKENS),
             MIXTURE_TOKENS * s->experts * (10 + s->k));
    op_tasks(step, first + SORT, 1, s->routes * 4);
    op_tasks(step, first + UP, up, task_cost(&s->up[0], rows) * s->n_up);
    op_tasks(step, first + DOWN, down, task_cost(&s->down, rows));
    op_tasks(step, first + SUM, ceil_div(s->tokens, MIXTURE_TOKENS),
             MIXTURE_TOKENS * s->hidden * s->k / 4);
    return ATTNRUN_OK;
}

/* ---- the phases ---- */

static attn_status route(const attnrun_step *step, const attnrun_work *work,
                         const struct mixture_kind *kind, int64_t task)
{
    const struct mixture_state *s = step->state;
    const float *mix =
        kind->router_weights < 0 ? NULL : op_in_data(step, kind->router_weights);
    attn_mixture_route(step->args, s, kind->normalized, step->x[1].data, mix,
                       task * MIXTURE_TOKENS,
                       min64(s->tokens, (task + 1) * MIXTURE_TOKENS),
                       op_slot_at(work->shared, s->expert_at),
                       op_slot_at(work->shared, s->weight_at), work->scratch);
    return ATTNRUN_OK;
}

/* A weight that is no number makes the token's row NaN. */
static bool has_part(float weight, float min_weight) { return !(weight <= min_weight); }

/* Routes with a weight, by expert and then by token: their tokens, places and tiles. */
static attn_status sort(const attnrun_step *step, const attnrun_work *work,
                        float min_weight)
{
    const struct mixture_state *s = step->state;
    const int32_t *expert = op_slot_at(work->shared, s->expert_at);
    const float *weight = op_slot_at(work->shared, s->weight_at);
    int32_t *place = op_slot_at(work->shared, s->place_at),
            *token = op_slot_at(work->shared, s->token_at);
    int32_t *next = work->scratch, n = 0;
    struct mixture_tile *tile = op_slot_at(work->shared, s->tiles_at),
                        *end = tile + s->tiles;
    memset(next, 0, (size_t)s->experts * sizeof *next);
    for (int64_t r = 0; r < s->routes; r++) {
        next[expert[r]] += has_part(weight[r], min_weight);
        TRY(attn_poll_work(8));
    }
    for (int32_t e = 0; e < s->experts; e++) {
        const int32_t count = next[e];
        for (int32_t i = 0; i < count; i += MIXTURE_ROWS)
            *tile++ = (struct mixture_tile){ e, n + i,
                                             (int32_t)min64(MIXTURE_ROWS, count - i) };
        next[e] = n;
        n += count;
    }
    memset(tile, 0, (size_t)(end - tile) * sizeof *tile);
    for (int64_t r = 0; r < s->routes; r++) {
        place[r] = has_part(weight[r], min_weight) ? next[expert[r]]++ : -1;
        if (place[r] >= 0)
            token[place[r]] = (int32_t)(r / s->k);
        TRY(attn_poll_work(16));
    }
    return ATTNRUN_OK;
}

/* The bias of columns [column, column + n) of an expert; `room` where they are not dense. */
static const float *bias_of(const attnrun_step *step, const struct mixture_matrix *m,
                            int64_t expert, int64_t column, int64_t n, float *room)
{
    const float *bias = op_in_data(step, m->bias);
    if (bias == NULL)
        return NULL;
    bias += expert * m->lines + m->first + column * m->step;
    for (int64_t j = 0; m->step != 1 && j < n; j++)
        room[j] = bias[j * m->step];
    return m->step != 1 ? room : bias;
}

/* y = act(y), and times `factor` where that is not NULL. */
static void mixture_activate(const attnrun_step *step, float *y, float *factor, size_t n)
{
    const struct mixture_args *args = step->args;
    const struct attn_kernels *k = step->kernels;
    const float limit = args->swiglu_limit, one[2] = { 1.0f, 0.0f };
    const float upper[2] = { -INFINITY, limit }, both[2] = { -limit, limit };
    const float alpha[2] = { args->activation_alpha, 0.0f };
    const bool after = args->swiglu_limit_after_activation != 0;
    switch (args->activation_type) {
    case MIXTURE_RELU:
    case MIXTURE_RELU2:
        k->relu_f32(y, y, n, one);
        if (args->activation_type == MIXTURE_RELU2)
            k->mul_f32(y, y, 1, y, 1, n);
        break;
    case MIXTURE_GELU:
    case MIXTURE_GEGLU:
        k->gelu_tanh_f32(y, y, n, one);
        break;
    case MIXTURE_SILU:
        k->swish_f32(y, y, n, one);
        break;
    case MIXTURE_SWIGLU:
        if (!after && limit < INFINITY)
            k->clip_f32(y, y, n, upper);
        k->swish_f32(y, y, n, alpha);
        if (after && limit < INFINITY)
            k->clip_f32(y, y, n, upper);
        if (limit < INFINITY)
            k->clip_f32(factor, factor, n, both);
        k->add_f32(factor, factor, 1, &args->activation_beta, 0, n);
        break;
    default:
        break;
    }
    if (factor != NULL)
        k->mul_f32(y, y, 1, factor, 1, n);
}

static attn_status up(const attnrun_step *step, const attnrun_work *work,
                      const struct mixture_kind *kind, int64_t task)
{
    const struct mixture_state *s = step->state;
    const struct mixture_tile *tile =
        (struct mixture_tile *)op_slot_at(work->shared, s->tiles_at);
    const int64_t column = op_take(&task, s->up[0].blocks) * s->up[0].columns;
    const int64_t n = min64(s->up[0].columns, s->inter - column);
    const int32_t *token = op_slot_at(work->shared, s->token_at);
    const float *x = step->x[0].data;
    float *rows = work->scratch, *factors = rows + MIXTURE_ROWS * s->hidden;
    float *room = factors + MIXTURE_ROWS * MIXTURE_COLUMNS;
    const void *made = NULL; /* of `rows` */
    tile += task;
    float *inner =
        op_slot_floats(work->shared, s->inner_at) + tile->first * s->inter + column;
    for (int32_t i = 0; i < tile->rows; i++)
        memcpy(rows + i * s->hidden, x + token[tile->first + i] * s->hidden,
               (size_t)s->hidden * sizeof *x);
    for (int i = 0; i < s->n_up && tile->rows > 0; i++) {
        const struct mixture_matrix *m = &s->up[i];
        struct mixture_product product = {
            .matrix = m,
            .a = rows,
            .rows = made,
            .bias = bias_of(step, m, tile->expert, column, n, room),
            .c = i == 0 ? inner : factors,
            .scratch = (uint8_t *)work->scratch + s->products_at,
            .expert = tile->expert,
            .m = tile->rows,
            .column = column,
            .n = n,
            .a_row = s->hidden,
            .c_row = i == 0 ? s->inter : n,
        };
        TRY(kind->multiply(step, work, &product));
        made = product.rows;
    }
    for (int32_t i = 0; i < tile->rows; i++)
        mixture_activate(step, inner + i * s->inter,
                         s->n_up == 2 ? factors + i * n : NULL, (size_t)n);
    return ATTNRUN_OK;
}

static attn_status down(const attnrun_step *step, const attnrun_work *work,
                        const struct mixture_kind *kind, int64_t task)
{
    const struct mixture_state *s = step->state;
    const struct mixture_matrix *m = &s->down;
    const struct mixture_tile *tile =
        (struct mixture_tile *)op_slot_at(work->shared, s->tiles_at);
    const int64_t column = op_take(&task, m->blocks) * m->columns;
    tile += task;
    struct mixture_product product = {
        .matrix = m,
        .a = op_slot_floats(work->shared, s->inner_at) + tile->first * s->inter,
        .bias = bias_of(step, m, tile->expert, column, 0, NULL),
        .c = op_slot_floats(work->shared, s->outer_at) + tile->first * s->hidden + column,
        .scratch = (uint8_t *)work->scratch + s->products_at,
        .expert = tile->expert,
        .m = tile->rows,
        .column = column,
        .n = min64(m->columns, s->hidden - column),
        .a_row = s->inter,
        .c_row = s->hidden,
    };
    return tile->rows > 0 ? kind->multiply(step, work, &product) : ATTNRUN_OK;
}

static void add_up(const attnrun_step *step, const attnrun_work *work, int64_t token)
{
    const struct mixture_state *s = step->state;
    const struct attn_kernels *k = step->kernels;
    const int32_t *place =
        (int32_t *)op_slot_at(work->shared, s->place_at) + token * s->k;
    const float *weight = op_slot_floats(work->shared, s->weight_at) + token * s->k;
    const float *outer = op_slot_at(work->shared, s->outer_at);
    float *y = (float *)step->y[0].data + token * s->hidden, *product = work->scratch;
    const size_t n = (size_t)s->hidden;
    if (attn_poll_work(8 * s->hidden * s->k) != ATTNRUN_OK)
        return;
    memset(y, 0, n * sizeof *y);
    for (int64_t j = 0; j < s->k; j++) {
        if (place[j] < 0)
            continue;
        k->mul_f32(product, outer + place[j] * s->hidden, 1, &weight[j], 0, n);
        k->add_f32(y, y, 1, product, 1, n);
    }
}

attn_status attn_mixture_run(const attnrun_step *step, const attnrun_work *work,
                             const struct mixture_kind *kind)
{
    const struct mixture_state *s = step->state;
    const int phase = work->phase - s->first_phase;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (phase == ROUTE)
            TRY(route(step, work, kind, task));
        else if (phase == SORT)
            TRY(sort(step, work, kind->min_weight));
        else if (phase == UP)
            TRY(up(step, work, kind, task));
        else if (phase == DOWN)
            TRY(down(step, work, kind, task));
        else
            for (int64_t t = task * MIXTURE_TOKENS;
                 t < min64(s->tokens, (task + 1) * MIXTURE_TOKENS); t++)
                add_up(step, work, t);
    }
    return ATTNRUN_OK;
}
