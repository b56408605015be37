/* embed_layer_normalization.c - com.microsoft EmbedLayerNormalization: the layer
 * normalization of word + position (+ segment) embeddings.
 *
 * input_ids, segment_ids  i32 (B, S)
 * position_ids            i32 (B, S) or (1, S); 0 … S-1 by default
 * word_, position_, segment_embedding   f32 (rows, H)
 * gamma, beta             f32 (H)
 * mask                    i32 (B, S)
 * output                  f32 (B, S, H)
 * mask_index              i32 (B): the number of ones in the mask, 0 without a mask
 * embedding_sum           f32 (B, S, H): the sum before it is normalized
 *
 * Phase 0 checks the ids, and phase 1 computes rows. Cost: O(B S H).
 *
 * QEmbedLayerNormalization is the same without position_ids. Its tables, gamma and beta
 * are u8 or i8, each with a scale and a zero point. Source: ONNX Runtime contrib
 * operators; compared with onnxruntime 1.32.0. */
#include "../quant/qlinear.h"
#include "softmax_lines.h"

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
    POSITIONS,
    /* Of QEmbedLayerNormalization, for WORDS … BETA: */
    SCALES = 8,
    ZEROS = 13
};
enum { Y, MASK_INDEX, SUM };

struct embed_state {
    struct lines lines;
    int64_t batch, tokens;
    int64_t table_rows[3]; /* of words, positions, segments */
    bool quantized;
};
enum { ROOMS = 4 }; /* of a row in scratch: the sum, a row of a table, gamma, beta */
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

static attn_status check_numbers(const attnrun_step *step)
{
    for (int in = WORDS; in <= BETA; in++) {
        const int scale = SCALES + in - WORDS, zero = ZEROS + in - WORDS;
        if (op_has_in(step, in) != op_has_in(step, scale) ||
            op_has_in(step, in) != op_has_in(step, zero))
            return op_fail(step, ATTNRUN_E_INPUT,
                           "input %d, its scale and its zero point go together", in);
        if (op_has_in(step, in))
            TRY(op_qlinear_check(step, scale, zero));
    }
    return ATTNRUN_OK;
}

static attn_status embed_norm_infer(attnrun_step *step, bool quantized)
{
    struct embed_state *s = step->state;
    const attnrun_type *ids = &step->in[IDS], *words = &step->in[WORDS];
    TRY(op_need_rank(step, IDS, 2));
    TRY(check_tables(step));
    TRY(check_ids(step, SEGMENTS));
    TRY(check_ids(step, MASK));
    if (!quantized)
        TRY(check_ids(step, POSITIONS));
    else
        TRY(check_numbers(step));
    const bool known = ids->rank == 2 && words->rank == 2;
    attnrun_dim y[3] = { ids->dims[0], ids->dims[1], words->dims[1] };
    TRY(op_out(step, Y, ATTNRUN_F32, known ? 3 : -1, y));
    TRY(op_out(step, MASK_INDEX, ATTNRUN_I32, ids->rank == 2 ? 1 : -1, ids->dims));
    if (!quantized)
        TRY(op_out(step, SUM, ATTNRUN_F32, known ? 3 : -1, y));
    if (!step->concrete)
        return ATTNRUN_OK;
    s->quantized = quantized;
    s->batch = ids->dims[0].value;
    s->tokens = ids->dims[1].value;
    for (int i = 0; i < 3; i++)
        if (op_has_in(step, table_inputs[i]))
            s->table_rows[i] = step->in[table_inputs[i]].dims[0].value;
    TRY(attn_lines_plan(step, &s->lines, &step->out[Y], 2, 3, 0.8));
    int64_t n_tasks = step->phases[0].n_tasks, cost = step->phases[0].task_cost;
    op_tasks(step, 0, 1, s->batch * s->tokens * 2);
    op_tasks(step, 1, n_tasks, cost);
    step->scratch_bytes = s->lines.length * 4 * ROOMS;
    return ATTNRUN_OK;
}

static attn_status embed_infer(attnrun_step *step)
{
    return embed_norm_infer(step, false);
}
static attn_status q_embed_infer(attnrun_step *step)
{
    return embed_norm_infer(step, true);
}

/* The row of table i for row `row` of the output. */
static int64_t id_of(const attnrun_step *step, int i, int64_t row)
{
    const struct embed_state *s = step->state;
    const int in = id_inputs[i];
    if (!op_has_in(step, in) || (s->quantized && in == POSITIONS))
        return row % s->tokens;
    const attnrun_tensor *ids = &step->x[in];
    return ((const int32_t *)ids->data)[ids->dims[0] == s->batch ? row : row % s->tokens];
}

