/* block_layout.h - lists of blocks in two index tensors of i32 or i64, one list for each
 * row of each layout. The list of row a of layout l is col_idx[l, row_ptr[l, a]] …
 * col_idx[l, row_ptr[l, a + 1] - 1].
 *
 * In: row_ptr (layouts, rows + 1) and col_idx (layouts, entries). Out: sizes, elements,
 * and a status where a list is not valid. Cost of the check: one pass over row_ptr and
 * over the entries of its rows. */
#ifndef ATTN_BLOCK_LAYOUT_H
#define ATTN_BLOCK_LAYOUT_H

#include "../../../runtime/op.h"

struct attn_layout {
    int row_ptr, col_idx;           /* inputs */
    int64_t layouts, rows, entries; /* row_ptr is (layouts, rows + 1) */
};

/* Checks the sizes of both inputs, which have rank 2 and constant dims. The layouts must
 * divide the heads. */
static inline attn_status layout_sizes(const attnrun_step *step, struct attn_layout *l,
                                       int64_t heads)
{
    l->layouts = step->in[l->row_ptr].dims[0].value;
    l->rows = step->in[l->row_ptr].dims[1].value - 1;
    l->entries = step->in[l->col_idx].dims[1].value;
    TRY(op_need_dim(step, l->col_idx, 0, dim_of(l->layouts), "the layouts of row_ptr"));
    if (l->rows < 0)
        return op_fail_input(step, l->row_ptr, ATTNRUN_E_SHAPE,
                             "expected 1 or more in dim 1, one more than rows");
    if (l->layouts < 1 || heads % l->layouts != 0)
        return op_fail_input(step, l->row_ptr, ATTNRUN_E_SHAPE,
                             "expected a divisor of the %s in dim 0",
                             attn_plural(heads, "head"));
    return ATTNRUN_OK;
}

static inline int64_t layout_index(const attnrun_tensor *x, int64_t i)
{
    return x->dtype == ATTNRUN_I64 ? ((const int64_t *)x->data)[i]
                                   : ((const int32_t *)x->data)[i];
}

/* Checks that row_ptr rises within the entries, and that the entries of rows are min …
 * blocks - 1. `work` is for its cancel flag; it may be NULL. */
static inline attn_status layout_check(const attnrun_step *step,
                                       const struct attn_layout *l, int64_t min,
                                       int64_t blocks, const attnrun_work *work)
{
    const attnrun_tensor *rows = &step->x[l->row_ptr], *columns = &step->x[l->col_idx];
    for (int64_t i = 0; i < l->layouts; i++) {
        int64_t last = 0;
        for (int64_t a = 0; a <= l->rows; a++) {
            const int64_t next = layout_index(rows, i * (l->rows + 1) + a);
            if (next < last || next > l->entries)
                return op_fail_input(step, l->row_ptr, ATTNRUN_E_RANGE,
                                     "holds %lld at [%lld,%lld], expected %lld to %lld",
                                     (long long)next, (long long)i, (long long)a,
                                     (long long)last, (long long)l->entries);
            last = next;
        }
        for (int64_t e = layout_index(rows, i * (l->rows + 1)); e < last; e++) {
            const int64_t block = layout_index(columns, i * l->entries + e);
            if (work != NULL && e % 65536 == 0 && OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            if (block < min || block >= blocks)
                return op_fail_input(step, l->col_idx, ATTNRUN_E_RANGE,
                                     "holds %lld, expected %lld to %lld",
                                     (long long)block, (long long)min,
                                     (long long)blocks - 1);
        }
    }
    return ATTNRUN_OK;
}

#endif
