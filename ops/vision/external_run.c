/* external_run.c - computes the phases of ExternalAttention over tiles of tokens.
 * external_attention.c has the formula and the cost. */
#include <math.h>

#include "external.h"

/* A head of a sample. */
struct group {
    int64_t batch, head;
    float *logits, *largest, *sums;
};

static struct group open_group(const attnrun_step *step, const attnrun_work *work,
                               int64_t index)
{
    const struct attn_external *s = step->state;
    float *floats =
        s->alone ? work->scratch : (float *)work->shared + index * s->group_floats;
    float *largest = floats + s->tiles * s->slots * s->width;
    const struct op_task at = op_task_at(index, s->heads, 1);
    return (struct group){ .batch = at.b,
                           .head = at.head,
                           .logits = floats,
                           .largest = largest,
                           .sums = largest + s->tiles * s->slots };
}

/* The scratch of a worker for a tile. */
struct external_room {
    struct attn_softmax_row *rows; /* of slots */
    float *sums;                   /* TILE */
    float *transposed, *panels, *gemm;
};

static struct external_room open_room(const struct attn_external *s,
                                      const attnrun_work *work)
{
    float *floats = (float *)work->scratch + (s->alone ? s->group_floats : 0);
    struct external_room room = { .rows = (struct attn_softmax_row *)(void *)floats };
    room.sums = floats + round_up(s->slots, 16) * 4;
    room.transposed = room.sums + TILE;
    room.panels = room.transposed + s->transposed_floats;
    room.gemm = room.panels + s->panel_floats;
    return room;
}

/* Sets the right operand of tokens x channels: the transpose of mk or mv of a head. It is
 * always panels, because the kernel would sum a few rows times a transpose in another
 * order. */
static void set_right(const attnrun_step *step, int in, int64_t head,
                      const struct external_room *room, struct attn_gemm_f32 *g)
{
    const struct attn_external_packed *packed = step->node->packed;
    const int64_t index = step->in[in].rank == 3 ? head : 0, k = (int64_t)g->k;
    const int64_t before = packed != NULL && in == MV ? packed->mk_bytes : 0;
    g->packed = 1;
    if (packed != NULL && (in == MK ? packed->mk_bytes : packed->mv_bytes) > 0) {
        g->b = (const float *)(packed + 1) + before / (int64_t)sizeof(float) +
               index * op_packed_elements(step->kernels, k, (int64_t)g->n);
        return;
    }
    step->kernels->gemm_pack_f32(
        room->panels, (const float *)step->x[in].data + index * (int64_t)(g->n * g->k), 1,
        k, g->k, g->n);
    g->b = room->panels;
}

/* The left operand of a head, from an operand for all heads or one for each head. */
static const float *left_of(const attnrun_step *step, int in, int64_t head,
                            int64_t floats)
{
    const int vector = in == BV ? 1 : 2;
    return (const float *)step->x[in].data +
           (step->in[in].rank > vector ? head * floats : 0);
}

/* Computes logits (slots, width) = mk x of n tokens from `t` on. */
static void find_logits(const attnrun_step *step, const struct group *group, int64_t t,
                        int64_t n, const struct external_room *room, float *logits)
{
    const struct attn_external *s = step->state;
    const float *x = step->x[X].data;
    struct attn_gemm_f32 g = { .k = (size_t)s->ch, .scratch = room->gemm };
    if (s->tokens) {
        g.m = (size_t)n;
        g.n = (size_t)s->slots;
        g.a_row = s->heads * s->ch;
        g.a = x + (group->batch * s->n + t) * g.a_row + group->head * s->ch;
        g.c = room->transposed;
        g.c_row = s->slots;
        set_right(step, MK, group->head, room, &g);
        step->kernels->gemm_f32(&g);
        step->kernels->transpose_f32(logits, s->width, room->transposed, s->slots,
                                     (size_t)n, (size_t)s->slots);
        return;
    }
    g.n = (size_t)n;
    g.b = x + (group->batch * s->heads + group->head) * s->ch * s->n + t;
    g.b_row = s->n;
    g.b_col = 1;
    g.c_row = s->width;
    g.a_row = s->ch;
    for (int64_t slot = 0; slot < s->slots; slot += ROWS) {
        g.a = left_of(step, MK, group->head, s->slots * s->ch) + slot * s->ch;
        g.m = (size_t)min64(ROWS, s->slots - slot);
        g.c = logits + slot * s->width;
        step->kernels->gemm_f32(&g);
    }
}

