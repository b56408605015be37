/* sparse_transformer.h - what the files of SparseTransformerAttention share.
 * sparse_transformer_attention.c has the operator row, the formula and the plan, and
 * sparse_transformer_run.c the tasks. */
#ifndef ATTN_SPARSE_TRANSFORMER_H
#define ATTN_SPARSE_TRANSFORMER_H

#include "../core/heads.h"
#include "../core/stream.h"

enum { SPARSE_Q, SPARSE_K, SPARSE_V, SPARSE_KEY_MASK };
/* The parts of a pattern. */
enum {
    SPARSE_LOCAL = 1,
    SPARSE_STRIDED = 2,
    SPARSE_OWN_BLOCK = 4,
    SPARSE_SUMMARY = 8,
    SPARSE_NEAR = SPARSE_LOCAL | SPARSE_OWN_BLOCK
};

struct sparse_args {
    struct attn_heads_args heads;
    attnrun_strings pattern;
    int64_t stride, summary, num_verts;
};
struct sparse_state {
    struct attn_sizes sizes;
    int64_t group, groups; /* queries of a task; tasks of a head */
    int64_t rows;          /* queries of a stream */
    int64_t tile;          /* queries that are given keys together */
    /* Where all heads are strided: the remainders of a task, the tasks of a group, and the
     * heads whose rows of a remainder are copied together; otherwise 0. */
    int64_t remainders, parts, copied;
    int64_t row_floats, key_floats; /* of a head's copied queries, and keys */
    /* Offsets in scratch, in bytes: sums and states of strided keys, gathered keys, copied
     * rows. */
    int64_t far_at, far_state_at, keys_at, copies_at;
};

/* The parts of a head's pattern; 0 where its name is unknown. */
int attn_sparse_parts(const struct sparse_args *args, int64_t head);
attn_status attn_sparse_run(const attnrun_step *step, const attnrun_work *work);

#endif
