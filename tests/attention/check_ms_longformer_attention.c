/* check_ms_longformer_attention.c - com.microsoft LongformerAttention against projections
 * and sets of keys, in double. */
#include "plain_softmax.h"

struct flags {
    int64_t n, window;
    const float *mask;
    const int32_t *global;
};

static bool is_key(const struct flags *f, int64_t b, int64_t j)
{
    return f->mask[b * f->n + j] >= 0;
}

static bool is_global(const struct flags *f, int64_t b, int64_t j)
{
    return f->global[b * f->n + j] != 0 && is_key(f, b, j);
}

static int near_sees(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                     double *score)
{
    const struct flags *f = arg;
    (void)h;
    (void)score;
    return is_key(f, b, i) && !is_global(f, b, i) && is_key(f, b, j) &&
           (is_global(f, b, j) || (j - i <= f->window && i - j <= f->window));
}

static int global_sees(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                       double *score)
{
    const struct flags *f = arg;
    (void)h;
    (void)score;
    return is_global(f, b, i) && is_key(f, b, j);
}

/* Part `part` of the projected rows of x. */
static void project(float *to, const float *x, int64_t rows, int64_t width,
                    const float *w, const float *bias, int64_t part)
{
    for (int64_t i = 0; i < rows * width; i++) {
        const int64_t row = i / width, c = part * width + i % width;
        double sum = (double)bias[c];
        for (int64_t d = 0; d < width; d++)
            sum += (double)x[row * width + d] * (double)w[d * 3 * width + c];
        to[i] = (float)sum;
    }
}

static float *make_weight(struct check *c, const char *name, int64_t width)
{
    float *w = check_weight(c, name, 2, (const int64_t[]){ width, 3 * width });
    for (int64_t i = 0; i < 3 * width * width; i++)
        w[i] /= sqrtf((float)width);
    return w;
}

static void random_case(struct check *c, int64_t batch, int64_t n, int64_t heads,
                        int64_t dim)
{
    const int64_t width = heads * dim, rows = batch * n;
    const float *w[2], *bias[2];
    float *made[3];
    struct flags f = { .n = n,
                       .window = check_between(c, 1, check_chance(c, 70) ? 5 : 99) };
    check_begin(c, "com.microsoft::LongformerAttention");
    check_int(c, "num_heads", heads);
    check_int(c, "window", f.window);
    const float *x = check_f32(c, "input", 3, (const int64_t[]){ batch, n, width });
    w[0] = make_weight(c, "weight", width);
    bias[0] = check_weight(c, "bias", 1, (const int64_t[]){ 3 * width });
    float *mask = check_f32(c, "mask", 2, (const int64_t[]){ batch, n });
    w[1] = make_weight(c, "global_weight", width);
    bias[1] = check_weight(c, "global_bias", 1, (const int64_t[]){ 3 * width });
    int32_t *global =
        check_data(c, "global", ATTNRUN_I32, 2, (const int64_t[]){ batch, n });
    double *y = check_output(c, "output", 3, (const int64_t[]){ batch, n, width });
    const int masked = (int)check_below(c, 2) * 30, globals = (int)check_below(c, 3) * 20;
    for (int64_t i = 0; i < rows; i++) {
        mask[i] = check_chance(c, masked) ? -10000.0f : 0.0f;
        global[i] = check_chance(c, globals);
    }
    f.mask = mask;
    f.global = global;
    for (int i = 0; i < 3; i++)
        made[i] = malloc((size_t)(rows * width + 1) * sizeof(float));
    const struct plain_sizes s = { batch, n,   n,   heads,
                                   heads, dim, dim, 1 / sqrt((double)dim) };
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 3; i++)
            project(made[i], x, rows, width, w[pass], bias[pass], i);
        plain_softmax(&s, made[0], made[1], made[2], pass == 0 ? near_sees : global_sees,
                      &f, y);
    }
    check_run(c, CHECK_B);
    for (int i = 0; i < 3; i++)
        free(made[i]);
}

static void blank_case(struct check *c, int64_t heads, int64_t window, int64_t columns)
{
    c->blank = true;
    check_begin(c, "com.microsoft::LongformerAttention");
    check_int(c, "num_heads", heads);
    check_int(c, "window", window);
    check_f32(c, "input", 3, (const int64_t[]){ 1, 7, 12 });
    check_f32(c, "weight", 2, (const int64_t[]){ 12, 36 });
    check_f32(c, "bias", 1, (const int64_t[]){ 36 });
    check_f32(c, "mask", 2, (const int64_t[]){ 1, 7 });
    check_f32(c, "global_weight", 2, (const int64_t[]){ 12, columns });
    check_f32(c, "global_bias", 1, (const int64_t[]){ 36 });
    check_data(c, "global", ATTNRUN_I32, 2, (const int64_t[]){ 1, 7 });
    check_output(c, "output", 3, (const int64_t[]){ 1, 7, 12 });
}

void check_ms_longformer_attention(struct check *c)
{
    CHECK_ROUNDS(c, 40)
    {
        const int64_t heads = check_between(c, 1, 4);
        random_case(c, check_between(c, 0, 2),
                    check_between(c, 0, c->round % 8 == 0 ? 400 : 40), heads,
                    check_between(c, 1, 8));
    }
    blank_case(c, 5, 2, 36);
    check_refuses(c, ATTNRUN_E_SHAPE, "multiple of 5 heads");
    blank_case(c, 4, 0, 36);
    check_refuses(c, ATTNRUN_E_ATTR, "window|0");
    blank_case(c, 4, 2, 35);
    check_refuses(c, ATTNRUN_E_SHAPE, "global_weight|3 times");
}
