/* fourier_mix.h - what the files of FourierMix share: fourier_mix.c has the operator row
 * and the form for any shape, fourier_rows.c the form for long sequences, and
 * fourier_lanes.c transforms of one length over several lines side by side. */
#ifndef ATTN_FOURIER_MIX_H
#define ATTN_FOURIER_MIX_H

#include "../../runtime/op.h"
#include "../image/fft.h"
#include "../kernels/kernels.h"

enum { FOURIER_LANES = ATTN_FFT_LANES, FOURIER_ELEMENT = 2 * FOURIER_LANES };

/* Transforms of one length over FOURIER_LANES lines. */
struct fourier_lanes {
    struct fft_plan plan;
    struct fft_plan parts[2]; /* length = A B; B is 1: not split */
    bool wide;                /* Bluestein, line by line in f64 */
    int64_t table_bytes, block_bytes, work_bytes, line_bytes;
};

struct fourier_state {
    struct fourier_lanes tokens, channels;
    int64_t batch, n, c, row_blocks, column_blocks;
    bool by_rows; /* fourier_rows.c */
};

/* Memory of a task. */
struct fourier_room {
    float *block, *work; /* n elements each; `work` of a split length: A rows of B + 1 */
    float *line[2];      /* of a split length: A or B elements */
};

/* A transform between two places; rows and im as in struct attn_fft_pass. */
struct fourier_line {
    const float *x;
    float *y; /* NULL: the result is in one of `room` */
    ptrdiff_t x_row, x_im, y_row, y_im;
    float *room[2]; /* x may be one of them */
};

static inline bool fourier_split(const struct fourier_lanes *t)
{
    return t->parts[1].n > 1;
}
/* What the rows of a task need: all of struct fourier_room. */
static inline int64_t fourier_rows_bytes(const struct fourier_lanes *t)
{
    return t->work_bytes + 2 * t->line_bytes + t->block_bytes;
}

/* ---- fourier_lanes.c ---- */
/* False: n is under 1 or over 2^40. */
bool attn_fourier_plan(struct fourier_lanes *t, int64_t n);
/* Split: the roots of both parts, then those between them in the order of their use.
 * `work`: work_bytes. */
void attn_fourier_table(const struct fourier_lanes *t, void *table, void *work);
/* Room for `t` in scratch, a block only where wanted. */
struct fourier_room attn_fourier_room(const struct fourier_lanes *t, float *scratch,
                                      bool with_block);
/* Transforms r->block; the result is where it says: there or in r->work. */
float *attn_fourier_run(const struct fourier_lanes *t, const struct attn_kernels *kernels,
                        const void *table, const struct fourier_room *r);
/* Part 0 or 1 of a split length. Returns where the result is. */
float *attn_fourier_part(const struct fourier_lanes *t,
                         const struct attn_kernels *kernels, const float *table, int part,
                         const struct fourier_line *l);
/* What comes between the parts for line q of part 0, A factors. */
const float *attn_fourier_rotations(const struct fourier_lanes *t, const float *table,
                                    int64_t q);
/* Rows of x, `row` floats apart, as lanes: row i is the real part of lane i, row
 * FOURIER_LANES + i the imaginary part. */
void attn_fourier_load_rows(const struct attn_kernels *kernels, float *block,
                            const float *x, ptrdiff_t row, int64_t n_rows, int64_t c);

/* ---- fourier_rows.c ---- */
bool attn_fourier_rows_fit(const struct fourier_state *s);
int64_t attn_fourier_rows_scratch(const struct fourier_state *s);
void attn_fourier_rows_first(const attnrun_step *step, const attnrun_work *work,
                             int64_t task);
void attn_fourier_rows_second(const attnrun_step *step, const attnrun_work *work,
                              int64_t task);

#endif
