/* bam_run.c - computes tiles of rows of BAM. bam.c has the formula and the cost. In: a
 * tile of x, or of the planes of one convolution. Out: the next planes, sums, or rows of
 * Y. */
#include "bam.h"

enum { TAPS = 9 };

static int64_t first_row(const struct bam_state *s, int64_t tile)
{
    return tile * s->tile;
}

static int64_t bam_rows_of(const struct bam_state *s, int64_t tile)
{
    const int64_t left = s->map.height - first_row(s, tile);
    return left < s->tile ? left : s->tile;
}

/* The planes of layer i; element 0 is the corner of the zeros around them. */
static float *planes_of(const struct bam_part *part, int64_t layer)
{
    const struct bam_state *s = part->step->state;
    return part->floats + s->sums + layer % 2 * s->planes;
}

/* Copies rows of `from` (R rows of `row` floats, pixel (y, x) of the tile at y * line +
 * x) to the tile of planes `to`, with zeros beside them, and above and below them at the
 * edges. */
static void bam_put(const struct bam_part *part, float *to, const float *from,
                    int64_t row, int64_t line)
{
    const struct bam_state *s = part->step->state;
    const int64_t rows = bam_rows_of(s, part->tile), width = s->padded_width,
                  w = s->map.width, pad = s->pad, first = first_row(s, part->tile);
    const size_t edge = (size_t)(pad * width) * sizeof(float);
    for (int64_t r = 0; r < s->hidden; r++) {
        float *plane = to + r * s->plane;
        if (first == 0)
            memset(plane, 0, edge);
        if (first + rows == s->map.height)
            memset(plane + (s->map.height + pad) * width, 0, edge);
        for (int64_t y = 0; y < rows; y++) {
            float *out = plane + (first + y + pad) * width;
            memset(out, 0, (size_t)pad * sizeof(float));
            memcpy(out + pad, from + r * row + y * line, (size_t)w * sizeof(float));
            memset(out + pad + w, 0, (size_t)pad * sizeof(float));
        }
    }
}

/* Lists bias (NULL: none) and relu as the steps behind a product. */
static int bam_list_epilogue(const float *bias, struct attn_epilogue *steps)
{
    int n = 0;
    if (bias != NULL)
        steps[n++] = (struct attn_epilogue){
            .kind = ATTN_EPI_ADD, .alpha = 1.0f, .row = 1, .data = bias
        };
    steps[n++] = (struct attn_epilogue){ .kind = ATTN_EPI_RELU };
    return n;
}

void attn_bam_first(const struct bam_part *part)
{
    const attnrun_step *step = part->step;
    const struct bam_state *s = step->state;
    const struct attn_map *map = &s->map;
    const int64_t pixels = bam_rows_of(s, part->tile) * map->width,
                  at = first_row(s, part->tile) * map->width;
    const float *x = (const float *)step->x[BAM_X].data +
                     part->image * map->channels * map->pixels + at;
    float *sums = part->floats + part->tile * map->channels, *t = part->scratch;
    struct attn_epilogue steps[2];
    for (int64_t c = 0; c < map->channels; c++) {
        struct attn_plane_stats stats = ATTN_PLANE_STATS;
        step->kernels->plane_stats_f32(x + c * map->pixels, (size_t)pixels, ATTN_STAT_SUM,
                                       &stats);
        sums[c] = (float)stats.sum;
    }
    step->kernels->gemm_f32(&(struct attn_gemm_f32){
        .a = step->x[BAM_SW0].data,
        .a_row = map->channels,
        .b = x,
        .b_row = map->pixels,
        .b_col = 1,
        .c = t,
        .c_row = pixels,
        .m = (size_t)s->hidden,
        .n = (size_t)pixels,
        .k = (size_t)map->channels,
        .epilogue = steps,
        .n_epilogue = bam_list_epilogue(op_in_data(step, BAM_SB0), steps),
        .exact = s->hidden < BAM_ROWS_FOR_BF16,
        .scratch = t + s->pixels * (s->hidden + 2),
    });
    bam_put(part, planes_of(part, 0), t, pixels, map->width);
}

