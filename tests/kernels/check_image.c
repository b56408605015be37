/* check_image.c - columns of a convolution, and rows of a depthwise one. */
#include "checks.h"

static void random_window(struct check *c, struct attn_im2col *t, size_t n)
{
    for (int a = 0; a < 3; a++) {
        t->kernel[a] = 1 + check_below(c, a == 2 ? 4 : 3);
        t->stride[a] = 1 + check_below(c, 3);
        t->dilation[a] = 1 + check_below(c, 2);
        t->before[a] = check_below(c, 3);
        t->in[a] = 1 + check_below(c, a == 2 ? 40 : 4);
        t->out[a] = 1 + check_below(c, a == 2 ? 40 : 4);
    }
    if (check_below(c, 4) == 0) { /* one row, as 1x1 convolutions are run */
        t->kernel[2] = t->stride[2] = 1;
        t->before[2] = 0;
        t->in[2] = t->out[2] = 1200;
    }
    while (t->out[0] * t->out[1] * t->out[2] < (int64_t)n + 3)
        t->out[2] += 50;
}

/* What tap number `tap` sees for output pixel `pixel`. */
static float seen(const struct attn_im2col *t, int64_t tap, int64_t pixel)
{
    int64_t k[3], o[3], at = 0;
    for (int a = 2; a >= 0; a--) {
        k[a] = tap % t->kernel[a];
        tap /= t->kernel[a];
        o[a] = pixel % t->out[a];
        pixel /= t->out[a];
    }
    at = tap;
    for (int a = 0; a < 3; a++) {
        int64_t i = o[a] * t->stride[a] - t->before[a] + k[a] * t->dilation[a];
        if (i < 0 || i >= t->in[a])
            return 0.0f;
        at = at * t->in[a] + i;
    }
    return t->x[at];
}

void check_conv_im2col_f32(struct check *c)
{
    const int64_t nr = c->k->vec_bytes / 2, vf = c->k->vec_bytes / 4;
    const size_t lines = ATTN_IM2COL_LINES;
    CHECK_SIZES(c, n)
    {
        struct attn_im2col t = { .n = (int64_t)n, .pixel = check_below(c, 3) };
        random_window(c, &t, n);
        int64_t channels = 1 + check_below(c, 3);
        int64_t floats = channels * t.in[0] * t.in[1] * t.in[2];
        int64_t taps = channels * t.kernel[0] * t.kernel[1] * t.kernel[2];
        t.k_from = check_below(c, taps);
        t.k_count = 1 + check_below(c, taps - t.k_from);
        int64_t width = t.n / nr * nr + (t.n % nr > vf ? nr : t.n % nr > 0 ? vf : 0);
        t.x = check_edge_f32(c, (size_t)floats);
        t.x_end = t.x + floats;
        t.line = check_memory(c, lines * (n + 2 * (size_t)nr) * sizeof *t.line);
        t.panels = check_memory(c, (size_t)(t.k_count * width) * sizeof *t.panels);
        c->k->conv_im2col_f32(&t);
        for (int64_t i = 0; i < t.n; i++)
            for (int64_t k = 0; k < t.k_count; k++) {
                int64_t first = i / nr * nr, wide = t.n - first > vf ? nr : vf;
                float got = t.panels[first * t.k_count + k * wide + i % nr];
                float want = seen(&t, t.k_from + k, t.pixel + i);
                check_f32(c, (size_t)(k * t.n + i), got, (double)want, 0);
            }
    }
    struct attn_im2col t = { .n = 128,
                             .in = { 1, 56, 56 },
                             .out = { 1, 56, 56 },
                             .kernel = { 1, 3, 3 },
                             .stride = { 1, 1, 1 },
                             .dilation = { 1, 1, 1 },
                             .before = { 0, 1, 1 },
                             .pixel = 1000,
                             .k_count = 576 };
    t.x = check_normal_f32(c, 64 * 56 * 56);
    t.x_end = t.x + 64 * 56 * 56;
    t.line = check_memory(c, lines * (128 + 2 * (size_t)nr) * sizeof *t.line);
    t.panels = check_memory(c, 576 * 128 * sizeof *t.panels);
    CHECK_BENCH(c, "64x56x56, 3x3", 4.0 * 576 * 128, "GB/s")
    c->k->conv_im2col_f32(&t);
}

