/* embed_layer_normalization.c - com.microsoft EmbedLayerNormalization: the layer
 * normalization of word + position (+ segment) embeddings.
 *
 * input_ids, segment_ids, position_ids  i32 (B,S); positions also (1,S), 0 … S-1 if
 * absent word_, position_, segment_embedding   f32 (rows,H);  gamma, beta (H) mask i32
 * (B,S);  mask_index i32 (B): how many ones, 0 without a mask embedding_sum  what is
 * normalized Phase 0 checks the ids, phase 1 computes rows. Source: ONNX Runtime contrib
 * operators. */
#include "lines.h"

struct embed_args {
    float epsilon;
};
static const attnrun_attr_def embed_attrs[] = {
    ATTR_FLOAT(struct embed_args, epsilon, 1e-12f),
    ATTR_IGNORED("mask_index_type"),
    ATTR_END,
};
enum {
    IDS,
    SEGMENTS,
    WORDS,
    POSITION_TABLE,
    SEGMENT_TABLE,
    GAMMA,
    BETA,
    MASK,
    POSITIONS
};
enum { Y, MASK_INDEX, SUM };

struct embed_state {
    struct lines lines;
    int64_t batch, tokens;
    int64_t table_rows[3]; /* of words, positions, segments */
};
/* Which input holds the ids of a table; the table. */
static const int id_inputs[] = { IDS, POSITIONS, SEGMENTS };
static const int table_inputs[] = { WORDS, POSITION_TABLE, SEGMENT_TABLE };

static attn_status check_ids(const attnrun_step *step, int in)
{
    if (!op_has_in(step, in) || step->in[IDS].rank != 2)
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, 2));
    if (in != POSITIONS || step->in[in].rank < 0 || !dim_is(step->in[in].dims[0], 1))
        TRY(op_need_dim(step, in, 0, step->in[IDS].dims[0], "as in input_ids"));
    return op_need_dim(step, in, 1, step->in[IDS].dims[1], "as in input_ids");
}

static attn_status check_tables(const attnrun_step *step)
{
    if (op_has_in(step, SEGMENTS) != op_has_in(step, SEGMENT_TABLE))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "segment_ids and segment_embedding go together");
    for (int in = WORDS; in <= SEGMENT_TABLE; in++)
        if (op_has_in(step, in)) {
            TRY(op_need_rank(step, in, 2));
            if (step->in[WORDS].rank == 2)
                TRY(op_need_dim(step, in, 1, step->in[WORDS].dims[1], "the hidden size"));
        }
    for (int in = GAMMA; in <= BETA; in++) {
        TRY(op_need_rank(step, in, 1));
        if (step->in[WORDS].rank == 2)
            TRY(op_need_dim(step, in, 0, step->in[WORDS].dims[1], "the hidden size"));
    }
    return ATTNRUN_OK;
}

static attn_status embed_infer(attnrun_step *step)
{
    struct embed_state *s = step->state;
    const attnrun_type *ids = &step->in[IDS], *words = &step->in[WORDS];
    TRY(op_need_rank(step, IDS, 2));
    TRY(check_tables(step));
    TRY(check_ids(step, SEGMENTS));
    TRY(check_ids(step, MASK));
    TRY(check_ids(step, POSITIONS));
    const bool known = ids->rank == 2 && words->rank == 2;
    attnrun_dim y[3] = { ids->dims[0], ids->dims[1], words->dims[1] };
    TRY(op_out(step, Y, ATTNRUN_F32, known ? 3 : -1, y));
    TRY(op_out(step, MASK_INDEX, ATTNRUN_I32, ids->rank == 2 ? 1 : -1, ids->dims));
    TRY(op_out(step, SUM, ATTNRUN_F32, known ? 3 : -1, y));
    if (!step->concrete)
        return ATTNRUN_OK;
    s->batch = ids->dims[0].value;
    s->tokens = ids->dims[1].value;
    for (int i = 0; i < 3; i++)
        if (op_has_in(step, table_inputs[i]))
            s->table_rows[i] = step->in[table_inputs[i]].dims[0].value;
    TRY(attn_lines_plan(step, &s->lines, &step->out[Y], 2, 3, 0.8));
    int64_t n_tasks = step->phases[0].n_tasks, cost = step->phases[0].task_cost;
    op_tasks(step, 0, 1, s->batch * s->tokens * 2);
    op_tasks(step, 1, n_tasks, cost);
    step->scratch_bytes = s->lines.length * 4;
    return ATTNRUN_OK;
}

