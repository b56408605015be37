/* check_halo_attention.c - HaloAttention against its formula. */
#include <stdlib.h>

#include "operator_harness.h"

enum padding { ATTEND, MASK, INVERTED };

struct halo {
    int64_t b, c, h, w, heads, dk, dv, out; /* out: channels of Y, 0 without wo */
    int64_t block, halo, stride;
    enum padding padding;
    bool relative, scaled, biased, partial, with_scale;
    const float *x, *wq, *wk, *wv, *rel_h, *rel_w, *bq, *bk, *bv, *wo, *bo;
    double *q, *k, *v, *o; /* (b, rows, h, w); o: (b, heads dv, h, w) of Y */
};

static int64_t window_of(const struct halo *s) { return s->block + 2 * s->halo; }
static double scale_of(const struct halo *s)
{
    return s->with_scale ? (double)0.3f : 1 / sqrt((double)s->dk);
}

/* y (b, rows, n) = weights times x (b, columns, n) + bias. */
static double *apply(const float *w, const float *bias, const double *x, int64_t b,
                     int64_t rows, int64_t columns, int64_t n)
{
    double *y = calloc((size_t)(b * rows * n) + 1, sizeof *y);
    for (int64_t i = 0; i < b * rows; i++)
        for (int64_t c = -1; c < columns; c++) {
            const double factor = c >= 0         ? (double)w[i % rows * columns + c]
                                  : bias != NULL ? (double)bias[i % rows]
                                                 : 0;
            const double *from = c >= 0 ? x + (i / rows * columns + c) * n : NULL;
            for (int64_t p = 0; p < n; p++)
                y[i * n + p] += from != NULL ? factor * from[p] : factor;
        }
    return y;
}

/* Softmax of n scores; inverted: of those that are hidden only, if there are any. */
static void pooling(double *scores, const bool *hidden, int64_t n, enum padding padding)
{
    double max = -HUGE_VAL, sum = 0;
    bool any = false;
    for (int64_t i = 0; i < n; i++)
        any = any || hidden[i];
    for (int64_t i = 0; i < n; i++) {
        if (padding == MASK && hidden[i])
            scores[i] = -HUGE_VAL;
        if (padding == INVERTED && !hidden[i])
            scores[i] = any ? -HUGE_VAL : 0;
        max = scores[i] > max || isnan(scores[i]) ? scores[i] : max;
    }
    for (int64_t i = 0; i < n; i++) {
        scores[i] = scores[i] == -HUGE_VAL ? 0 : exp(scores[i] - max);
        sum += scores[i];
    }
    for (int64_t i = 0; i < n; i++)
        scores[i] /= sum;
}

/* o of query (qy, qx), in pixels of x, of one head: v_dim numbers, `step` apart. */
static void find_query(const struct halo *s, int64_t b, int64_t head, int64_t qy,
                       int64_t qx, double *o, int64_t step)
{
    const int64_t r = window_of(s), n = s->h * s->w, qp = qy * s->w + qx;
    const int64_t top = qy / s->block * s->block - s->halo,
                  left = qx / s->block * s->block - s->halo;
    const int64_t in_y = qy % s->block / s->stride, in_x = qx % s->block / s->stride;
    const double *q = s->q + (b * s->heads + head) * s->dk * n + qp;
    const double *k = s->k + (b * s->heads + head) * s->dk * n;
    const double *v = s->v + (b * s->heads + head) * s->dv * n;
    double *scores = calloc((size_t)(r * r), sizeof *scores);
    bool *hidden = calloc((size_t)(r * r), sizeof *hidden);
    for (int64_t cell = 0; cell < r * r; cell++) {
        const int64_t i = cell / r, j = cell % r, y = top + i, x = left + j;
        hidden[cell] = y < 0 || y >= s->h || x < 0 || x >= s->w;
        for (int64_t d = 0; d < s->dk; d++) {
            const double rel = s->relative
                                   ? (double)s->rel_h[(i - in_y + r - 1) * s->dk + d] +
                                         (double)s->rel_w[(j - in_x + r - 1) * s->dk + d]
                                   : 0;
            const double key = hidden[cell] ? 0 : k[d * n + y * s->w + x];
            scores[cell] +=
                q[d * n] * (scale_of(s) * key + (s->scaled ? scale_of(s) : 1) * rel);
        }
    }
    pooling(scores, hidden, r * r, s->padding);
    for (int64_t d = 0; d < s->dv; d++)
        for (int64_t cell = 0; cell < r * r; cell++)
            if (!hidden[cell] && (s->padding != INVERTED || scores[cell] != 0))
                o[d * step] +=
                    scores[cell] * v[d * n + (top + cell / r) * s->w + left + cell % r];
    free(scores);
    free(hidden);
}

