/* halo_mean.c - HaloAttention with padding "inverted", where all keys of a query have
 * equal weights. If the window lies inside the map, the result is the mean of its values.
 * Values are linear, so the mean of the window's pixels is multiplied by the weights
 * instead. Otherwise the result is 0. halo_attention.c has the formula. Cost: one pass
 * over the window of each block, and one product. */
#include "halo.h"
#include "../tile.h"

/* Plans the floats of a task, which is a row of blocks: sums of rows, means, values,
 * results, the product's scratch. */
attn_status attn_halo_mean_plan(attnrun_step *step, struct attn_halo *s)
{
    const int64_t inner = s->heads * s->dv, wide = max64(inner, s->out_channels);
    const int64_t deep = max64(s->map.channels, inner);
    const int64_t sizes[][2] = { { 1, s->map.width },
                                 { s->columns, s->map.channels },
                                 { s->columns, inner },
                                 { s->columns, s->out_channels } };
    int64_t *const to[] = { &s->gather_floats, &s->panel_floats, &s->key_floats,
                            &s->out_floats };
    s->gemm_floats =
        round_up((int64_t)attn_gemm_scratch(ROWS, (size_t)wide, (size_t)deep), 16);
    int64_t floats = s->gemm_floats, tasks;
    bool fits = ck_mul(s->map.batch, s->rows, &tasks);
    for (size_t i = 0; fits && i < sizeof to / sizeof *to; i++)
        fits = ck_mul(sizes[i][0], sizes[i][1], to[i]) && ck_align(*to[i], 16, to[i]) &&
               ck_add(floats, *to[i], &floats);
    if (!fits || !ck_mul(floats, 4, &step->scratch_bytes))
        return op_fail_scratch(step);
    const double sums =
        (double)s->map.channels * (double)s->window * (double)s->map.width;
    const double products =
        (double)s->columns * (double)inner * (double)(s->map.channels + s->out_channels);
    const double ns = sums / 4.0 + products / 20.0;
    op_tasks(step, 0, tasks, op_ns(ns + 500));
    return ATTNRUN_OK;
}

/* Computes means[block][channel] of the windows of `n` blocks of row `row`, from `first`
 * on. */
static void find_means(const attnrun_step *step, int64_t image, int64_t row,
                       int64_t first, int64_t n, float *line, float *means)
{
    const struct attn_halo *s = step->state;
    const int64_t width = s->map.width, top = row * s->block - s->halo;
    const float *x = (const float *)step->x[X].data +
                     image * s->map.channels * s->map.pixels + top * width;
    const double cells = (double)s->window * (double)s->window;
    for (int64_t c = 0; c < s->map.channels; c++, x += s->map.pixels) {
        memcpy(line, x, (size_t)width * sizeof *line);
        for (int64_t y = 1; y < s->window; y++)
            step->kernels->add_f32(line, line, 1, x + y * width, 1, (size_t)width);
        for (int64_t i = 0; i < n; i++)
            means[i * s->map.channels + c] =
                (float)(step->kernels->sum_f32(line + (first + i) * s->block - s->halo,
                                               (size_t)s->window) /
                        cells);
    }
}

/* Computes y[n][rows of weight input `in`] = x (n, its columns) times it, + its bias. */
static void halo_mean_apply(const attnrun_step *step, int in, int bias, const float *x,
                            int64_t n, float *y, float *scratch)
{
    const int64_t rows = step->x[in].dims[0], columns = step->x[in].dims[1];
    const struct attn_epilogue add = {
        .kind = ATTN_EPI_ADD, .alpha = 1.0f, .col = 1, .data = op_in_data(step, bias)
    };
    for (int64_t i = 0; i < n; i += ROWS) {
        const struct attn_gemm_f32 g = { .a = x + i * columns,
                                         .a_row = columns,
                                         .b = step->x[in].data,
                                         .b_row = 1,
                                         .b_col = columns,
                                         .c = y + i * rows,
                                         .c_row = rows,
                                         .m = (size_t)min64(ROWS, n - i),
                                         .n = (size_t)rows,
                                         .k = (size_t)columns,
                                         .epilogue = &add,
                                         .n_epilogue = add.data != NULL,
                                         .scratch = scratch };
        step->kernels->gemm_f32(&g);
    }
}

/* Writes a row of blocks: the results of `n` blocks from `first` on; the others are bo or
 * 0. */
static void write_row(const attnrun_step *step, int64_t image, int64_t row, int64_t first,
                      int64_t n, const float *results)
{
    const struct attn_halo *s = step->state;
    const float *bo = op_in_data(step, BO);
    for (int64_t c = 0; c < s->out_channels; c++) {
        float *y = (float *)step->y[0].data +
                   ((image * s->out_channels + c) * s->out_h + row * s->side) * s->out_w;
        for (int64_t block = 0; block < s->columns; block++) {
            const bool inside = block >= first && block < first + n;
            const float value = inside ? results[(block - first) * s->out_channels + c]
                                : bo != NULL ? bo[c]
                                             : 0.0f;
            for (int64_t i = 0; i < s->side; i++)
                y[block * s->side + i] = value;
        }
        for (int64_t i = 1; i < s->side; i++)
            memcpy(y + i * s->out_w, y, (size_t)s->out_w * sizeof *y);
    }
}

static void halo_mean_run_row(const attnrun_step *step, int64_t image, int64_t row,
                              float *scratch)
{
    const struct attn_halo *s = step->state;
    float *line = scratch + s->gemm_floats, *means = line + s->gather_floats;
    float *values = means + s->panel_floats, *results = values + s->key_floats;
    /* The windows of `outside` blocks on either side are not inside the map. */
    const int64_t outside = ceil_div(s->halo, s->block);
    int64_t n = s->columns - 2 * outside;
    if (row < outside || row >= s->rows - outside || n < 0)
        n = 0;
    if (n > 0) {
        find_means(step, image, row, outside, n, line, means);
        halo_mean_apply(step, WV, BV, means, n, values, scratch);
    }
    if (n > 0 && op_has_in(step, WO))
        halo_mean_apply(step, WO, BO, values, n, results, scratch);
    write_row(step, image, row, outside, n, op_has_in(step, WO) ? results : values);
}

attn_status attn_halo_mean_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_halo *s = step->state;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t image = task, row = op_take(&image, s->rows);
        halo_mean_run_row(step, image, row, work->scratch);
    }
    return ATTNRUN_OK;
}
