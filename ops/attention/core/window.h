/* window.h - attention of queries that see a window of the keys around them, and a few
 * global keys. LocalAttention, LongformerAttention, ChunkedLocalAttention and
 * SingleHeadAttention share it. It is built on the streaming core.
 *
 * Query i of a head is at position p = i + kv_len - q_len. With dilation d it sees the
 * keys j = p + d t. Queries and keys of one residue modulo d are a sequence of their own,
 * in which the window is [x - left, x + right]. A dilated head is therefore d plain heads
 * whose rows are d tokens apart. In chunks of c > 1 the window is one of whole chunks:
 * from the first key of the `left`th chunk before the query's own to the end of the
 * `right`th chunk after it. Global keys are used once; they are gathered in tiles of
 * their own. Global queries see all keys. A query that sees no key gives zeros.
 *
 *   infer:  fill in struct attn_window, attn_window_plan(), state its tasks and scratch
 *   run:    attn_window_list() for each sample, where there are global tokens;
 *           attn_window_run() for each task; attn_window_run_rows() for each row task
 *
 * Cost: 2 (dim + v_dim) FLOPs a pair; with 256 keys a side 6 % of the pairs are computed
 * and then masked. Scratch: a block of up to 1,024 queries and a tile of 256 keys.
 * Source: Beltagy 2020, arXiv:2004.05150. */
#ifndef ATTN_WINDOW_H
#define ATTN_WINDOW_H

#include "heads.h"
#include "stream.h"

struct attn_window {
    struct attn_sizes s;
    /* Lists of one element, or of one for each query head. v NULL: unbounded, dilation 1.
     * An element of -1 is unbounded. */
    attnrun_ints left, right, dilation;
    int64_t chunk;    /* 1: no chunks */
    bool wrap;        /* chunks before the first are the last ones, and so on */
    bool exact;       /* of the chunks, only keys within left * chunk … right * chunk */
    bool shared;      /* keys are the queries over their length; a query sees itself only
                         where there is nothing else; k is not read */
    bool zero_masked; /* a masked query gives zeros */
    bool globals;     /* there may be global tokens */
    int64_t max_globals;
    /* By attn_window_plan(): */
    int64_t block, blocks, n_tasks, task_cost, row_tasks, row_cost, scratch_bytes;
    int64_t keep_at, at_at, gather_at; /* slots of scratch */
    int64_t list_bytes; /* of struct attn_window_lists' memory, shared by the workers */
};

/* Global tokens of all samples. */
struct attn_window_lists {
    int32_t *count;  /* (batch) */
    int32_t *tokens; /* (batch, kv_len), the first `count` of each in rising order */
    uint8_t *seen; /* (batch, kv_len): a key of the window's part, as it is not global */
    uint8_t *global; /* (batch, kv_len) */
};

struct attn_window_operands {
    const float *q, *k, *v;
    float *y;
    const uint8_t *key_mask; /* (batch, kv_len): 0 masks a key; or NULL */
    struct attn_window_lists lists;
    /* Factors of queries (q_gate and k_gate, (q_heads, dim)) and of results (y_gate,
     * (q_heads, v_dim)), or NULL. */
    const float *q_gate, *k_gate, *y_gate;
};

/* Fails unless attribute `name` has one element or `heads` (where known), each from `min`
 * on. */
attn_status attn_window_need_ints(const attnrun_step *step, const char *name,
                                  attnrun_ints ints, attnrun_dim heads, int64_t min);
attn_status attn_window_plan(const attnrun_step *step, struct attn_window *w);
struct attn_window_lists attn_window_lists_at(const struct attn_window *w, void *memory);
/* Fills in the lists of sample b. Token j is global where j < first or global_mask[j],
 * and, with `needs_key`, key_mask[j]. Both masks are those of the sample, (kv_len), or
 * NULL. */
void attn_window_list(const struct attn_window *w, const struct attn_window_lists *lists,
                      int64_t b, int64_t first, const uint8_t *global_mask,
                      const uint8_t *key_mask, bool needs_key);
/* Computes queries that are not global. Returns E_CANCELLED where a run is cancelled
 * between two tiles. */
attn_status attn_window_run(const struct attn_window *w,
                            const struct attn_kernels *kernels,
                            const struct attn_window_operands *o, int64_t task,
                            const attnrun_work *work);
/* Computes global queries, which see all keys. */
attn_status attn_window_run_rows(const struct attn_window *w,
                                 const struct attn_kernels *kernels,
                                 const struct attn_window_operands *o, int64_t task,
                                 const attnrun_work *work);

/* ---- a step that is a window with global tokens ---- */

/* Its phases: lists of global tokens, queries that are not global, queries that are. */
enum { ATTN_WINDOW_LIST, ATTN_WINDOW_TILES, ATTN_WINDOW_ROWS };

/* attn_window_plan(), whose tasks and memory become those of the step. */
attn_status attn_window_plan_step(attnrun_step *step, struct attn_window *w);

/* Which tokens are global: as attn_window_list() takes it; mask is (batch, kv_len) or NULL. */
struct attn_window_globals {
    const uint8_t *mask;
    int64_t first;
    bool needs_key;
};

/* Runs a range of tasks of a phase. `operands` without their lists. rows: what computes global
 * queries in the place of attn_window_run_rows(), or NULL. */
typedef attn_status attn_window_rows_fn(const attnrun_step *step,
                                        const struct attn_window_operands *o,
                                        int64_t task, const attnrun_work *work);
attn_status attn_window_run_step(const attnrun_step *step, const struct attn_window *w,
                                 const struct attn_window_operands *operands,
                                 const struct attn_window_globals *globals,
                                 const attnrun_work *work, attn_window_rows_fn *rows);

#endif