static attn_status embed_norm_check_rows(const attnrun_step *step)
{
    const struct embed_state *s = step->state;
    for (int i = 0; i < 3; i++)
        for (int64_t row = 0; row < s->batch * s->tokens; row++) {
            if (!op_has_in(step, table_inputs[i]))
                break;
            int64_t id = id_of(step, i, row);
            if (id < 0 || id >= s->table_rows[i])
                return op_fail_input(step, table_inputs[i], ATTNRUN_E_RANGE,
                                     "holds row %lld, expected 0 to %lld", (long long)id,
                                     (long long)s->table_rows[i] - 1);
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

/* Elements first … first + n - 1 of an input as floats, in `room` where they are bytes. */
static const float *floats_of(const attnrun_step *step, int in, int64_t first, int64_t n,
                              float *room)
{
    const attnrun_tensor *x = &step->x[in];
    if (!((const struct embed_state *)step->state)->quantized)
        return (const float *)x->data + first;
    const struct op_qlinear q =
        op_qlinear_of(step, SCALES + in - WORDS, ZEROS + in - WORDS);
    if (x->dtype == ATTNRUN_I8)
        step->kernels->dequantize_i8_f32(room, (const int8_t *)x->data + first, q.scale,
                                         q.zero, (size_t)n);
    else
        step->kernels->dequantize_u8_f32(room, (const uint8_t *)x->data + first, q.scale,
                                         q.zero, (size_t)n);
    return room;
}

static void embed_row(const attnrun_step *step, int64_t row, const float *gamma,
                      const float *beta, float *room)
{
    const struct embed_args *args = step->args;
    const struct embed_state *s = step->state;
    const int64_t n = s->lines.length;
    const bool wanted =
        !s->quantized && op_has_out(step, SUM) && step->y[SUM].data != NULL;
    float *sum = wanted ? (float *)step->y[SUM].data + row * n : room, stats[2];
    const float *so_far = NULL;
    for (int i = 0; i < 3; i++) {
        if (!op_has_in(step, table_inputs[i]))
            continue;
        const float *from = floats_of(step, table_inputs[i], id_of(step, i, row) * n, n,
                                      so_far == NULL ? room : room + n);
        if (so_far != NULL)
            step->kernels->add_f32(sum, so_far, 1, from, 1, (size_t)n);
        so_far = so_far != NULL ? sum : from;
    }
    step->kernels->layer_norm_f32((float *)step->y[Y].data + row * n, sum, gamma, beta,
                                  (size_t)n, args->epsilon, stats);
}

static attn_status embed_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct embed_state *s = step->state;
    if (work->phase == 0) {
        if (work->begin == work->end)
            return ATTNRUN_OK;
        TRY(embed_norm_check_rows(step));
        count_mask(step);
        return ATTNRUN_OK;
    }
    float *room = work->scratch;
    const int64_t n = s->lines.length;
    const float *gamma = floats_of(step, GAMMA, 0, n, room + 2 * n);
    const float *beta = floats_of(step, BETA, 0, n, room + 3 * n);
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct lines_of_task t = attn_lines_of(&s->lines, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t row = t.index; row < t.index + t.n; row++)
            embed_row(step, row, gamma, beta, room);
    }
    return ATTNRUN_OK;
}

#define EMBED_ROW                                                                        \
    .args_bytes = sizeof(struct embed_args), .state_bytes = sizeof(struct embed_state),  \
    .attrs = embed_attrs, .run = embed_run, .cost = "O(n)",                              \
    .source = "ONNX Runtime contrib operators"
const attnrun_op_def op_embed_layer_normalization_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "EmbedLayerNormalization",
    .since = 1,
    .inputs = "input_ids:i32 segment_ids:i32? word_embedding:T position_embedding:T "
              "segment_embedding:T? gamma:T beta:T mask:i32? position_ids:i32?",
    .outputs = "output:T mask_index:i32? embedding_sum:T?",
    .types = "T=f32",
    .infer = embed_infer,
    EMBED_ROW,
};

const attnrun_op_def op_q_embed_layer_normalization_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "QEmbedLayerNormalization",
    .since = 1,
    .inputs = "input_ids:i32 segment_ids:i32? word_embedding_quant:T2 "
              "position_embedding_quant:T2 segment_embedding:T2? gamma_quant:T2 "
              "beta_quant:T2 mask:i32? word_embedding_scale:T position_embedding_scale:T "
              "segment_embedding_scale:T? gamma_scale:T beta_scale:T "
              "word_embedding_zero_point:T2 position_embedding_zero_point:T2 "
              "segment_embedding_zero_point:T2? gamma_zero_point:T2 beta_zero_point:T2",
    .outputs = "layernorm_out:T mask_index_out:i32?",
    .types = "T=f32 T2=u8,i8",
    .infer = q_embed_infer,
    EMBED_ROW,
};
