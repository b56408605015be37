/* heads.c - checks queries, keys and values in heads. heads.h describes the operands. */
#include "heads.h"

#include <math.h>

/* ---- attributes ---- */

bool attn_scale_given(float scale)
{
    const float absent = ATTN_SCALE_ABSENT;
    return memcmp(&scale, &absent, sizeof scale) != 0;
}

attn_status attn_need_finite(const attnrun_step *step, const char *attribute, float value,
                             bool nonzero)
{
    if (isfinite(value) && !(nonzero && value == 0.0f))
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_ATTR, "%s is %g, expected a finite number%s",
                   attribute, (double)value, nonzero ? " other than 0" : "");
}

attn_status attn_need_not_negative(const attnrun_step *step, const char *attribute,
                                   float value)
{
    TRY(attn_need_finite(step, attribute, value, false));
    return value < 0.0f ? op_fail(step, ATTNRUN_E_ATTR, "%s is %g, expected 0 or more",
                                  attribute, (double)value)
                        : ATTNRUN_OK;
}

attn_status attn_need_int(const attnrun_step *step, const char *attribute, int64_t value,
                          int64_t min, int64_t max)
{
    if (value >= min && value <= max)
        return ATTNRUN_OK;
    if (value == OP_INT_ABSENT)
        return op_fail(step, ATTNRUN_E_ATTR, "%s is missing", attribute);
    if (max == INT64_MAX)
        return op_fail(step, ATTNRUN_E_ATTR, "%s is %lld, expected at least %lld",
                       attribute, (long long)value, (long long)min);
    return op_fail(step, ATTNRUN_E_ATTR, "%s is %lld, expected %lld to %lld", attribute,
                   (long long)value, (long long)min, (long long)max);
}

attn_status attn_need_ints(const attnrun_step *step, const char *attribute,
                           attnrun_ints ints, int64_t n, int64_t max)
{
    bool good = ints.n == n;
    for (int64_t i = 0; good && i < n; i++)
        good = ints.v[i] >= 0 && ints.v[i] <= max;
    return good ? ATTNRUN_OK
                : op_fail(step, ATTNRUN_E_ATTR, "%s has %s, expected %lld from 0 to %lld",
                          attribute, attn_plural(ints.n, "number"), (long long)n,
                          (long long)max);
}

attn_status attn_need_equal(const attnrun_step *step, int in, attnrun_dim found,
                            attnrun_dim expected, const char *what)
{
    if (dim_may_equal(found, expected))
        return ATTNRUN_OK;
    return op_fail_input(step, in, ATTNRUN_E_SHAPE, "its %s is %lld, expected %lld", what,
                         (long long)found.value, (long long)expected.value);
}

static attn_status check_heads(const attnrun_step *step,
                               const struct attn_heads_args *args, unsigned flags)
{
    const int64_t q = args->q_num_heads, kv = args->kv_num_heads;
    if (attn_scale_given(args->scale))
        TRY(attn_need_finite(step, "scale", args->scale, true));
    TRY(attn_need_int(step, "is_causal", args->is_causal, 0, 1));
    if (q != OP_INT_ABSENT)
        TRY(attn_need_int(step, "q_num_heads", q, 1, INT32_MAX));
    if (kv == OP_INT_ABSENT)
        return ATTNRUN_OK;
    TRY(attn_need_int(step, "kv_num_heads", kv, 1, INT32_MAX));
    if (q == OP_INT_ABSENT)
        return ATTNRUN_OK;
    if ((flags & ATTN_SAME_HEADS) != 0 && q != kv)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "kv_num_heads is %lld, expected q_num_heads, %lld: this "
                       "operator has no groups of heads",
                       (long long)kv, (long long)q);
    if (q % kv != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "q_num_heads is %lld, expected a multiple of kv_num_heads, %lld",
                       (long long)q, (long long)kv);
    return ATTNRUN_OK;
}

/* Checks that rank 3 has the head attributes, and rank 4 does not have them. */
static attn_status check_rank(const attnrun_step *step,
                              const struct attn_heads_args *args, int rank)
{
    if (rank == 3 && args->q_num_heads == OP_INT_ABSENT)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "q_num_heads is missing; inputs of rank 3 need it");
    if (rank == 4 && args->q_num_heads != OP_INT_ABSENT)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "q_num_heads is given, expected none with inputs of rank 4: dim 1 "
                       "is the number of heads");
    if (rank == 4 && args->kv_num_heads != OP_INT_ABSENT)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "kv_num_heads is given, expected none with inputs of rank 4: dim "
                       "1 is the number of heads");
    return ATTNRUN_OK;
}

/* ---- operands ---- */

struct heads_operand {
    attnrun_dim batch, heads, tokens, dim;
};