/* Copies the matrices (R, R) of the taps of layer i. */
static void list_taps(const struct bam_part *part, int64_t i, float *taps)
{
    const struct bam_state *s = part->step->state;
    const int64_t n = s->hidden * s->hidden;
    const float *w = (const float *)part->step->x[BAM_SWM].data + i * n * TAPS;
    for (int64_t at = 0; at < n; at++)
        for (int64_t tap = 0; tap < TAPS; tap++)
            taps[tap * n + at] = w[at * TAPS + tap];
}

void attn_bam_convolve(const struct bam_part *part, int64_t i)
{
    const attnrun_step *step = part->step;
    const struct bam_state *s = step->state;
    const int64_t n = (bam_rows_of(s, part->tile) - 1) * s->padded_width + s->map.width;
    const float *bias = op_in_data(step, BAM_SBM),
                *t = planes_of(part, i) + first_row(s, part->tile) * s->padded_width;
    float *sums = part->scratch, *taps = sums + s->pixels * (s->hidden + 2);
    struct attn_epilogue steps[2];
    list_taps(part, i, taps);
    for (int tap = 0; tap < TAPS; tap++) {
        struct attn_gemm_f32 g = {
            .a = taps + tap * s->hidden * s->hidden,
            .a_row = s->hidden,
            .b = t + tap / 3 * s->pad * s->padded_width + tap % 3 * s->pad,
            .b_row = s->plane,
            .b_col = 1,
            .c = sums,
            .c_row = n,
            .m = (size_t)s->hidden,
            .n = (size_t)n,
            .k = (size_t)s->hidden,
            .epilogue = steps,
            .scratch = taps + round_up(TAPS * s->hidden * s->hidden, 16),
            .accumulate = tap > 0,
            .exact = s->hidden < BAM_ROWS_FOR_BF16,
        };
        if (tap == TAPS - 1)
            g.n_epilogue =
                bam_list_epilogue(bias != NULL ? bias + i * s->hidden : NULL, steps);
        step->kernels->gemm_f32(&g);
    }
    bam_put(part, planes_of(part, i + 1), sums, n, s->padded_width);
}

/* Computes y = W z + bias for the rows of W, (rows, k). */
static void layer(const struct bam_part *part, const float *w, const float *bias,
                  int64_t rows, int64_t k, const float *z, float *y)
{
    part->step->kernels->dense_rows_f32(&(struct attn_dense){ .w = w,
                                                              .z = z,
                                                              .bias = bias,
                                                              .y = y,
                                                              .w_row = k,
                                                              .m = 1,
                                                              .rows = (size_t)rows,
                                                              .k = (size_t)k,
                                                              .bias_factor = 1.0f });
}

/* Computes gates[c] = c_c; `vectors`: 2 * middle floats. */
static void channel_gates(const struct bam_part *part, float *gates, float *vectors)
{
    const attnrun_step *step = part->step;
    const struct bam_state *s = step->state;
    const struct attn_map *map = &s->map;
    const int64_t layers = op_has_in(step, BAM_CWM) ? step->x[BAM_CWM].dims[0] : 0;
    const float *w = op_in_data(step, BAM_CWM), *b = op_in_data(step, BAM_CBM);
    for (int64_t c = 0; c < map->channels; c++) {
        double sum = 0;
        for (int64_t tile = 0; tile < s->tiles; tile++)
            sum += (double)part->floats[tile * map->channels + c];
        gates[c] = (float)(sum / (double)map->pixels);
    }
    float *u = vectors, *next = vectors + s->middle, *old;
    layer(part, step->x[BAM_CW0].data, op_in_data(step, BAM_CB0), s->middle,
          map->channels, gates, u);
    attn_map_activate(step, ATTN_ACT_RELU, u, s->middle);
    for (int64_t i = 0; i < layers; i++) {
        layer(part, w + i * s->middle * s->middle, b != NULL ? b + i * s->middle : NULL,
              s->middle, s->middle, u, next);
        attn_map_activate(step, ATTN_ACT_RELU, next, s->middle);
        old = u;
        u = next;
        next = old;
    }
    layer(part, step->x[BAM_CW1].data, op_in_data(step, BAM_CB1), map->channels,
          s->middle, u, gates);
}

