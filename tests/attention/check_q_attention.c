/* check_q_attention.c - com.microsoft QAttention against integer products, masks and
 * softmax in double: u8 and i8, scales and zero points for all or each column, the forms
 * of mask_index, past and present. onnxruntime is compared in tests/ops/check_contrib.py.
 */
#include "plain_softmax.h"

enum mask_form { NO_MASK, LENGTHS, ENDS_AND_BEGINS, KEYS, QUERIES_AND_KEYS };

struct quantized {
    int64_t batch, n, in_width, heads, dim, past, width; /* width: of a projected row */
    int32_t x_type, w_type;
    bool columns, zeros, unidirectional, has_past;
    enum mask_form form;
    double filler;
    const void *x, *w, *x_zero, *w_zero;
    const float *bias, *x_scale, *w_scale, *cache;
    const int32_t *mask;
};

static int64_t total(const struct quantized *s) { return s->past + s->n; }

static int number(const void *data, int32_t dtype, int64_t i)
{
    return dtype == ATTNRUN_I8 ? ((const int8_t *)data)[i] : ((const uint8_t *)data)[i];
}

static int hides(const struct quantized *s, int64_t b, int64_t i, int64_t j)
{
    switch (s->form) {
    case NO_MASK:
        return 0;
    case LENGTHS:
        return j >= s->mask[b];
    case ENDS_AND_BEGINS:
        return j >= s->mask[b] || j < s->mask[s->batch + b];
    case KEYS:
        return s->mask[b * total(s) + j] == 0;
    default:
        return s->mask[(b * s->n + i) * total(s) + j] == 0;
    }
}

static int sees(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                double *score)
{
    const struct quantized *s = arg;
    (void)h;
    if (hides(s, b, i, j))
        *score += s->filler;
    return !s->unidirectional || j <= i + s->past;
}

/* Column c of the projections of a row of x. */
static double projected(const struct quantized *s, int64_t row, int64_t c)
{
    const int x_zero = s->zeros ? number(s->x_zero, s->x_type, 0) : 0;
    const int w_zero = s->zeros ? number(s->w_zero, s->w_type, s->columns ? c : 0) : 0;
    int64_t sum = 0;
    for (int64_t k = 0; k < s->in_width; k++)
        sum += (int64_t)(number(s->x, s->x_type, row * s->in_width + k) - x_zero) *
               (number(s->w, s->w_type, k * s->width + c) - w_zero);
    return (double)sum * (double)s->x_scale[0] * (double)s->w_scale[s->columns ? c : 0] +
           (double)s->bias[c];
}

/* Query (part 0), or keys or values behind the past, as (batch, tokens, heads, dim); the
 * latter two are a half of `present` too. */
static float *make_part(const struct quantized *s, int part, double *present)
{
    const int64_t tokens = part == 0 ? s->n : total(s), skip = tokens - s->n;
    const int64_t hidden = s->heads * s->dim, elements = s->batch * tokens * hidden;
    float *made = malloc((size_t)(elements + 1) * sizeof *made);
    for (int64_t at = 0; at < elements; at++) {
        const int64_t d = at % s->dim, h = at / s->dim % s->heads,
                      t = at / hidden % tokens, b = at / hidden / tokens;
        const int64_t head = (part - 1) * s->batch * s->heads + b * s->heads + h;
        if (t < skip)
            made[at] = s->cache[(head * s->past + t) * s->dim + d];
        else
            made[at] =
                (float)projected(s, b * s->n + t - skip, part * hidden + h * s->dim + d);
        if (part > 0 && present != NULL)
            present[(head * tokens + t) * s->dim + d] = (double)made[at];
    }
    return made;
}

static void *bytes(struct check *c, const char *name, int32_t dtype, int rank,
                   const int64_t *dims, int spread)
{
    uint8_t *data = check_data(c, name, dtype, rank, dims);
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    for (int64_t i = 0; i < n; i++)
        data[i] = (uint8_t)((dtype == ATTNRUN_U8 ? 128 : 0) - spread +
                            check_below(c, 2 * spread));
    return data;
}

