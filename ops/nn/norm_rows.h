/* norm_rows.h - normalization of the last dims of a tensor, which LayerNormalization,
 * RMSNormalization and their relatives share. In: rows of f32 or f64, scale and bias.
 * Out: normalized rows. Cost: two or three passes over a row in cache. */
#ifndef ATTN_NORM_ROWS_H
#define ATTN_NORM_ROWS_H

#include "softmax_lines.h"

/* How a scale or bias of a shape that broadcasts to the normalized dims is read. */
struct norm_weight {
    bool present, direct; /* direct: n elements, read in place */
    int32_t rank;
    int64_t dims[ATTNRUN_MAX_RANK],
        strides[ATTNRUN_MAX_RANK]; /* elements; 0: broadcast */
};

struct norm_rows {
    struct lines lines;
    struct norm_weight scale, bias;
};

/* Checks that input `in` broadcasts to dims axis … of input 0. */
attn_status attn_norm_check_weight(const attnrun_step *step, int in, int axis);
/* step->concrete: lines, weights, tasks and scratch. */
attn_status attn_norm_rows_plan(attnrun_step *step, struct norm_rows *rows, int axis,
                                int scale_in, int bias_in);
/* The n elements of a weight: in place, or expanded into `room`. NULL where absent. */
const void *attn_norm_find_weight(const struct norm_weight *weight,
                                  const attnrun_tensor *x, void *room);
/* Output of the statistics: dims of input 0 with 1 from axis on. */
attn_status attn_norm_stats_out(attnrun_step *step, int out, int32_t dtype, int axis);
/* Rows of no element have statistics, too: NaN, as the mean of nothing is. One task writes them:
 * _plan() states it, _run() is true where there is nothing else to do. */
void attn_norm_empty_plan(attnrun_step *step, const struct lines *lines);
bool attn_norm_empty_run(const attnrun_step *step, const struct lines *lines,
                         int first_stats, int n_stats);

/* f64 row: stats = mean (0 where `rms`), 1 / sqrt(variance or mean square + epsilon). */
void attn_norm_row_f64(double *y, const double *x, const double *scale,
                       const double *bias, int64_t n, double epsilon, bool rms,
                       double *stats);

#endif