static void reference(struct halo *s, double *y)
{
    const int64_t n = s->h * s->w, inner = s->heads * s->dv, all = s->b * s->c * n;
    const int64_t out_h = (s->h + s->stride - 1) / s->stride,
                  out_w = (s->w + s->stride - 1) / s->stride, out_n = out_h * out_w;
    double *x = calloc((size_t)all + 1, sizeof *x);
    double *o = calloc((size_t)(s->b * inner * out_n) + 1, sizeof *o), *result = o;
    for (int64_t i = 0; i < all; i++)
        x[i] = (double)s->x[i];
    s->q = apply(s->wq, s->bq, x, s->b, s->heads * s->dk, s->c, n);
    s->k = apply(s->wk, s->bk, x, s->b, s->heads * s->dk, s->c, n);
    s->v = apply(s->wv, s->bv, x, s->b, inner, s->c, n);
    for (int64_t i = 0; i < s->b * s->heads * out_n; i++)
        find_query(s, i / out_n / s->heads, i / out_n % s->heads,
                   i % out_n / out_w * s->stride, i % out_w * s->stride,
                   o + i / out_n * s->dv * out_n + i % out_n, out_n);
    if (s->out > 0)
        result = apply(s->wo, s->bo, o, s->b, s->out, inner, out_n);
    memcpy(y, result, (size_t)(s->b * (s->out > 0 ? s->out : inner) * out_n) * sizeof *y);
    double *const parts[] = { x, o, result != o ? result : NULL, s->q, s->k, s->v };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        free(parts[i]);
}

static float *weight(struct check *c, const char *name, int64_t rows, int64_t columns)
{
    float *w = columns > 0 ? check_weight(c, name, DIMS(rows, columns))
                           : check_weight(c, name, DIMS(rows));
    for (int64_t i = 0; columns > 0 && i < rows * columns; i++)
        w[i] *= 1.5f / sqrtf((float)columns);
    return w;
}

static const float *maybe(struct check *c, bool with, const char *name, int64_t rows,
                          int64_t columns)
{
    if (with)
        return weight(c, name, rows, columns);
    check_absent(c);
    return NULL;
}

static void add_attributes(struct check *c, const struct halo *s)
{
    static const char *const names[] = { "attend", "mask", "inverted" };
    check_int(c, "num_heads", s->heads);
    check_int(c, "block_size", s->block);
    check_int(c, "halo_size", s->halo);
    if (s->padding != MASK)
        check_string(c, "padding", names[s->padding]);
    if (!s->scaled)
        check_int(c, "rel_scaled", 0);
    if (s->stride != 1)
        check_int(c, "q_stride", s->stride);
    if (s->partial)
        check_int(c, "allow_partial", 1);
    if (s->with_scale)
        check_float(c, "scale", 0.3f);
}

