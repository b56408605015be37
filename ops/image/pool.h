/* pool.h - what the pooling operators share: sizes of the output, and tasks. A task is
 * one row of output pixels of one plane. */
#ifndef ATTN_OPS_POOL_H
#define ATTN_OPS_POOL_H

#include "../tile.h"
#include "sliding_window.h"

struct pool_args {
    struct window_attrs window; /* kernel_shape is required */
    int64_t ceil_mode, count_include_pad, storage_order, p, channels_last, zero_last;
    float p_float; /* LpPool-1 */
};

#define POOL_ATTR_ROWS                                                                   \
    { .name = "auto_pad",                                                                \
      .kind = ATTNRUN_ATTR_ENUM,                                                         \
      .offset = offsetof(struct window_attrs, auto_pad),                                 \
      .text = "NOTSET|SAME_UPPER|SAME_LOWER|VALID" },                                    \
        ATTR_INTS_REQUIRED(struct window_attrs, kernel_shape),                           \
        ATTR_INTS(struct window_attrs, strides), ATTR_INTS(struct window_attrs, pads),   \
        ATTR_FLAG(struct pool_args, ceil_mode, 0)

/* With channels_last a plane is an image, whose pixels are `channels` elements. */
struct pool_state {
    struct window w;
    int64_t planes, in_plane, out_plane, channels; /* elements */
};

/* The kernel indices [*from, *to) that see the input for some output position of
 * first..last. */
static inline void attn_pool_taps(const struct window *w, int axis, int64_t first,
                                  int64_t last, int64_t *from, int64_t *to)
{
    int64_t d = w->dilation[axis], b = w->before[axis];
    int64_t lo = b - last * w->stride[axis];
    int64_t hi = w->in[axis] - 1 + b - first * w->stride[axis];
    lo = lo > 0 ? ceil_div(lo, d) : 0;
    hi = hi < 0 ? 0 : hi / d + 1;
    *to = hi < w->kernel[axis] ? hi : w->kernel[axis];
    *from = lo < *to ? lo : *to;
}

/* The part of the input that the window at `at` sees, row by row. attn_pool_next() moves
 * to a row of n elements, which are `step` apart from element `from` of the plane on; it
 * is false behind the last row. */
struct pool_rows {
    const struct window *w;
    int64_t at[WINDOW_AXES], taps[WINDOW_AXES][2], kd, kh;
    int64_t from, n, step;
};
static inline struct pool_rows attn_pool_rows(const struct window *w,
                                              const int64_t at[WINDOW_AXES])
{
    struct pool_rows rows = { .w = w, .step = w->dilation[2] };
    for (int a = 0; a < WINDOW_AXES; a++) {
        rows.at[a] = at[a];
        attn_pool_taps(w, a, at[a], at[a], &rows.taps[a][0], &rows.taps[a][1]);
    }
    rows.kd = rows.taps[0][0];
    rows.kh = rows.taps[1][0] - 1;
    rows.n = rows.taps[2][1] - rows.taps[2][0];
    return rows;
}
static inline int64_t attn_pool_place(const struct pool_rows *rows, int axis, int64_t tap)
{
    const struct window *w = rows->w;
    return rows->at[axis] * w->stride[axis] - w->before[axis] + tap * w->dilation[axis];
}
static inline bool attn_pool_next(struct pool_rows *rows)
{
    const struct window *w = rows->w;
    if (++rows->kh >= rows->taps[1][1]) {
        rows->kh = rows->taps[1][0];
        rows->kd++;
    }
    if (rows->kd >= rows->taps[0][1] || rows->kh >= rows->taps[1][1] || rows->n <= 0)
        return false;
    rows->from = (attn_pool_place(rows, 0, rows->kd) * w->in[1] +
                  attn_pool_place(rows, 1, rows->kh)) *
                     w->in[2] +
                 attn_pool_place(rows, 2, rows->taps[2][0]);
    return true;
}
/* The next whole row of the plane x, of elements of so many bytes, that windows at this depth and
 * height see; NULL behind the last. */
static inline const void *attn_pool_next_line(struct pool_rows *rows, const void *x,
                                              size_t bytes)
{
    rows->n = 1;
    if (!attn_pool_next(rows))
        return NULL;
    const int64_t line = attn_pool_place(rows, 0, rows->kd) * rows->w->in[1] +
                         attn_pool_place(rows, 1, rows->kh);
    return (const char *)x + line * rows->w->in[2] * (int64_t)bytes;
}
/* The number of elements that the window sees. */
static inline int64_t attn_pool_seen(const struct pool_rows *rows)
{
    int64_t n = 1;
    for (int a = 0; a < WINDOW_AXES; a++)
        n *= rows->taps[a][1] - rows->taps[a][0];
    return n;
}

/* The last of the taps along a row from `tap` on that no window sees, where none sees `tap`: in a
 * kernel that is much longer than the row, windows may have no tap in common. */
int64_t attn_pool_skip(const struct window *w, int64_t tap);
/* States the outputs 0 .. n_out - 1 of the pooled shape. Where concrete, fills in the
 * state, and states tasks of one row of output pixels each, with scratch for one row of
 * the input. */
attn_status attn_pool_infer(attnrun_step *step, const struct pool_args *args);
/* Whether the call is to end, after so many bytes of work. */
bool attn_pool_stops(int64_t bytes);
/* The number of elements that divides the sum of a mean at output position `at` of an
 * axis. */
int64_t attn_pool_share(const struct window *w, int axis, int64_t at, bool include_pad);
/* The place of task `task`: its output depth and row, and where its plane of X and its row of
 * Y begin, in elements. */
struct pool_place {
    int64_t at[2], from, to;
};
static inline struct pool_place attn_pool_at(const struct pool_state *state, int64_t task)
{
    const struct window *w = &state->w;
    struct pool_place place;
    place.at[1] = op_take(&task, w->out[1]);
    place.at[0] = op_take(&task, w->out[0]);
    place.from = task * state->in_plane;
    place.to = task * state->out_plane +
               (place.at[0] * w->out[1] + place.at[1]) * w->out[2] * state->channels;
    return place;
}
/* The floats of a row of output pixels by vectors: the rows that the windows see are joined, with
 * `first` as padding beside them; then come the taps along the row at stride 1; then every
 * stride-th of them. attn_pool_vector_bytes(): of `line`, 0 where a row is not computed so. */
typedef void attn_pool_join(float *y, const float *a, size_t a_step, const float *b,
                            size_t b_step, size_t n);
bool attn_pool_by_vectors(const struct window *w);
int64_t attn_pool_vector_bytes(const struct window *w);
void attn_pool_row_f32(const struct window *w, float *y, float *line, const float *x,
                       const int64_t at[2], float first, attn_pool_join *join);
/* Its parts: fills `line` and returns where rows of the input are joined; and what follows. */
float *attn_pool_line(const struct window *w, float *line, float first);
void attn_pool_along_f32(const struct window *w, float *y, float *line,
                         attn_pool_join *join);
/* The pixels of a range of tasks, of bytes whose channels are `channels`: `pixel` computes the one
 * at output position `at`, from the plane x to y. */
attn_status attn_pool_pixels(const attnrun_step *step, const attnrun_work *work,
                             void (*pixel)(const attnrun_step *step, const int64_t at[3],
                                           const uint8_t *x, uint8_t *y, void *scratch));

#endif