static void give_mask(struct check *c, struct quantized *s)
{
    const int64_t keys = total(s), b = s->batch;
    int64_t n = b;
    int32_t *mask;
    if (s->form == NO_MASK) {
        check_absent(c);
        return;
    }
    if (s->form == LENGTHS || s->form == ENDS_AND_BEGINS) {
        n = s->form == LENGTHS ? b : 2 * b;
        mask = check_data(c, "mask", ATTNRUN_I32, DIMS(n));
    } else if (s->form == KEYS) {
        n = b * keys;
        mask = check_data(c, "mask", ATTNRUN_I32, DIMS(b, keys));
    } else {
        n = b * s->n * keys;
        mask = check_data(c, "mask", ATTNRUN_I32, DIMS(b, s->n, keys));
    }
    for (int64_t i = 0; i < n; i++)
        mask[i] = (int32_t)check_below(c, s->form >= KEYS ? 2 : keys + 1);
    s->mask = mask;
}

/* All inputs; the projections are about as large as the bias. */
static void give(struct check *c, struct quantized *s)
{
    const int64_t columns = s->columns ? s->width : 1;
    const int rank = s->columns ? 1 : (int)check_below(c, 2);
    float *x_scale, *w_scale;
    s->x = bytes(c, "input", s->x_type, DIMS(s->batch, s->n, s->in_width), 128);
    s->w = bytes(c, "weight", s->w_type, DIMS(s->in_width, s->width), 128);
    if (check_chance(c, 60))
        check_constant(c);
    s->bias = check_weight(c, "bias", DIMS(s->width));
    s->x_scale = x_scale = check_data(c, "x_scale", ATTNRUN_F32, DIMS(1));
    s->w_scale = w_scale = check_data(c, "w_scale", ATTNRUN_F32, rank, &columns);
    give_mask(c, s);
    s->x_zero = s->w_zero = NULL;
    if (s->zeros) {
        s->x_zero = bytes(c, "x_zero", s->x_type, rank > 0, (const int64_t[]){ 1 }, 30);
        s->w_zero = bytes(c, "w_zero", s->w_type, rank, &columns, 30);
        if (check_chance(c, 60))
            check_constant(c);
    } else {
        check_absent(c);
        check_absent(c);
    }
    if (s->has_past)
        s->cache = check_f32(c, "past", DIMS(2, s->batch, s->heads, s->past, s->dim));
    const double wide = (double)s->in_width + 1;
    x_scale[0] = (float)(1 / (s->zeros ? sqrt(wide) : wide));
    for (int64_t i = 0; i < columns; i++)
        w_scale[i] = (float)(1 + 0.2 * (double)check_normal(c)) / 8192;
}

static void random_case(struct check *c, struct quantized s)
{
    const bool custom = check_chance(c, 30), present = check_chance(c, 50);
    float *made[3];
    s.width = 3 * s.heads * s.dim;
    check_begin(c, "com.microsoft::QAttention");
    check_int(c, "num_heads", s.heads);
    check_int(c, "unidirectional", s.unidirectional);
    check_float(c, "mask_filter_value", (float)s.filler);
    if (custom)
        check_float(c, "scale", 0.2f);
    give(c, &s);
    double *y = check_output(c, "output", DIMS(s.batch, s.n, s.heads * s.dim));
    double *kept =
        present ? check_output(c, "present", DIMS(2, s.batch, s.heads, total(&s), s.dim))
                : NULL;
    for (int i = 0; i < 3; i++)
        made[i] = make_part(&s, i, kept);
    const struct plain_sizes sizes = {
        s.batch, s.n,   total(&s), s.heads,
        s.heads, s.dim, s.dim,     custom ? (double)0.2f : 1 / sqrt((double)s.dim)
    };
    plain_softmax(&sizes, made[0], made[1], made[2], sees, &s, y);
    check_run(c, CHECK_B);
    for (int i = 0; i < 3; i++)
        free(made[i]);
}

