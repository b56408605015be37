/* rotary_embedding.c - RotaryEmbedding: pairs of features of a head are rotated by an
 * angle that grows with the position: (a, b) becomes (a cos - b sin, a sin + b cos).
 *
 * X                     f32 (batch, heads, tokens, dim), or (batch, tokens, heads * dim)
 *                       with num_heads
 * cos_cache, sin_cache  of one shape: (positions, r/2) with position_ids, else (batch or
 *                       1, tokens, r/2)
 * position_ids          i64 (batch or 1, tokens); com.microsoft: also (1), the first
 *                       position
 * Y                     as X
 *
 * With r = rotary_embedding_dim (0: dim), the first r features of a head are rotated, and
 * the rest is copied. Pairs are (i, i + r/2), or neighbours where `interleaved`.
 *
 * com.microsoft MRotaryEmbedding takes three ids for each token (3, batch, tokens): time,
 * height, width. Angle i of a token uses one of them, by mrope_section (t, h, w with t +
 * h + w = r/2): the first t angles use time, the next h height, the last w width. With
 * mrope_layout 1 the angles 1, 4, … < 3 h use height, 2, 5, … < 3 w width, and the others
 * time. `scale` has no effect, as in ONNX Runtime.
 *
 * Cost: one pass over X. Source: ONNX RotaryEmbedding-23; Su 2021, arXiv:2104.09864; Wang
 * 2024, arXiv:2409.12191; ONNX Runtime contrib operators, compared with onnxruntime
 * 1.32.0. */
#include "../core/heads.h"
#include "../core/rotary.h"
#include "../../tile.h"

struct rotary_args {
    int64_t interleaved, num_heads, rotary_embedding_dim;
    int64_t mrope_layout;
    attnrun_ints mrope_section;
};
static const attnrun_attr_def rotary_attrs[] = {
    ATTR_FLAG(struct rotary_args, interleaved, 0),
    ATTR_INT(struct rotary_args, num_heads, 0),
    ATTR_INT(struct rotary_args, rotary_embedding_dim, 0),
    ATTR_END,
};
static const attnrun_attr_def ms_rotary_attrs[] = {
    ATTR_FLAG(struct rotary_args, interleaved, 0),
    ATTR_INT(struct rotary_args, num_heads, 0),
    ATTR_INT(struct rotary_args, rotary_embedding_dim, 0),
    ATTR_IGNORED("scale"),
    ATTR_IGNORED("is_packed_batching"),
    ATTR_END,
};

static const attnrun_attr_def m_rotary_attrs[] = {
    ATTR_FLAG(struct rotary_args, interleaved, 0),
    ATTR_INT(struct rotary_args, num_heads, 0),
    ATTR_INT(struct rotary_args, rotary_embedding_dim, 0),
    ATTR_INTS_REQUIRED(struct rotary_args, mrope_section),
    ATTR_FLAG(struct rotary_args, mrope_layout, 0),
    ATTR_IGNORED("scale"),
    ATTR_IGNORED("is_packed_batching"),
    ATTR_END,
};

/* The index of cos_cache among the inputs of com.microsoft, where num_heads may be 0: the
 * width of the caches then gives it. */
enum { MS_COS = 2 };

struct rotary_state {
    int64_t batch, heads, tokens, dim, half;
    int64_t batch_stride, head_stride, token_stride; /* elements of X */
    int64_t positions;                               /* rows of the caches */
    int64_t cache_batch, ids_batch;                  /* strides; 0 where one serves all */
    int32_t ids_in, cos_in;
    bool by_id, one_id;
    bool three_ids; /* of MRotaryEmbedding */
};
enum { STREAMS = 3 };

static attn_status split_heads(const attnrun_step *step, struct rotary_state *s)
{
    const struct rotary_args *args = step->args;
    const attnrun_type *x = &step->in[0];
    s->batch = x->dims[0].value;
    if (x->rank == 4) {
        s->heads = x->dims[1].value;
        s->tokens = x->dims[2].value;
        s->dim = x->dims[3].value;
        s->token_stride = s->dim;
        s->head_stride = s->tokens * s->dim;
    } else {
        s->heads = args->num_heads;
        if (s->heads == 0 && s->cos_in == MS_COS && step->in[MS_COS].rank == 2 &&
            step->in[MS_COS].dims[1].value > 0)
            s->heads = x->dims[2].value / (2 * step->in[s->cos_in].dims[1].value);
        if (s->heads < 1 && args->num_heads == 0)
            return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                                 "expected a hidden size of at least two columns of the "
                                 "cosines where num_heads is not given");
        if (s->heads < 1 ||
            x->dims[2].value % s->heads != 0) /* at most the hidden size */
            return op_fail_input(
                step, 0, ATTNRUN_E_SHAPE,
                "expected a hidden size that is a multiple of num_heads, %lld",
                (long long)s->heads);
        s->tokens = x->dims[1].value;
        s->dim = x->dims[2].value / s->heads;
        s->token_stride = x->dims[2].value;
        s->head_stride = s->dim;
    }
    s->batch_stride = s->heads * s->tokens * s->dim;
    int64_t r = args->rotary_embedding_dim == 0 ? s->dim : args->rotary_embedding_dim;
    if (r < 0 || r > s->dim || r % 2 != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "rotary_embedding_dim is %lld, expected an even number up to %lld",
                       (long long)r, (long long)s->dim);
    s->half = r / 2;
    return ATTNRUN_OK;
}

