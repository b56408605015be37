/* pool.c - shapes and tasks of pooling. pool.h and sliding_window.c describe them.
 *
 * In: a map and the attributes of a window. Out: the type of the result; a task for each line of
 * it, with scratch memory of one line of the input. */
#include "pool.h"

/* Tasks, their cost, and the sizes of planes; the window is resolved. */
static attn_status plan_pool(attnrun_step *step, int n, int first)
{
    struct pool_state *state = step->state;
    const struct window *w = &state->w;
    int64_t line, all, d0, d1, h0, h1, k0, k1;
    state->planes = op_count(&step->in[0], 0, first);
    state->in_plane = op_count(&step->in[0], first, n + 2);
    state->out_plane = op_count(&step->out[0], first, n + 2);
    if (state->planes < 0 || state->in_plane < 0 || state->out_plane < 0 ||
        !ck_mul(state->planes, state->out_plane, &all) || all > ATTN_MAX_ELEMENTS ||
        !ck_mul(w->in[2], 8, &line))
        return op_fail_size(step,
                            "the number of pixels of a plane would be over 2^63 - 1, or "
                            "of elements of the result",
                            "2^46");
    step->scratch_bytes = line;
    attn_pool_taps(w, 0, w->out[0] / 2, w->out[0] / 2, &d0, &d1);
    attn_pool_taps(w, 1, w->out[1] / 2, w->out[1] / 2, &h0, &h1);
    attn_pool_taps(w, 2, 0, w->out[2], &k0, &k1);
    const double work = (double)(d1 - d0) * (double)(h1 - h0) * (double)w->in[2] * 0.5 +
                        (double)(k1 - k0) * (double)w->out[2];
    op_tasks(step, 0, all > 0 ? state->planes * w->out[0] * w->out[1] : 0,
             window_cost(work * 0.7 * (double)state->channels + 50.0));
    return ATTNRUN_OK;
}

attn_status attn_pool_infer(attnrun_step *step, const struct pool_args *args)
{
    struct pool_state *state = step->state;
    const bool last = args->channels_last != 0;
    const int first = window_spatial(last);
    int n;
    if (args->window.kernel_shape.v == NULL)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute kernel_shape is missing or empty");
    TRY(attn_window_rank(step, &n));
    if (n < 0)
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(attn_window_check(step, &args->window, n));
    const attnrun_dim *x = step->in[0].dims;
    attnrun_dim out[ATTNRUN_MAX_RANK] = { x[0] }, kernel[WINDOW_AXES];
    out[window_channel(n, last)] = x[window_channel(n, last)];
    bool ceil_mode = args->ceil_mode != 0;
    for (int i = 0; i < n; i++) {
        kernel[i] = dim_of(args->window.kernel_shape.v[i]);
        TRY(attn_window_out(step, &args->window, n, i, x[i + first], kernel[i], ceil_mode,
                            &out[i + first]));
    }
    TRY(op_out(step, 0, step->in[0].dtype, n + 2, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_window_resolve(step, &args->window, n, x + first, kernel, ceil_mode,
                            &state->w));
    state->channels = last ? x[n + 1].value : 1;
    return plan_pool(step, n, first);
}

bool attn_pool_stops(int64_t bytes) { return attn_poll_work(bytes) != ATTNRUN_OK; }

int64_t attn_pool_skip(const struct window *w, int64_t tap)
{
    const int64_t stride = w->stride[2], left = w->before[2] - tap * w->dilation[2];
    /* The last window whose tap is before the row, and how far. */
    const int64_t last = left > 0 ? min64((left - 1) / stride, w->out[2] - 1) : -1;
    if (last < 0)
        return w->kernel[2];
    return tap + (left - last * stride - 1) / w->dilation[2];
}

int64_t attn_pool_share(const struct window *w, int axis, int64_t at, bool include_pad)
{
    int64_t from, to;
    if (!include_pad) {
        attn_pool_taps(w, axis, at, at, &from, &to);
        return to - from;
    }
    int64_t room = w->in[axis] + w->after[axis] + w->before[axis] - at * w->stride[axis];
    int64_t n = room > 0 ? (room - 1) / w->dilation[axis] + 1 : 0;
    return n < w->kernel[axis] ? n : w->kernel[axis];
}

static int64_t span_floats(const struct window *w)
{
    int64_t places = (w->out[2] - 1) * w->stride[2] + 1;
    int64_t span = places + (w->kernel[2] - 1) * w->dilation[2];
    int64_t min = w->before[2] + w->in[2];
    return span > min ? span : min;
}

bool attn_pool_by_vectors(const struct window *w)
{
    return w->out[2] > 0 && w->kernel[2] <= 64 && w->before[2] < w->in[2] + 1024 &&
           span_floats(w) < 2 * w->in[2] + 4096;
}

int64_t attn_pool_vector_bytes(const struct window *w)
{
    return attn_pool_by_vectors(w) ? 2 * 4 * span_floats(w) : 0;
}

float *attn_pool_line(const struct window *w, float *line, float first)
{
    const int64_t span = span_floats(w);
    for (int64_t i = 0; i < span; i++)
        line[i] = first;
    return line + w->before[2];
}

void attn_pool_along_f32(const struct window *w, float *y, float *line,
                         attn_pool_join *join)
{
    const int64_t stride = w->stride[2];
    const size_t places = (size_t)((w->out[2] - 1) * stride + 1);
    float *all = stride == 1 ? y : line + span_floats(w);
    memcpy(all, line, places * sizeof(float));
    for (int64_t kw = 1; kw < w->kernel[2]; kw++)
        join(all, all, 1, line + kw * w->dilation[2], 1, places);
    for (int64_t i = 0; stride > 1 && i < w->out[2]; i++)
        y[i] = all[i * stride];
}

void attn_pool_row_f32(const struct window *w, float *y, float *line, const float *x,
                       const int64_t at[2], float first, attn_pool_join *join)
{
    const int64_t window[WINDOW_AXES] = { at[0], at[1], 0 };
    struct pool_rows rows = attn_pool_rows(w, window);
    float *middle = attn_pool_line(w, line, first);
    for (const float *row; (row = attn_pool_next_line(&rows, x, sizeof *x)) != NULL &&
                           !attn_pool_stops(4 * w->in[2]);)
        join(middle, middle, 1, row, 1, (size_t)w->in[2]);
    attn_pool_along_f32(w, y, line, join);
}

attn_status attn_pool_pixels(const attnrun_step *step, const attnrun_work *work,
                             void (*pixel)(const attnrun_step *step, const int64_t at[3],
                                           const uint8_t *x, uint8_t *y, void *scratch))
{
    const struct pool_state *state = step->state;
    const struct window *w = &state->w;
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct pool_place p = attn_pool_at(state, task);
        int64_t at[3] = { p.at[0], p.at[1] };
        const uint8_t *x = (const uint8_t *)step->x[0].data + p.from;
        uint8_t *y = (uint8_t *)step->y[0].data + p.to;
        for (at[2] = 0; at[2] < w->out[2]; at[2]++, y += state->channels) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            pixel(step, at, x, y, work->scratch);
        }
    }
    return ATTNRUN_OK;
}