static double *build(struct check *c, struct halo *s)
{
    const int64_t q = s->heads * s->dk, inner = s->heads * s->dv;
    check_begin(c, "HaloAttention");
    add_attributes(c, s);
    s->x = check_f32(c, "x", DIMS(s->b, s->c, s->h, s->w));
    s->wq = weight(c, "wq", q, s->c);
    s->wk = weight(c, "wk", q, s->c);
    s->wv = weight(c, "wv", inner, s->c);
    s->rel_h = maybe(c, s->relative, "rel_h", 2 * window_of(s) - 1, s->dk);
    s->rel_w = maybe(c, s->relative, "rel_w", 2 * window_of(s) - 1, s->dk);
    s->bq = maybe(c, s->biased, "bq", q, 0);
    s->bk = maybe(c, s->biased, "bk", q, 0);
    s->bv = maybe(c, s->biased, "bv", inner, 0);
    s->wo = maybe(c, s->out > 0, "wo", s->out, inner);
    s->bo = maybe(c, s->out > 0 && s->biased, "bo", s->out, 0);
    double *y = check_output(c, "Y",
                             DIMS(s->b, s->out > 0 ? s->out : inner,
                                  (s->h + s->stride - 1) / s->stride,
                                  (s->w + s->stride - 1) / s->stride));
    if (!c->blank)
        reference(s, y);
    return y;
}

static struct halo draw(struct check *c)
{
    struct halo s = { .b = check_between(c, 0, 3),
                      .c = check_between(c, 1, 20),
                      .heads = check_between(c, 1, 4),
                      .dk = check_between(c, 1, 18),
                      .dv = check_between(c, 1, 18),
                      .out = check_chance(c, 60) ? check_between(c, 1, 20) : 0,
                      .block = check_between(c, 1, 6),
                      .halo = check_between(c, 0, 4),
                      .stride = 1,
                      .padding = (enum padding)check_below(c, 3),
                      .relative = check_chance(c, 70),
                      .scaled = check_chance(c, 50),
                      .biased = check_chance(c, 50),
                      .with_scale = check_chance(c, 30) };
    if (check_chance(c, 30))
        s.dv = s.dk;
    if (check_chance(c, 30)) {
        s.block = 2 * check_between(c, 1, 4);
        s.stride = 2;
    }
    s.h = s.block * check_between(c, 1, 4);
    s.w = s.block * check_between(c, 1, 5);
    s.partial = s.padding != INVERTED && check_chance(c, 50);
    if (s.partial) {
        s.h = check_between(c, 1, 20);
        s.w = check_between(c, 1, 25);
    }
    return s;
}

/* A map of one pixel, and of none in the batch, in every form. */
static void small_ones(struct check *c)
{
    enum { FORMS = 3 * 3 * 2 };
    for (int i = 0; i < FORMS; i++) {
        struct halo s = { .b = i % 2 == 0 ? 3 : 0,
                          .c = 1,
                          .h = 1,
                          .w = 1,
                          .heads = 1,
                          .dk = 1,
                          .dv = 1,
                          .block = 1,
                          .halo = i / 6,
                          .stride = 1,
                          .padding = (enum padding)(i / 2 % 3),
                          .relative = true,
                          .scaled = i / 6 % 2 == 0,
                          .biased = true };
        build(c, &s);
        check_run(c, CHECK_B);
    }
}

/* Blocks larger than a tile of queries; windows with more keys than a product, with few
 * queries for each, in one row; rows of more pixels than a product; maps of which K and V
 * are not kept as a whole, with blocks of rows and columns beyond the edges, and one that
 * is wide. */