static attn_status check_cache(const attnrun_step *step, struct rotary_state *s, int in)
{
    const attnrun_type *t = &step->in[in];
    TRY(op_need_rank(step, in, s->by_id ? 2 : 3));
    TRY(op_need_dim(step, in, t->rank - 1, dim_of(s->half), "half the rotated features"));
    if (s->by_id) {
        s->positions = t->dims[0].value;
        return ATTNRUN_OK;
    }
    if (!dim_is(t->dims[0], 1))
        TRY(op_need_dim(step, in, 0, dim_of(s->batch), "the batch"));
    TRY(op_need_dim(step, in, 1, dim_of(s->tokens), "the tokens"));
    s->cache_batch = dim_is(t->dims[0], 1) ? 0 : s->tokens * s->half;
    return ATTNRUN_OK;
}

static attn_status check_sections(const attnrun_step *step, const struct rotary_state *s)
{
    const attnrun_ints section = ((const struct rotary_args *)step->args)->mrope_section;
    int64_t sum = 0;
    for (int64_t i = 0; i < section.n && sum >= 0; i++)
        sum = section.v[i] < 0 || section.v[i] > s->half ? -1 : sum + section.v[i];
    return section.n == STREAMS && sum == s->half
               ? ATTNRUN_OK
               : op_fail(step, ATTNRUN_E_ATTR,
                         "mrope_section: expected three numbers whose sum is %lld",
                         (long long)s->half);
}

static attn_status check_ids(const attnrun_step *step, struct rotary_state *s)
{
    const attnrun_type *t = &step->in[s->ids_in];
    if (s->three_ids) {
        TRY(check_sections(step, s));
        TRY(op_need_rank(step, s->ids_in, 3));
        TRY(op_need_dim(step, s->ids_in, 0, dim_of(STREAMS), "time, height, width"));
        TRY(op_need_dim(step, s->ids_in, 1, dim_of(s->batch), "the batch"));
        return op_need_dim(step, s->ids_in, 2, dim_of(s->tokens), "the tokens");
    }
    TRY(op_need_rank_between(step, s->ids_in, s->ids_in == 1 ? 1 : 2, 2));
    s->one_id = t->rank == 1;
    if (s->one_id)
        return op_need_dim(step, s->ids_in, 0, dim_of(1), "the first position");
    if (!dim_is(t->dims[0], 1))
        TRY(op_need_dim(step, s->ids_in, 0, dim_of(s->batch), "the batch"));
    TRY(op_need_dim(step, s->ids_in, 1, dim_of(s->tokens), "the tokens"));
    s->ids_batch = dim_is(t->dims[0], 1) ? 0 : s->tokens;
    return ATTNRUN_OK;
}