/* Computes s of a tile. */
static void pixel_numbers(const struct bam_part *part, float *pixels, float *gemm)
{
    const attnrun_step *step = part->step;
    const struct bam_state *s = step->state;
    const float *bias = op_in_data(step, BAM_SB1);
    for (int64_t y = 0; y < bam_rows_of(s, part->tile); y++) {
        const int64_t row = first_row(s, part->tile) + y + s->pad;
        float *out = pixels + y * s->map.width;
        step->kernels->gemm_f32(&(struct attn_gemm_f32){
            .a = step->x[BAM_SW1].data,
            .a_row = s->hidden,
            .b = planes_of(part, s->layers) + row * s->padded_width + s->pad,
            .b_row = s->plane,
            .b_col = 1,
            .c = out,
            .c_row = s->map.width,
            .m = 1,
            .n = (size_t)s->map.width,
            .k = (size_t)s->hidden,
            .scratch = gemm,
        });
        if (bias != NULL)
            step->kernels->add_f32(out, out, 1, bias, 0, (size_t)s->map.width);
    }
}

/* Computes Y of one channel of a tile: x + x sigmoid(v), then identity and relu. */
static void scale(const struct bam_part *part, int64_t channel, const float *v)
{
    const attnrun_step *step = part->step;
    const struct bam_args *args = step->args;
    const struct bam_state *s = step->state;
    const int64_t at = (part->image * s->map.channels + channel) * s->map.pixels +
                       first_row(s, part->tile) * s->map.width;
    const bool more = op_has_in(step, BAM_IDENTITY);
    struct attn_gate gate = attn_residual_relu(
        step, BAM_X, BAM_IDENTITY, more ? 0 : args->post_activation, at, s->map.pixels);
    const float *identity = gate.identity;
    gate.identity = gate.x;
    gate.pixels = v;
    gate.planes = 1;
    gate.n = (size_t)(bam_rows_of(s, part->tile) * s->map.width);
    step->kernels->gate_planes_f32(&gate);
    if (!more)
        return;
    gate.x = gate.y;
    gate.pixels = NULL;
    gate.identity = identity;
    gate.relu = args->post_activation;
    step->kernels->gate_planes_f32(&gate);
}

attn_status attn_bam_last(const struct bam_part *part)
{
    static const float none[2] = { 0 };
    const attnrun_step *step = part->step;
    const struct bam_args *args = step->args;
    const struct bam_state *s = step->state;
    const size_t n = (size_t)(bam_rows_of(s, part->tile) * s->map.width);
    float *pixels = part->scratch, *v = pixels + s->pixels,
          *gates = v + s->pixels * (s->hidden + 1), *vectors = gates + s->map.channels,
          *gemm = vectors + 2 * s->middle;
    gemm += 16 - (gemm - part->scratch) % 16;
    channel_gates(part, gates, vectors);
    pixel_numbers(part, pixels, gemm);
    for (int64_t c = s->map.channels - 1; c >= 0; c--) {
        if (OP_CANCELLED(part->work))
            return ATTNRUN_E_CANCELLED;
        if (args->combine == BAM_ADD)
            step->kernels->add_f32(v, pixels, 1, gates + c, 0, n);
        else
            step->kernels->mul_f32(v, pixels, 1, gates + c, 0, n);
        step->kernels->sigmoid_f32(v, v, n, none);
        scale(part, c, v);
    }
    return ATTNRUN_OK;
}
