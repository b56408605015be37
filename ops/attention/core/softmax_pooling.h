/* softmax_pooling.h - softmax pooling of tokens, for operators that compute their scores
 * in their own way. Rows (queries, or heads of a pooling) meet tiles of tokens, with an
 * online softmax. If few rows see many tokens, the tokens are cut into segments, whose
 * results are merged in order. Only the weights, where they are an output, grow with rows
 * x tokens.
 *
 *   infer:  fill in struct attn_pooling, attn_pooling_plan(), attn_pooling_tasks()
 *   run:    for each task of phase 0: attn_pooling_at(); find its operands;
 *           attn_pooling_run(); of phase 1: attn_pooling_merge()
 *
 * Cost: 2 rows tokens v_dim FLOPs, rows tokens exponentials, and the scores. Scratch: a
 * tile of scores, the sums of a block of rows, and up to 128 KiB (or one) of tokens: a tile
 * in which some are masked is read as copies with zeros there. */
#ifndef ATTN_SOFTMAX_POOLING_H
#define ATTN_SOFTMAX_POOLING_H

#include "../../../runtime/op.h"
#include "../../kernels/kernels.h"

enum { ATTN_POOLING_TILE = 256 };
enum attn_pooling_form {
    ATTN_POOLING_SOFTMAX,
    ATTN_POOLING_EXP,  /* exp(s) over their sum + epsilon */
    ATTN_POOLING_PLAIN /* the scores are the weights */
};

struct attn_pooling {
    int64_t batch, rows, tokens, v_dim;
    int64_t block; /* rows of a task at most */
    int64_t tile;  /* tokens whose scores exist at a time; scores of rows are that far
                      apart */
    /* Row r sums the floats from r * v_head on of each token; v_head is 0, or v_dim where
     * rows are heads. */
    int64_t v_head;
    int32_t form;
    float epsilon;
    double token_ns;      /* a token's scores and sums of a block */
    int64_t extra_floats; /* of a worker, for the scores */
    /* By attn_pooling_plan(): */
    int64_t blocks, part, parts, record;
    int64_t n_tasks, task_cost, n_merges, merge_cost;
    int64_t scratch_bytes, shared_bytes;
};

/* One task: rows row … row + rows - 1 of sample b, tokens from … to - 1. */
struct attn_pooling_task {
    int64_t index, b, row, rows, from, to;
    float *extra; /* aligned to 64 */
};

/* Writes the scores of all rows of the task and tokens first … first + n - 1. */
typedef void (*attn_pooling_scores)(void *arg, const struct attn_pooling_task *task,
                                    float *scores, int64_t first, int64_t n);

struct attn_pooling_operands {
    const float *v; /* dense rows */
    int64_t v_batch, v_row;
    const float
        *gathered; /* where scores() leaves the tile's tokens, v_row apart; or NULL */
    const uint8_t *mask; /* (batch, tokens), 0 masks all of a token; or NULL */
    float *y;
    int64_t y_batch, y_row;
    float *weights; /* (batch, rows, tokens), or NULL */
    attn_pooling_scores scores;
    void *arg;
};

/* Operands for dense values (batch, tokens, v_dim) and results (batch, rows, v_dim). The
 * caller sets `scores` and `arg`. */
struct attn_pooling_operands attn_pooling_dense(const struct attn_pooling *w,
                                                const float *v, const uint8_t *mask,
                                                float *y, float *weights);
/* The largest tile for scores that need `floats_per_token` more floats. */
int64_t attn_pooling_tile(int64_t floats_per_token);
attn_status attn_pooling_plan(const attnrun_step *step, struct attn_pooling *w);
/* States phases 0 and 1 and the memory of a step that does nothing else. */
void attn_pooling_tasks(attnrun_step *step, const struct attn_pooling *w);
struct attn_pooling_task attn_pooling_at(const struct attn_pooling *w, int64_t task,
                                         void *scratch);
attn_status attn_pooling_run(const struct attn_pooling *w,
                             const struct attn_kernels *kernels,
                             const struct attn_pooling_operands *o,
                             const struct attn_pooling_task *task,
                             const attnrun_work *work);
/* Runs task `merge` of n_merges; there is none where there is one part. work->shared is
 * not changed, so several tasks may merge the same parts. */
void attn_pooling_merge(const struct attn_pooling *w, const struct attn_kernels *kernels,
                        const struct attn_pooling_operands *o, int64_t merge,
                        const attnrun_work *work);

/* ---- scores that are rows times a matrix of a few columns ---- */
/* scores[h][j] = f(scale (x_j B + bias)_h), f an epilogue or none (-1). */
struct attn_logits {
    const float *x; /* n rows */
    int64_t x_row, k, heads;
    const float *b;           /* (k, heads) dense; or */
    const attnrun_step *step; /* its input `in`, which pack() may have packed */
    int in;
    const float *bias; /* (heads), or NULL */
    float scale;
    int32_t activation;
    float *scratch; /* attn_logits_floats() */
};
/* The floats of scratch for up to `tile` rows; -1 where they overflow. */
int64_t attn_logits_floats(int64_t tile, int64_t k, int64_t heads);
void attn_logits_run(const struct attn_logits *l, const struct attn_kernels *kernels,
                     int64_t n, float *scores, int64_t tile);

/* ---- shapes ---- */
/* Dim `axis` of an input; unknown where the rank is unknown. */
static inline attnrun_dim attn_dim_of_input(const attnrun_step *step, int in, int axis)
{
    if (!op_has_in(step, in) || step->in[in].rank <= axis)
        return attnrun_dim_unknown(step);
    return step->in[in].dims[axis];
}
/* Of two dims that should be equal: the one about which more is known. */
static inline attnrun_dim attn_known_of(attnrun_dim a, attnrun_dim b)
{
    return dim_is_const(a) || (a.expr >= 0 && !dim_is_const(b)) ? a : b;
}

#endif