static attn_status infer_rotary(attnrun_step *step, int ids_in, int cos_in)
{
    const struct rotary_args *args = step->args;
    struct rotary_state *s = step->state;
    TRY(op_need_rank_between(step, 0, 3, 4));
    TRY(op_out_like(step, 0, 0));
    if (step->in[0].rank == 3 && cos_in != MS_COS)
        TRY(attn_need_int(step, "num_heads", args->num_heads, 1, INT32_MAX));
    if (!step->concrete)
        return ATTNRUN_OK;
    if (op_count(&step->in[0], 0, step->in[0].rank) <= 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    s->ids_in = ids_in;
    s->cos_in = cos_in;
    s->by_id = op_has_in(step, ids_in);
    TRY(op_need_rank_between(step, cos_in, 2, 3));
    TRY(split_heads(step, s));
    for (int in = cos_in; in < cos_in + 2; in++)
        TRY(check_cache(step, s, in));
    if (step->in[cos_in].dims[0].value != step->in[cos_in + 1].dims[0].value)
        return op_fail_input(step, cos_in + 1, ATTNRUN_E_SHAPE,
                             "expected cos_cache's shape");
    s->three_ids = args->mrope_section.v != NULL;
    if (s->by_id)
        TRY(check_ids(step, s));
    if (s->three_ids)
        step->scratch_bytes = 2 * s->half * (int64_t)sizeof(float);
    op_tasks(step, 0, s->batch * s->tokens, s->heads * s->dim);
    return ATTNRUN_OK;
}

static attn_status rotary_infer(attnrun_step *step) { return infer_rotary(step, 3, 1); }
static attn_status ms_rotary_infer(attnrun_step *step)
{
    return infer_rotary(step, 1, MS_COS);
}

/* Finds the row of the caches for token `token` of sample b. */
static attn_status cache_row(const attnrun_step *step, int64_t b, int64_t token,
                             int64_t *row)
{
    const struct rotary_state *s = step->state;
    if (!s->by_id) {
        *row = b * s->cache_batch + token * s->half;
        return ATTNRUN_OK;
    }
    const int64_t *ids = step->x[s->ids_in].data;
    int64_t id = s->one_id ? ids[0] : ids[b * s->ids_batch + token];
    if (id < 0 || id >= s->positions || (s->one_id && id + token >= s->positions))
        return op_fail_input(step, s->ids_in, ATTNRUN_E_RANGE,
                             "holds position %lld, expected 0 to %lld", (long long)id,
                             (long long)s->positions - 1);
    *row = (s->one_id ? id + token : id) * s->half;
    return ATTNRUN_OK;
}

/* The id that angle i of a token uses. */
static int stream_of(const struct rotary_args *args, int64_t i)
{
    const int64_t *section = args->mrope_section.v;
    if (args->mrope_layout != 0)
        return i % STREAMS != 0 && i < STREAMS * section[i % STREAMS] ? (int)(i % STREAMS)
                                                                      : 0;
    return i < section[0] ? 0 : i < section[0] + section[1] ? 1 : 2;
}

/* Gathers the angles of a token with three ids in `room`. */
static attn_status gather_angles(const attnrun_step *step, int64_t b, int64_t token,
                                 float *room)
{
    const struct rotary_args *args = step->args;
    const struct rotary_state *s = step->state;
    const int64_t *ids = (const int64_t *)step->x[s->ids_in].data + b * s->tokens + token;
    const float *cosine = step->x[s->cos_in].data, *sine = step->x[s->cos_in + 1].data;
    for (int stream = 0; stream < STREAMS; stream++) {
        const int64_t id = ids[stream * s->batch * s->tokens];
        if (id < 0 || id >= s->positions)
            return op_fail_input(step, s->ids_in, ATTNRUN_E_RANGE,
                                 "holds position %lld, expected 0 to %lld", (long long)id,
                                 (long long)s->positions - 1);
    }
    for (int64_t i = 0; i < s->half; i++) {
        const int64_t id = ids[stream_of(args, i) * s->batch * s->tokens];
        room[i] = cosine[id * s->half + i];
        room[s->half + i] = sine[id * s->half + i];
    }
    return ATTNRUN_OK;
}

static attn_status rotary_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct rotary_args *args = step->args;
    const struct rotary_state *s = step->state;
    const float *cosine = step->x[s->cos_in].data, *sine = step->x[s->cos_in + 1].data;
    float *room = work->scratch;
    if (s->three_ids) {
        cosine = room;
        sine = room + s->half;
    }
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t b = task, token = op_take(&b, s->tokens), row = 0;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(s->three_ids ? gather_angles(step, b, token, room)
                         : cache_row(step, b, token, &row));
        for (int64_t h = 0; h < s->heads; h++) {
            int64_t at =
                b * s->batch_stride + h * s->head_stride + token * s->token_stride;
            attn_rotary_rotate((float *)step->y[0].data + at,
                               (const float *)step->x[0].data + at, cosine + row,
                               sine + row, s->half, s->dim, args->interleaved != 0);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_rotary_embedding_23 = {
    OP_ROW,
    .name = "RotaryEmbedding",
    .since = 23,
    .inputs = "X:T cos_cache:T sin_cache:T position_ids:i64?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct rotary_args),
    .state_bytes = sizeof(struct rotary_state),
    .attrs = rotary_attrs,
    .infer = rotary_infer,
    .run = rotary_run,
    .cost = "O(n)",
    .source = "Su 2021, arXiv:2104.09864",
};

#define MS_ROTARY_ROW(row, name_, attributes, paper)                                     \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF("com.microsoft"),                                                      \
        .name = (name_),                                                                 \
        .since = 1,                                                                      \
        .inputs = "input:T position_ids:i64 cos_cache:T sin_cache:T",                    \
        .outputs = "output:T",                                                           \
        .types = "T=f32",                                                                \
        .args_bytes = sizeof(struct rotary_args),                                        \
        .state_bytes = sizeof(struct rotary_state),                                      \
        .attrs = (attributes),                                                           \
        .infer = ms_rotary_infer,                                                        \
        .run = rotary_run,                                                               \
        .cost = "O(n)",                                                                  \
        .source = (paper),                                                               \
    };
MS_ROTARY_ROW(op_ms_rotary_embedding_1, "RotaryEmbedding", ms_rotary_attrs,
              "Su 2021, arXiv:2104.09864")
MS_ROTARY_ROW(op_m_rotary_embedding_1, "MRotaryEmbedding", m_rotary_attrs,
              "arXiv:2409.12191")