static struct quantized draw(struct check *c)
{
    const bool large = c->round % 8 == 0;
    struct quantized s = { .batch = check_between(c, 0, 2),
                           .n = check_between(c, 0, large ? 300 : 30),
                           .in_width = check_between(c, 0, large ? 500 : 40),
                           .heads = check_between(c, 1, 4),
                           .dim = check_between(c, 1, 16),
                           .x_type = check_chance(c, 50) ? ATTNRUN_U8 : ATTNRUN_I8,
                           .w_type = check_chance(c, 50) ? ATTNRUN_U8 : ATTNRUN_I8,
                           .columns = check_chance(c, 50),
                           .zeros = check_chance(c, 70),
                           .unidirectional = check_chance(c, 40),
                           .has_past = check_chance(c, 40),
                           .form = (enum mask_form)check_below(c, 5),
                           .filler = -20 };
    s.past = s.has_past ? check_between(c, 0, 20) : 0;
    return s;
}

/* Sizes of inputs that a refusal is about; -1: absent. */
struct wrong {
    int64_t weight, bias, x_scale, w_scale, mask, x_zero, w_zero, past_heads;
};
static const struct wrong right = { 36, 36, 1, 36, 2, 1, 36, -1 };

static void blank_case(struct check *c, const struct wrong *w)
{
    c->blank = true;
    check_begin(c, "com.microsoft::QAttention");
    check_int(c, "num_heads", 4);
    check_data(c, "input", ATTNRUN_U8, DIMS(2, 5, 7));
    check_data(c, "weight", ATTNRUN_I8, DIMS(7, w->weight));
    check_f32(c, "bias", DIMS(w->bias));
    check_f32(c, "x_scale", DIMS(w->x_scale));
    check_f32(c, "w_scale", DIMS(w->w_scale));
    check_data(c, "mask", ATTNRUN_I32, DIMS(w->mask));
    check_data(c, "x_zero", ATTNRUN_U8, DIMS(w->x_zero));
    check_data(c, "w_zero", ATTNRUN_I8, DIMS(w->w_zero));
    if (w->past_heads >= 0)
        check_f32(c, "past", DIMS(2, 2, w->past_heads, 6, 3));
    check_output(c, "output", DIMS(2, 5, 12));
}

static void refuses(struct check *c, struct wrong w, const char *words)
{
    blank_case(c, &w);
    check_refuses(c, ATTNRUN_E_SHAPE, words);
}

static void refusals(struct check *c)
{
    struct wrong w = right;
    w.weight = w.bias = w.w_scale = w.w_zero = 35;
    refuses(c, w, "weight|multiple of 3 * 4 heads");
    w = right, w.bias = 12;
    refuses(c, w, "bias|columns of weights");
    w = right, w.x_scale = 2;
    refuses(c, w, "x_scale|one number");
    w = right, w.x_zero = 5;
    refuses(c, w, "x_zero|one number");
    w = right, w.w_scale = 12;
    refuses(c, w, "w_scale|columns of weight");
    w = right, w.w_zero = 3;
    refuses(c, w, "w_zero|columns of weight");
    w = right, w.mask = 3;
    refuses(c, w, "mask|the batch");
    w = right, w.past_heads = 3;
    refuses(c, w, "past|num_heads");
    blank_case(c, &right);
    check_int(c, "do_rotary", 1);
    check_refuses(c, ATTNRUN_E_UNSUPPORTED, "do_rotary");
    blank_case(c, &right);
    check_int(c, "past_present_share_buffer", 1);
    check_refuses(c, ATTNRUN_E_UNSUPPORTED, "past_present_share_buffer");
}

void check_q_attention(struct check *c)
{
    CHECK_ROUNDS(c, 60) random_case(c, draw(c));
    refusals(c);
}