/* `heads`: the attribute, for rank 3. */
static attn_status split(const attnrun_step *step, int in, int rank, int64_t heads,
                         bool dims_first, struct heads_operand *o)
{
    const attnrun_type *t = &step->in[in];
    const int tokens = dims_first ? rank - 1 : rank - 2,
              width = dims_first ? rank - 2 : rank - 1;
    o->batch = attnrun_dim_unknown(step); /* one each: they need not be equal */
    o->heads = attnrun_dim_unknown(step);
    o->tokens = attnrun_dim_unknown(step);
    o->dim = attnrun_dim_unknown(step);
    if (rank == 3)
        o->heads = dim_of(heads);
    if (t->rank < 0)
        return ATTNRUN_OK;
    if (t->rank != rank)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "expected rank %d, as the other operands have", rank);
    o->batch = t->dims[0];
    if (rank == 4) {
        o->heads = t->dims[1];
        o->tokens = t->dims[tokens];
        o->dim = t->dims[width];
        return ATTNRUN_OK;
    }
    o->tokens = t->dims[tokens];
    if (dim_is_const(t->dims[width]) && t->dims[width].value % heads != 0)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "expected a multiple of %s in dim %d",
                             attn_plural(heads, "head"), width);
    o->dim = attnrun_dim_div(step, t->dims[width], dim_of(heads));
    return ATTNRUN_OK;
}

/* Of two dims that should be equal: the one about which more is known. */
static attnrun_dim known_of(attnrun_dim a, attnrun_dim b)
{
    return dim_is_const(a) || (a.expr >= 0 && !dim_is_const(b)) ? a : b;
}

static attn_status check_groups(const attnrun_step *step, int k, attnrun_dim q_heads,
                                attnrun_dim kv_heads, unsigned flags)
{
    if (!dim_is_const(q_heads) || !dim_is_const(kv_heads))
        return ATTNRUN_OK;
    if ((flags & ATTN_SAME_HEADS) != 0)
        return attn_need_equal(step, k, kv_heads, q_heads, "number of heads");
    if (kv_heads.value < 1 || q_heads.value % kv_heads.value != 0)
        return op_fail_input(
            step, k, ATTNRUN_E_SHAPE, "its number of heads, %lld, does not divide %s",
            (long long)kv_heads.value, attn_plural(q_heads.value, "query head"));
    return ATTNRUN_OK;
}

static attn_status heads_check_operands(const attnrun_step *step, int k, int v,
                                        unsigned flags, const struct heads_operand o[3])
{
    TRY(attn_need_equal(step, k, o[1].batch, o[0].batch, "batch"));
    TRY(attn_need_equal(step, v, o[2].batch, o[0].batch, "batch"));
    TRY(attn_need_equal(step, v, o[2].batch, o[1].batch, "batch"));
    TRY(attn_need_equal(step, v, o[2].heads, o[1].heads, "number of heads"));
    TRY(attn_need_equal(step, k, o[1].dim, o[0].dim, "head size"));
    TRY(attn_need_equal(step, v, o[2].tokens, o[1].tokens, "number of keys"));
    if ((flags & ATTN_SAME_LENGTH) != 0) {
        TRY(attn_need_equal(step, k, o[1].tokens, o[0].tokens, "length"));
        TRY(attn_need_equal(step, v, o[2].tokens, o[0].tokens, "length"));
    }
    if (dim_is(o[0].dim, 0) || dim_is(o[1].dim, 0))
        return op_fail_input(step, k, ATTNRUN_E_SHAPE,
                             "its head size is 0, expected 1 or more");
    return check_groups(step, k, o[0].heads, o[1].heads, flags);
}

attn_status attn_qkv_infer(const attnrun_step *step, const struct attn_heads_args *args,
                           int q, int k, int v, unsigned flags, struct attn_qkv *shape)
{
    const int ins[3] = { q, k, v };
    const int64_t q_heads = args->q_num_heads;
    const int64_t kv_heads =
        args->kv_num_heads != OP_INT_ABSENT ? args->kv_num_heads : q_heads;
    struct heads_operand o[3];
    int rank = -1;
    TRY(check_heads(step, args, flags));
    for (int i = 0; i < 3; i++) {
        TRY(op_need_rank_between(step, ins[i], 3, 4));
        if (rank < 0)
            rank = step->in[ins[i]].rank;
    }
    TRY(check_rank(step, args, rank));
    for (int i = 0; i < 3; i++)
        TRY(split(step, ins[i], rank, i == 0 ? q_heads : kv_heads,
                  (flags & ATTN_DIMS_FIRST) != 0, &o[i]));
    TRY(heads_check_operands(step, k, v, flags, o));
    *shape = (struct attn_qkv){ .rank = rank,
                                .dtype = step->in[q].dtype,
                                .dims_first = (flags & ATTN_DIMS_FIRST) != 0,
                                .batch = known_of(o[0].batch,
                                                  known_of(o[1].batch, o[2].batch)),
                                .q_len = o[0].tokens,
                                .kv_len = known_of(o[1].tokens, o[2].tokens),
                                .q_heads = o[0].heads,
                                .kv_heads = known_of(o[1].heads, o[2].heads),
                                .dim = known_of(o[0].dim, o[1].dim),
                                .v_dim = o[2].dim };
    if ((flags & ATTN_SAME_LENGTH) != 0)
        shape->q_len = shape->kv_len = known_of(shape->q_len, shape->kv_len);
    if ((flags & ATTN_SAME_HEADS) != 0)
        shape->q_heads = shape->kv_heads = known_of(shape->q_heads, shape->kv_heads);
    return ATTNRUN_OK;
}