static void large_ones(struct check *c)
{
    const struct halo cases[] = {
        { .b = 1, .c = 3, .h = 40, .w = 20, .heads = 2, .dk = 4, .block = 20, .halo = 3 },
        { .b = 1, .c = 3, .h = 6, .w = 12, .heads = 1, .dk = 2, .block = 6, .halo = 62 },
        { .b = 1,
          .c = 2,
          .h = 1,
          .w = 400,
          .heads = 1,
          .dk = 2,
          .block = 3,
          .halo = 200 },
        { .b = 2, .c = 4, .h = 6, .w = 290, .heads = 1, .dk = 5, .block = 6, .halo = 2 },
        { .b = 1,
          .c = 3,
          .h = 101,
          .w = 123,
          .heads = 16,
          .dk = 8,
          .block = 8,
          .halo = 1 },
        { .b = 17,
          .c = 2,
          .h = 13,
          .w = 151,
          .heads = 16,
          .dk = 8,
          .block = 4,
          .halo = 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct halo s = cases[i];
        s.stride = s.block % 4 == 0 ? 2 : 1;
        s.dv = s.dk + (i == 4);
        s.out = i % 2 == 0 ? 0 : 3;
        s.padding = i % 4 == 1 ? ATTEND : MASK;
        s.relative = s.partial = true;
        s.scaled = i % 2 == 0;
        build(c, &s);
        check_run(c, CHECK_B);
    }
}

/* One block without a halo is attention of all pixels. */
static void plain_attention(struct check *c)
{
    struct halo s = draw(c);
    s.b = s.stride = 1;
    s.block = s.h = s.w = 9;
    s.halo = s.out = 0;
    s.padding = MASK;
    s.relative = false;
    double *y = build(c, &s);
    const int64_t n = s.h * s.w;
    double *x = calloc((size_t)(s.c * n), sizeof *x), weights[81];
    for (int64_t i = 0; i < s.c * n; i++)
        x[i] = (double)s.x[i];
    s.q = apply(s.wq, s.bq, x, 1, s.heads * s.dk, s.c, n);
    s.k = apply(s.wk, s.bk, x, 1, s.heads * s.dk, s.c, n);
    s.v = apply(s.wv, s.bv, x, 1, s.heads * s.dv, s.c, n);
    for (int64_t i = 0; i < s.heads * n; i++) {
        const int64_t head = i / n;
        double sum = 0;
        for (int64_t j = 0; j < n; j++) {
            double score = 0;
            for (int64_t d = head * s.dk; d < (head + 1) * s.dk; d++)
                score += s.q[d * n + i % n] * s.k[d * n + j];
            weights[j] = exp(score * scale_of(&s));
            sum += weights[j];
        }
        for (int64_t d = head * s.dv; d < (head + 1) * s.dv; d++) {
            y[d * n + i % n] = 0;
            for (int64_t j = 0; j < n; j++)
                y[d * n + i % n] += weights[j] / sum * s.v[d * n + j];
        }
    }
    check_run(c, CHECK_B);
    free(x);
    free(s.q);
    free(s.k);
    free(s.v);
}

/* Where a pixel is no number, those whose window it is in are none, and no others. */
static void not_a_number(struct check *c)
{
    struct halo s = draw(c);
    s.b = 2;
    s.padding = check_chance(c, 50) ? ATTEND : MASK;
    s.biased = check_chance(c, 50);
    build(c, &s);
    const int64_t n = s.c * s.h * s.w;
    ((float *)c->in[0].data)[n + check_below(c, n)] = NAN;
    reference(&s, c->out[0].want);
    check_run(c, CHECK_B);
}

static void refuse_shapes(struct check *c, const struct halo *plain)
{
    static const struct {
        int in, dim, to;
        const char *words;
    } cases[] = {
        { 0, 2, 10, "input 0 x|a height that blocks of 4 divide" },
        { 0, 3, 10, "input 0 x|a width that blocks of 4 divide" },
        { 0, 2, 0, "input 0 x|dim 2 is 0" },
        { 1, 0, 7, "input 1 wq|rows for each of 2 heads" },
        { 1, 1, 4, "input 1 wq|expected 3 in dim 1|the channels" },
        { 2, 0, 8, "input 2 wk|expected 6 in dim 0|the rows of wq" },
        { 2, 1, 4, "input 2 wk|expected 3 in dim 1|the channels" },
        { 3, 0, 5, "input 3 wv|rows for each of 2 heads" },
        { 3, 1, 4, "input 3 wv|expected 3 in dim 1|the channels" },
        { 4, 0, 12,
          "input 4 rel_h|expected 11 in dim 0|2 (block_size + 2 halo_size) - 1" },
        { 5, 0, 12, "input 5 rel_w|expected 11 in dim 0" },
        { 4, 1, 4, "input 4 rel_h|expected 3 in dim 1|a head of wq" },
        { 5, 1, 4, "input 5 rel_w|expected 3 in dim 1|a head of wq" },
        { 6, 0, 5, "input 6 bq|expected 6 in dim 0|the rows of its matrix" },
        { 7, 0, 5, "input 7 bk|expected 6 in dim 0|the rows of its matrix" },
        { 8, 0, 5, "input 8 bv|expected 4 in dim 0|the rows of its matrix" },
        { 9, 1, 5, "input 9 wo|expected 4 in dim 1|the rows of wv" },
        { 10, 0, 6, "input 10 bo|expected 5 in dim 0|the rows of wo" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct halo s = *plain;
        build(c, &s);
        c->in[cases[i].in].dims[cases[i].dim] = cases[i].to;
        check_refuses(c, ATTNRUN_E_SHAPE, cases[i].words);
    }
    for (int in = 0; in <= 9; in++) {
        struct halo s = *plain;
        build(c, &s);
        c->in[in].rank--;
        check_refuses(c, ATTNRUN_E_SHAPE, "expected rank");
    }
    struct halo s = *plain;
    build(c, &s);
    c->in[9].dims[0] = c->in[10].dims[0] = 0;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 9 wo|dim 0 is 0");
}

static void refuse_others(struct check *c, const struct halo *plain)
{
    static const struct {
        const char *name;
        int64_t value;
        const char *words;
    } cases[] = {
        { "num_heads", 0, "num_heads is 0" },
        { "block_size", 0, "block_size is 0" },
        { "halo_size", -1, "halo_size is -1" },
        { "rel_scaled", 2, "rel_scaled is 2" },
        { "q_stride", 3, "q_stride is 3" },
        { "allow_partial", 2, "allow_partial is 2" },
        { "kernel_size", 3, "kernel_size" },
    };
    struct halo s = *plain;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        build(c, &s);
        for (int a = 0; a < c->n_attrs; a++)
            if (strcmp(c->attrs[a].name, cases[i].name) == 0)
                c->attrs[a--] = c->attrs[--c->n_attrs];
        check_int(c, cases[i].name, cases[i].value);
        check_refuses(c, ATTNRUN_E_ATTR, cases[i].words);
    }
    build(c, &s);
    check_string(c, "padding", "zeros");
    check_refuses(c, ATTNRUN_E_ATTR, "padding|zeros");
    build(c, &s);
    check_float(c, "scale", INFINITY);
    check_refuses(c, ATTNRUN_E_ATTR, "scale is inf|finite");
    s.block = 3;
    s.h = s.w = 12;
    s.halo = 1;
    build(c, &s);
    check_int(c, "q_stride", 2);
    check_refuses(c, ATTNRUN_E_ATTR, "block_size is 3|even number with q_stride 2");
    s = *plain;
    s.padding = INVERTED;
    s.partial = true;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "inverted|allow_partial");
    s = *plain;
    for (int in = 4; in <= 5; in++) {
        build(c, &s);
        check_leave_out(c, in);
        check_refuses(c, ATTNRUN_E_INPUT, "one of inputs rel_h and rel_w is missing");
    }
    build(c, &s);
    check_leave_out(c, 9);
    check_refuses(c, ATTNRUN_E_INPUT, "input 10 bo|none without wo");
}

void check_halo_attention(struct check *c)
{
    c->of_largest = 0x1p-21; /* wo and wv are multiplied first, in float */
    CHECK_ROUNDS(c, 70)
    {
        struct halo s = draw(c);
        build(c, &s);
        check_run(c, CHECK_B);
    }
    small_ones(c);
    large_ones(c);
    for (int i = 0; i < 6; i++) {
        plain_attention(c);
        not_a_number(c);
    }
    c->blank = true;
    const struct halo plain = { .b = 1,
                                .c = 3,
                                .h = 8,
                                .w = 12,
                                .heads = 2,
                                .dk = 3,
                                .dv = 2,
                                .out = 5,
                                .block = 4,
                                .halo = 1,
                                .stride = 1,
                                .padding = MASK,
                                .relative = true,
                                .scaled = true,
                                .biased = true };
    refuse_shapes(c, &plain);
    refuse_others(c, &plain);
    struct halo s = plain;
    s.c = s.out = 256;
    s.h = s.w = 128;
    s.heads = 4;
    s.dk = s.dv = 64;
    s.block = 8;
    s.halo = 3;
    build(c, &s);
    check_extra_memory(c,
                       (8 + 6) * 128 * 4 * (64 + 64) * 4); /* K, V of a row of blocks */
}