/* Computes the logits of a tile as exp(l - largest of their slot), and the largest and
 * the sums. */
static void run_logits(const attnrun_step *step, const struct group *group, int64_t tile,
                       const struct external_room *room)
{
    const struct attn_external *s = step->state;
    const int64_t n = min64(s->n - tile * TILE, TILE);
    float *logits = group->logits + tile * s->slots * s->width;
    find_logits(step, group, tile * TILE, n, room, logits);
    for (int64_t i = 0; i < s->slots; i++)
        room->rows[i] = (struct attn_softmax_row){ .max = -INFINITY };
    step->kernels->softmax_rows_f32(logits, s->width, (size_t)s->slots, (size_t)n,
                                    ATTN_TERMS_ALL, room->rows);
    for (int64_t i = 0; i < s->slots; i++) {
        group->largest[tile * s->slots + i] = room->rows[i].max;
        group->sums[tile * s->slots + i] = room->rows[i].sum;
    }
}

/* group->largest becomes exp(largest of the tile - that of all) / sum of all. */
static void run_worth(const attnrun_step *step, const struct group *group,
                      const struct external_room *room)
{
    const struct attn_external *s = step->state;
    float *max = (float *)room->rows, *sum = max + s->slots;
    for (int64_t i = 0; i < s->slots; i++) {
        max[i] = -INFINITY;
        sum[i] = 0;
    }
    step->kernels->max_columns_f32(max, group->largest, s->slots, (size_t)s->tiles,
                                   (size_t)s->slots, NULL);
    const struct attn_features exponentials = { .x = group->largest,
                                                .y = group->largest,
                                                .x_row = s->slots,
                                                .y_row = s->slots,
                                                .rows = (size_t)s->tiles,
                                                .n = (size_t)s->slots,
                                                .map = ATTN_MAP_EXP,
                                                .scale = 1.0f,
                                                .column_shift = max };
    step->kernels->features_f32(&exponentials);
    for (int64_t tile = 0; tile < s->tiles; tile++)
        for (int64_t i = 0; i < s->slots; i++)
            sum[i] +=
                group->largest[tile * s->slots + i] * group->sums[tile * s->slots + i];
    for (int64_t tile = 0; tile < s->tiles; tile++)
        step->kernels->div_f32(group->largest + tile * s->slots,
                               group->largest + tile * s->slots, 1, sum, 1,
                               (size_t)s->slots);
}

/* Computes 1 / (epsilon + sum), and `empty` for 1 / 0. If the reciprocal of a sum would
 * overflow, the sum and the terms in it are made larger first, and the result is true. */
static bool invert_sums(float *sums, float *larger, int64_t n, float epsilon, float empty)
{
    const float tiny = 0x1p-100f;
    bool any = false;
    for (int64_t i = 0; i < n; i++) {
        const float sum = sums[i] + epsilon;
        larger[i] = sum < tiny ? 0x1p+100f : 1.0f;
        any = any || (sum < tiny && sum > 0.0f);
        sums[i] = sum == 0.0f ? empty : 1.0f / (sum * larger[i]);
    }
    return any;
}

/* Turns the terms of a tile into a, for n tokens. */
static void pool_tile(const attnrun_step *step, const struct group *group, int64_t tile,
                      int64_t n, const struct external_room *room)
{
    const struct attn_external_args *args = step->args;
    const struct attn_external *s = step->state;
    float larger[TILE], *logits = group->logits + tile * s->slots * s->width;
    struct attn_features f = { .x = logits,
                               .y = logits,
                               .x_row = s->width,
                               .y_row = s->width,
                               .rows = (size_t)s->slots,
                               .n = (size_t)n,
                               .map = ATTN_MAP_IDENTITY,
                               .scale = 1.0f,
                               .row_factor = group->largest + tile * s->slots,
                               .column_sums = room->sums };
    memset(room->sums, 0, (size_t)n * sizeof *room->sums);
    step->kernels->features_f32(&f);
    f.row_factor = f.column_sums = NULL;
    f.column_factor = larger;
    if (invert_sums(room->sums, larger, n, args->epsilon, args->nan_rows ? NAN : 0.0f))
        step->kernels->features_f32(&f);
    f.column_factor = room->sums;
    step->kernels->features_f32(&f);
}