/* The row of table i for row `row` of the output. */
static int64_t id_of(const attnrun_step *step, int i, int64_t row)
{
    const struct embed_state *s = step->state;
    const int in = id_inputs[i];
    if (!op_has_in(step, in))
        return row % s->tokens;
    const attnrun_tensor *ids = &step->x[in];
    return ((const int32_t *)ids->data)[ids->dims[0] == s->batch ? row : row % s->tokens];
}

static attn_status check_rows(const attnrun_step *step)
{
    const struct embed_state *s = step->state;
    for (int i = 0; i < 3; i++)
        for (int64_t row = 0; row < s->batch * s->tokens; row++) {
            if (!op_has_in(step, table_inputs[i]))
                break;
            int64_t id = id_of(step, i, row);
            if (id < 0 || id >= s->table_rows[i])
                return op_fail_input(step, table_inputs[i], ATTNRUN_E_RANGE,
                                     "row %lld is asked for, expected 0 to %lld",
                                     (long long)id, (long long)s->table_rows[i] - 1);
        }
    return ATTNRUN_OK;
}

static void count_mask(const attnrun_step *step)
{
    const struct embed_state *s = step->state;
    if (!op_has_out(step, MASK_INDEX) || step->y[MASK_INDEX].data == NULL)
        return;
    const int32_t *mask = op_in_data(step, MASK);
    for (int64_t b = 0; b < s->batch; b++) {
        int32_t n = 0;
        for (int64_t i = 0; mask != NULL && i < s->tokens; i++)
            n += mask[b * s->tokens + i] == 1;
        ((int32_t *)step->y[MASK_INDEX].data)[b] = n;
    }
}

static void embed_row(const attnrun_step *step, int64_t row, float *room)
{
    const struct embed_args *args = step->args;
    const struct embed_state *s = step->state;
    const int64_t n = s->lines.length;
    const bool wanted = op_has_out(step, SUM) && step->y[SUM].data != NULL;
    float *sum = wanted ? (float *)step->y[SUM].data + row * n : room, stats[2];
    const float *from[3] = { NULL, NULL, NULL };
    for (int i = 0; i < 3; i++)
        if (op_has_in(step, table_inputs[i]))
            from[i] =
                (const float *)step->x[table_inputs[i]].data + id_of(step, i, row) * n;
    step->kernels->add_f32(sum, from[0], 1, from[1], 1, (size_t)n);
    if (from[2] != NULL)
        step->kernels->add_f32(sum, sum, 1, from[2], 1, (size_t)n);
    step->kernels->layer_norm_f32((float *)step->y[Y].data + row * n, sum,
                                  step->x[GAMMA].data, step->x[BETA].data, (size_t)n,
                                  args->epsilon, stats);
}

static attn_status embed_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct embed_state *s = step->state;
    if (work->phase == 0) {
        if (work->begin == work->end)
            return ATTNRUN_OK;
        TRY(check_rows(step));
        count_mask(step);
        return ATTNRUN_OK;
    }
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct lines_of_task t = attn_lines_of(&s->lines, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t row = t.index; row < t.index + t.n; row++)
            embed_row(step, row, work->scratch);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_embed_layer_normalization_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "com.microsoft",
    .name = "EmbedLayerNormalization",
    .since = 1,
    .inputs = "input_ids:i32 segment_ids:i32? word_embedding:T position_embedding:T "
              "segment_embedding:T? gamma:T beta:T mask:i32? position_ids:i32?",
    .outputs = "output:T mask_index:i32? embedding_sum:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct embed_args),
    .state_bytes = sizeof(struct embed_state),
    .attrs = embed_attrs,
    .infer = embed_infer,
    .run = embed_run,
    .cost = "O(n)",
    .source = "ONNX Runtime contrib operators",
};