attn_status attn_qkv_output(attnrun_step *step, const struct attn_qkv *shape, int out)
{
    const bool dims_first = shape->dims_first;
    attnrun_dim by_head[4] = { shape->batch, shape->q_heads,
                               dims_first ? shape->v_dim : shape->q_len,
                               dims_first ? shape->q_len : shape->v_dim };
    if (shape->rank != 3)
        return op_out(step, out, shape->dtype, shape->rank, by_head);
    const attnrun_dim width = attnrun_dim_mul(step, shape->q_heads, shape->v_dim);
    attnrun_dim joined[3] = { shape->batch, dims_first ? width : shape->q_len,
                              dims_first ? shape->q_len : width };
    return op_out(step, out, shape->dtype, 3, joined);
}

attn_status attn_key_mask_check(const attnrun_step *step, int in, attnrun_dim batch,
                                attnrun_dim kv_len)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, 2));
    TRY(op_need_dim(step, in, 0, batch, "the batch"));
    return op_need_dim(step, in, 1, kv_len, "the number of keys");
}

const float *attn_kept_rows(const float *x, int64_t *row, int64_t dim,
                            const uint8_t *keep, int64_t n, float *room)
{
    const size_t bytes = (size_t)dim * sizeof *room;
    if (keep == NULL || memchr(keep, 0, (size_t)n) == NULL)
        return x;
    for (int64_t j = 0; j < n; j++) {
        if (keep[j] != 0)
            memcpy(room + j * dim, x + j * *row, bytes);
        else
            memset(room + j * dim, 0, bytes);
    }
    *row = dim;
    return room;
}

/* ---- sizes ---- */

struct attn_heads attn_heads_dense(int rank, int64_t heads, int64_t tokens, int64_t dim)
{
    if (rank == 4)
        return (struct attn_heads){ heads * tokens * dim, tokens * dim, dim };
    return (struct attn_heads){ tokens * heads * dim, dim, heads * dim };
}

static struct attn_heads heads_strides(const struct attn_qkv *shape, int64_t heads,
                                       int64_t tokens, int64_t dim)
{
    if (shape->dims_first)
        return (struct attn_heads){ heads * dim * tokens, dim * tokens, 1 };
    return attn_heads_dense(shape->rank, heads, tokens, dim);
}

attn_status attn_qkv_sizes(const attnrun_step *step, const struct attn_heads_args *args,
                           const struct attn_qkv *shape, struct attn_sizes *sizes)
{
    struct attn_sizes s = { .batch = shape->batch.value,
                            .q_len = shape->q_len.value,
                            .kv_len = shape->kv_len.value,
                            .q_heads = shape->q_heads.value,
                            .kv_heads = shape->kv_heads.value,
                            .dim = shape->dim.value,
                            .v_dim = shape->v_dim.value,
                            .scale = args->scale,
                            .causal = args->is_causal != 0,
                            .dims_first = shape->dims_first };
    int64_t dims;
    if (s.q_len > INT32_MAX || s.kv_len > INT32_MAX || !ck_add(s.dim, s.v_dim, &dims))
        return op_fail(step, ATTNRUN_E_LIMIT,
                       "there are %lld queries and %lld keys, expected at most 2^31 - 1",
                       (long long)s.q_len, (long long)s.kv_len);
    TRY(attn_sdpa_fits(step, s.batch, s.q_heads, s.q_len, s.kv_len, dims));
    s.group = s.kv_heads > 0 ? s.q_heads / s.kv_heads : 1;
    s.offset = s.kv_len - s.q_len;
    if (!attn_scale_given(s.scale))
        s.scale = (float)(1.0 / sqrt((double)s.dim));
    s.q = heads_strides(shape, s.q_heads, s.q_len, s.dim);
    s.k = heads_strides(shape, s.kv_heads, s.kv_len, s.dim);
    s.v = heads_strides(shape, s.kv_heads, s.kv_len, s.v_dim);
    s.y = heads_strides(shape, s.q_heads, s.q_len, s.v_dim);
    *sizes = s;
    return ATTNRUN_OK;
}
