/* sdpa_plan.c - cuts softmax attention into tasks. sdpa.h describes the operands.
 *
 * In: the sizes of struct attn_sdpa. Out: blocks of queries, groups of heads whose rows
 * are computed together, parts of the keys, scratch and shared memory. All of them depend
 * on shapes alone, and the parts on the shapes of one sample. */
#include "sdpa.h"
#include "stream.h"
#include "../../tile.h"

enum {
    QUERIES = ATTN_STREAM_ROWS,
    MAX_QUERIES = ATTN_STREAM_MAX, /* queries that share one packing of K and V */
    PART_KEYS = 256,               /* fewer are not worth a task of their own */
    /* Rows of a window are cut to the keys that they see in groups of ATTN_SDPA_GROUP. Blocks are
     * multiples of it, so that the batch, which decides how many there are, moves no group. */
    MIN_BLOCK = ATTN_SDPA_GROUP
};

/* Whether the queries of all heads of a group are rows of one matrix: they lie one behind
 * the other. */
static bool mergeable(const struct attn_sdpa *s)
{
    return s->q.head == s->q_len * s->q.row && s->y.head == s->q_len * s->y.row;
}

attn_status attn_sdpa_fits(const attnrun_step *step, int64_t batch, int64_t heads,
                           int64_t q_len, int64_t kv_len, int64_t dim)
{
    const int64_t sizes[] = { batch, heads, q_len, dim, 8 };
    int64_t a = 1, b = 1;
    bool fits = ck_mul(max64(kv_len, 1), max64(q_len, 1), &b);
    for (int i = 0; i < 5 && fits; i++)
        fits = ck_mul(a, max64(sizes[i], 1), &a) &&
               (i >= 2 || ck_mul(b, max64(sizes[i], 1), &b));
    int64_t keys = max64(kv_len, 1), rows = max64(q_len, 1), c;
    fits = fits && ck_mul(a / rows, keys, &c);
    return fits ? ATTNRUN_OK
                : op_fail_size(step,
                               "the number of its scores, or the bytes of its queries,",
                               "2^63 - 1");
}

attn_status attn_sdpa_plan(const attnrun_step *step, struct attn_sdpa *s)
{
    const bool empty = s->batch == 0 || s->q_heads == 0 || s->q_len == 0;
    s->blocks = s->block = s->heads = s->parts = 1;
    attn_sdpa_limit_window(s);
    if (empty)
        return ATTNRUN_OK;
    int64_t group = s->q_heads / s->kv_heads;
    if (s->q_len == 1) { /* the next row is that of the next head */
        s->q.row = s->q.head;
        s->y.row = s->y.head;
    }
    s->rows = s->q_len;
    s->heads = s->q_heads;
    /* Rows of one head may have the band of keys of a causal mask, which is worth more than that
     * heads share the packing of K and V. */
    if (group > 1 && mergeable(s) && s->q_len < QUERIES / (s->causal ? 4 : 2)) {
        s->rows = s->q_len * group;
        s->heads = s->kv_heads;
    }
    const int64_t others = s->batch * s->heads;
    const bool window = s->left >= 0 || s->right >= 0;
    const int64_t largest = op_block_growing(s->rows, QUERIES, MAX_QUERIES, others);
    const int64_t block = op_block_finer(s->rows, largest, MIN_BLOCK, others);
    s->block = window ? min64(s->rows, block) : op_block_even(s->rows, block);
    s->blocks = ceil_div(s->rows, s->block);
    s->scratch_bytes = attn_stream_bytes(s->block, s->head_dim, s->v_dim);
    if (s->scratch_bytes < 0 ||
        !op_grid_tasks(s->batch, s->heads, s->blocks, &s->n_tasks))
        return op_fail_scratch(step);
    s->promoted_bytes =
        s->promotes ? ATTN_STREAM_KEYS * (s->head_dim + s->v_dim) * (int64_t)sizeof(float)
                    : 0;
    s->scratch_bytes += s->promoted_bytes;
    double cost = 2.0 * (double)s->block * (double)s->kv_len *
                  (double)(s->head_dim + s->v_dim + 32) / 100.0;
    s->task_cost = op_ns(cost + 500);
    op_flops(step, (s->causal ? 1.0 : 2.0) * (double)s->batch * (double)s->q_heads *
                       (double)s->q_len * (double)s->kv_len *
                       (double)(s->head_dim + s->v_dim));
    return ATTNRUN_OK;
}

attn_status attn_sdpa_phases(attnrun_step *step, struct attn_sdpa *s, int phase,
                             bool wanted)
{
    TRY(attn_sdpa_plan(step, s));
    int64_t bytes = 0;
    if (s->n_tasks > 0 && s->rows <= QUERIES && s->heads < OP_ENOUGH_TASKS / 2 &&
        s->left < 0)
        s->parts = max64(1, min64(OP_ENOUGH_TASKS / s->heads, s->kv_len / PART_KEYS));
    s->sum_phase = phase + 1;
    s->parts_at = round_up(step->shared_bytes, 64);
    if (s->parts > 1 &&
        (!ck_mul(s->n_tasks, s->parts * (int64_t)sizeof(float), &bytes) ||
         !ck_mul(bytes, attn_stream_saved_floats(s->block, s->v_dim), &bytes) ||
         !ck_add(s->parts_at, bytes, &step->shared_bytes)))
        return op_fail_scratch(step);
    op_tasks(step, phase, wanted ? s->n_tasks * s->parts : 0, s->task_cost / s->parts);
    op_tasks(step, phase + 1, wanted && s->parts > 1 ? s->n_tasks : 0,
             s->rows * (s->v_dim + 32) * s->parts / 4);
    step->scratch_bytes = max64(step->scratch_bytes, s->scratch_bytes);
    return ATTNRUN_OK;
}