void check_conv_taps_f32(struct check *c)
{
    const size_t over = (size_t)c->k->vec_bytes / 4;
    CHECK_SIZES(c, n)
    {
        int64_t n_taps = check_below(c, 12), offsets[12];
        float weights[12], bias = check_normal(c);
        size_t reach = 0;
        for (int64_t t = 0; t < n_taps; t++) {
            offsets[t] = check_below(c, 50);
            weights[t] = check_normal(c);
            if ((size_t)offsets[t] > reach)
                reach = (size_t)offsets[t];
        }
        float *x = check_normal_f32(c, n + reach + over);
        float *y = check_memory(c, n * sizeof *y);
        c->k->conv_taps_f32(y, (int64_t)n, x, offsets, weights, n_taps, bias);
        for (size_t i = 0; i < n; i++) {
            double want = (double)bias, size = fabs((double)bias);
            for (int64_t t = 0; t < n_taps; t++) {
                double product = (double)weights[t] * (double)x[offsets[t] + (int64_t)i];
                want += product;
                size += fabs(product);
            }
            check_near(c, i, (double)y[i], want, 1e-6 * size);
        }
    }
    int64_t offsets[9] = { 0, 1, 2, 58, 59, 60, 116, 117, 118 };
    float weights[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    float *x = check_normal_f32(c, 4096), *y = check_memory(c, 3248 * sizeof *y);
    CHECK_BENCH(c, "3x3", 18.0 * 3248, "GFLOP/s")
    c->k->conv_taps_f32(y, 3248, x, offsets, weights, 9, 0.5f);
}

void check_conv_finish_f32(struct check *c)
{
    const int32_t steps[3] = { -1, ATTN_EPI_RELU, ATTN_EPI_CLIP };
    CHECK_SIZES(c, n)
    {
        struct attn_conv_finish f = {
            .n = (int64_t)n, .m = 1 + check_below(c, 4), .alpha = -0.5f, .beta = 1.25f
        };
        f.row = f.n + check_below(c, 3);
        f.step = steps[check_below(c, 3)];
        size_t floats = (size_t)((f.m - 1) * f.row + f.n);
        float *x = check_normal_f32(c, floats), *y = check_memory(c, floats * sizeof *y);
        f.y = y;
        f.bias = check_below(c, 2) != 0 ? check_normal_f32(c, (size_t)f.m) : NULL;
        f.z = check_below(c, 2) != 0 ? check_normal_f32(c, floats) : NULL;
        for (size_t i = 0; i < floats; i++)
            y[i] = x[i];
        c->k->conv_finish_f32(&f);
        for (int64_t r = 0; r < f.m; r++)
            for (int64_t i = r * f.row; i < r * f.row + f.n; i++) {
                float want = x[i] + (f.bias != NULL ? f.bias[r] : 0.0f);
                want += f.z != NULL ? f.z[i] : 0.0f;
                if (f.step == ATTN_EPI_RELU)
                    want = want > 0 ? want : 0;
                if (f.step == ATTN_EPI_CLIP)
                    want = want < f.alpha ? f.alpha : want > f.beta ? f.beta : want;
                check_f32(c, (size_t)i, y[i], (double)want, 0);
            }
    }
    struct attn_conv_finish f = { .n = 128, .m = 64, .row = 3136, .step = ATTN_EPI_RELU };
    float *y = check_normal_f32(c, 64 * 3136);
    f.y = y;
    f.bias = y;
    CHECK_BENCH(c, "64x128, bias, relu", 8.0 * 64 * 128, "GB/s")
    c->k->conv_finish_f32(&f);
}