/* Lists the steps behind mv a for the channels from `channel` of the head on and the
 * tokens from those of y on; `row`: between rows of Y. */
static int32_t external_list_epilogue(const attnrun_step *step, int64_t head,
                                      int64_t channel, const float *y, int64_t row,
                                      struct attn_epilogue *steps)
{
    const struct attn_external_args *args = step->args;
    const struct attn_external *s = step->state;
    int32_t n = 0;
    /* Sums of several blocks are complete before anything else is added, as without steps
     * behind them. */
    if (s->slots > OP_PRODUCT_TERMS)
        steps[n++] = (struct attn_epilogue){ .kind = ATTN_EPI_SCALE, .alpha = 1.0f };
    if (op_has_in(step, BV))
        steps[n++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                    .alpha = 1.0f,
                                    .row = s->tokens ? 0 : 1,
                                    .col = s->tokens ? 1 : 0,
                                    .data = left_of(step, BV, head, s->co) + channel };
    if (op_has_in(step, IDENTITY))
        steps[n++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                    .alpha = 1.0f,
                                    .row = row,
                                    .col = 1,
                                    .data = (const float *)step->x[IDENTITY].data +
                                            (y - (const float *)step->y[0].data) };
    if (args->post_activation != 0)
        steps[n++] = (struct attn_epilogue){ .kind = ATTN_EPI_RELU };
    return n;
}

static void run_values(const attnrun_step *step, const struct group *group, int64_t tile,
                       const struct external_room *room)
{
    const struct attn_external *s = step->state;
    const int64_t n = min64(s->n - tile * TILE, TILE), t = tile * TILE;
    const float *logits = group->logits + tile * s->slots * s->width;
    struct attn_epilogue steps[4];
    float *y = step->y[0].data;
    struct attn_gemm_f32 g = { .k = (size_t)s->slots,
                               .scratch = room->gemm,
                               .epilogue = steps };
    pool_tile(step, group, tile, n, room);
    if (s->tokens) {
        g.m = (size_t)n;
        g.n = (size_t)s->co;
        g.a = logits;
        g.a_row = 1;
        g.a_col = s->width;
        g.c_row = s->heads * s->co;
        g.c = y + (group->batch * s->n + t) * g.c_row + group->head * s->co;
        set_right(step, MV, group->head, room, &g);
        g.n_epilogue = external_list_epilogue(step, group->head, 0, g.c, g.c_row, steps);
        step->kernels->gemm_f32(&g);
        return;
    }
    g.n = (size_t)n;
    g.b = logits;
    g.b_row = s->width;
    g.b_col = 1;
    g.a_row = s->slots;
    g.c_row = s->n;
    for (int64_t i = 0; i < s->co; i += ROWS) {
        g.m = (size_t)min64(ROWS, s->co - i);
        g.a = left_of(step, MV, group->head, s->co * s->slots) + i * s->slots;
        g.c = y + ((group->batch * s->heads + group->head) * s->co + i) * s->n + t;
        g.n_epilogue = external_list_epilogue(step, group->head, i, g.c, g.c_row, steps);
        step->kernels->gemm_f32(&g);
    }
}

static attn_status external_run_group(const attnrun_step *step, const attnrun_work *work,
                                      int64_t index)
{
    const struct attn_external *s = step->state;
    const struct group group = open_group(step, work, index);
    const struct external_room room = open_room(s, work);
    for (int64_t tile = 0; tile < 2 * s->tiles; tile++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (tile == s->tiles)
            run_worth(step, &group, &room);
        if (tile < s->tiles)
            run_logits(step, &group, tile, &room);
        else
            run_values(step, &group, tile - s->tiles, &room);
    }
    return ATTNRUN_OK;
}

attn_status attn_external_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_external *s = step->state;
    if (s->batch == 0 || s->co == 0)
        return ATTNRUN_OK;
    const struct external_room room = open_room(s, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (s->alone) {
            TRY(external_run_group(step, work, task));
            continue;
        }
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const bool whole = work->phase == WORTH;
        int64_t index = task, tile = whole ? 0 : op_take(&index, s->tiles);
        const struct group group = open_group(step, work, index);
        if (whole)
            run_worth(step, &group, &room);
        else if (work->phase == LOGITS)
            run_logits(step, &group, tile, &room);
        else
            run_values(step, &group, tile, &room);
    }
    return ATTNRUN_OK;
}
