/* check_gemm.c - gemm_f32, gemm_pack_f32, transpose_f32 against sums in double. */
#include "checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    size_t m, n, k;
};

struct case_gemm {
    struct attn_gemm_f32 g;
    struct shape s;
    struct attn_epilogue steps[4];
    double alpha;
    const float *residual, *bias;
};

static size_t padded(const struct check *c, size_t n)
{
    size_t lanes = (size_t)c->k->vec_bytes / 4;
    return (n + lanes - 1) / lanes * lanes;
}

static double activation(int32_t kind, double x)
{
    switch (kind) {
    case ATTN_EPI_RELU:
        return x < 0 ? 0 : x;
    case ATTN_EPI_GELU:
        return x / 2 * (1 + erf(x / sqrt(2.0)));
    case ATTN_EPI_GELU_TANH:
        return x / 2 * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case ATTN_EPI_SILU:
        return x / (1 + exp(-x));
    case ATTN_EPI_TANH:
        return tanh(x);
    case ATTN_EPI_SIGMOID:
        return 1 / (1 + exp(-x));
    case ATTN_EPI_CLIP:
        return x < -0.5 ? -0.5 : x > 0.75 ? 0.75 : x;
    case ATTN_EPI_LEAKY_RELU:
        return x < 0 ? 0.125 * x : x;
    case ATTN_EPI_HARD_SWISH:
        return x * fmin(1, fmax(0, x / 6 + 0.5));
    case ATTN_EPI_SCALE:
        return -0.5 * x;
    default:
        return x;
    }
}

/* kind: -1 no epilogue; else scale 0.5, bias per column, residual, then that activation.
 */
static void add_epilogue(struct check *c, struct case_gemm *t, int32_t kind)
{
    t->alpha = 1.0;
    if (kind < 0)
        return;
    t->alpha = 0.5;
    t->bias = check_normal_f32(c, t->s.n);
    t->residual = check_normal_f32(c, t->s.m * t->s.n);
    t->steps[0] = (struct attn_epilogue){ .kind = ATTN_EPI_SCALE, .alpha = 0.5f };
    t->steps[1] = (struct attn_epilogue){
        .kind = ATTN_EPI_ADD, .alpha = 1, .data = t->bias, .col = 1
    };
    t->steps[2] = (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                          .alpha = -1,
                                          .data = t->residual,
                                          .row = (ptrdiff_t)t->s.n,
                                          .col = 1 };
    float low = kind == ATTN_EPI_LEAKY_RELU ? 0.125f : -0.5f;
    t->steps[3] = (struct attn_epilogue){ .kind = kind, .alpha = low, .beta = 0.75f };
    t->g.epilogue = t->steps;
    t->g.n_epilogue = 4;
}

static void compare(struct check *c, const struct case_gemm *t, int32_t kind)
{
    const struct attn_gemm_f32 *g = &t->g;
    for (size_t i = 0; i < t->s.m; i++)
        for (size_t j = 0; j < t->s.n; j++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < t->s.k; k++) {
                const float *b = t->g.b;
                ptrdiff_t a_col = g->a_col != 0 ? g->a_col : 1;
                double x = (double)g->a[(ptrdiff_t)i * g->a_row + (ptrdiff_t)k * a_col] *
                           (double)b[(ptrdiff_t)k * g->b_row + (ptrdiff_t)j * g->b_col];
                sum += x;
                size += fabs(x);
            }
            double x = t->alpha * sum, tolerance = 32 * 6e-8 * size + 1e-30;
            if (kind >= 0) {
                x += (double)t->bias[j] - (double)t->residual[i * t->s.n + j];
                x = activation(kind, x);
                tolerance = 1.2 * tolerance + 1e-6;
            }
            check_near(c, i * t->s.n + j,
                       (double)g->c[(ptrdiff_t)i * g->c_row + (ptrdiff_t)j], x,
                       tolerance);
        }
}

/* Rows that are read soon: some of a few lines, some long. */
static struct attn_prefetch rows_to_prefetch(struct check *c)
{
    struct attn_prefetch prefetch = { .n = (int32_t)check_below(c, 4) };
    for (int32_t i = 0; i < prefetch.n; i++) {
        const int32_t lines = 1 + (int32_t)check_below(c, 40);
        const int32_t rows = 1 + (int32_t)check_below(c, 20);
        prefetch.list[i] =
            (struct attn_prefetch_rows){ check_memory(c, (size_t)(rows * lines) * 64),
                                         lines * 16, rows, lines };
    }
    return prefetch;
}

static void round_a(struct check *c, float *x, size_t n)
{
    (void)check_stored(c, x, n, ATTN_B_BF16);
}

static size_t a_elements(const struct case_gemm *t)
{
    const size_t lines = t->g.a_col != 0 ? t->s.k : t->s.m;
    const size_t row = (size_t)(t->g.a_col != 0 ? t->g.a_col : t->g.a_row);
    return lines == 0 ? 0 : (lines - 1) * row + (t->g.a_col != 0 ? t->s.m : t->s.k);
}

/* What gemm_pack_bf16 makes: pairs of elements, or elements; and the bytes of a column. */
static int32_t packed_bf16(const struct check *c)
{
    return c->dots_bf16 ? ATTN_B_PAIRS : ATTN_B_BF16;
}

static size_t column_bf16(const struct check *c, size_t k)
{
    return c->dots_bf16 ? (k + 1) / 2 * sizeof(uint32_t) : k * sizeof(uint16_t);
}

/* form: 0 row-major B, 1 B transposed, 2 any strides; packed or not. */
static void run_case(struct check *c, struct shape s, int form, bool packed, int32_t kind)
{
    struct case_gemm t = { .s = s };
    const bool bf16 = strcmp(c->kernel, "gemm_bf16") == 0;
    size_t extra = (size_t)check_below(c, 3);
    t.g = (struct attn_gemm_f32){ .m = s.m, .n = s.n, .k = s.k };
    t.g.a_row = (ptrdiff_t)(s.k + extra);
    t.g.a = check_normal_f32(c, s.m == 0 ? 0 : s.m * (s.k + extra) - extra);
    if (check_below(c, 3) == 0) {
        t.g.a_row = 1;
        t.g.a_col = (ptrdiff_t)(s.m + extra);
        t.g.a = check_normal_f32(c, s.k == 0 ? 0 : s.k * (s.m + extra) - extra);
    }
    if (bf16) /* so that products are exact, and what is computed is f32's */
        round_a(c, (float *)(uintptr_t)t.g.a, a_elements(&t));
    t.g.b_row = form == 0   ? (ptrdiff_t)(s.n + extra)
                : form == 1 ? 1
                            : (ptrdiff_t)(2 * s.n + 1);
    t.g.b_col = form == 0 ? 1 : form == 1 ? (ptrdiff_t)(s.k + extra) : 2;
    size_t last = s.n > 0 && s.k > 0
                      ? (s.k - 1) * (size_t)t.g.b_row + (s.n - 1) * (size_t)t.g.b_col + 1
                      : 0;
    float *b = (float *)(uintptr_t)check_normal_f32(c, last);
    const uint16_t *narrow = NULL;
    if (bf16)
        round_a(c, b, last);
    t.g.b_type = (int32_t)check_below(c, 4);
    if (t.g.b_type > ATTN_B_BF16)
        t.g.b_type = ATTN_B_F32;
    if (t.g.b_type != ATTN_B_F32)
        narrow = check_stored(c, b, last, t.g.b_type);
    t.g.c_row = (ptrdiff_t)(s.n + extra);
    t.g.c = check_memory(c, (s.m == 0 ? 0 : s.m * (s.n + extra) - extra) * sizeof(float));
    t.g.b = narrow != NULL ? (const void *)narrow : b;
    add_epilogue(c, &t, kind);
    t.g.scratch = aligned_alloc(64, attn_gemm_scratch(s.m, s.n, s.k) * sizeof(float));
    if (packed && bf16) {
        uint32_t *panels = check_memory(c, column_bf16(c, s.k) * padded(c, s.n));
        c->k->gemm_pack_bf16(panels, t.g.b, t.g.b_type, t.g.b_row, t.g.b_col, s.k, s.n);
        t.g.b = (const float *)(const void *)panels;
        t.g.packed = 1;
        t.g.b_type = packed_bf16(c);
    } else if (packed && narrow != NULL) {
        uint16_t *panels = check_memory(c, s.k * padded(c, s.n) * sizeof *panels);
        c->k->gemm_pack_16(panels, narrow, t.g.b_row, t.g.b_col, s.k, s.n);
        t.g.b = (const float *)(const void *)panels;
        t.g.packed = 1;
    } else if (packed) {
        float *panels = check_memory(c, s.k * padded(c, s.n) * sizeof(float));
        c->k->gemm_pack_f32(panels, b, t.g.b_row, t.g.b_col, s.k, s.n);
        t.g.b = panels;
        t.g.packed = 1;
    }
    struct attn_prefetch prefetch = rows_to_prefetch(c);
    if (check_below(c, 2) == 0)
        t.g.prefetch = &prefetch;
    (bf16 ? c->k->gemm_bf16 : c->k->gemm_f32)(&t.g);
    check_true(
        c, 0,
        prefetch.at >= 0 && prefetch.at <= prefetch.n &&
            (prefetch.at == prefetch.n || prefetch.row < prefetch.list[prefetch.at].rows),
        "has lost its place among the rows to prefetch");
    t.g.b = b;
    compare(c, &t, kind);
    free(t.g.scratch);
    check_again(c);
}

static void bench_shape(struct check *c, size_t m, size_t n, size_t k, bool packed)
{
    float *a = check_normal_f32(c, m * k), *b = check_normal_f32(c, n * k);
    float *panels = check_memory(c, k * padded(c, n) * sizeof(float));
    float *y = check_memory(c, m * n * sizeof *y);
    const bool bf16 = strcmp(c->kernel, "gemm_bf16") == 0;
    if (bf16)
        c->k->gemm_pack_bf16((uint32_t *)(void *)panels, b, ATTN_B_F32, (ptrdiff_t)n, 1,
                             k, n);
    else
        c->k->gemm_pack_f32(panels, b, (ptrdiff_t)n, 1, k, n);
    size_t rows = m < 128 ? m : 128;
    struct attn_gemm_f32 g = { .b = packed ? panels : b,
                               .packed = packed,
                               .b_type = bf16 && packed ? packed_bf16(c) : ATTN_B_F32,
                               .n = n,
                               .k = k,
                               .a_row = (ptrdiff_t)k,
                               .c_row = (ptrdiff_t)n,
                               .b_row = (ptrdiff_t)n,
                               .b_col = 1 };
    g.scratch = aligned_alloc(64, attn_gemm_scratch(rows, n, k) * sizeof(float));
    char label[64];
    snprintf(label, sizeof label, "%zux%zux%zu%s", m, n, k, packed ? " packed" : "");
    CHECK_BENCH(c, label, 2.0 * (double)m * (double)n * (double)k, "GFLOP/s")
    for (size_t i = 0; i < m; i += rows) {
        g.m = m - i < rows ? m - i : rows;
        g.a = a + i * k;
        g.c = y + i * n;
        (bf16 ? c->k->gemm_bf16 : c->k->gemm_f32)(&g);
    }
    free(g.scratch);
    check_again(c);
}

void check_gemm_f32(struct check *c)
{
    static const size_t sizes[] = {
        1, 2, 3, 7, 8, 9, 12, 13, 16, 17, 31, 32, 33, 64, 67
    };
    static const size_t depths[] = { 0, 1, 3, 16, 67, 255, 256, 257, 600 };
    enum {
        N_SIZES = sizeof sizes / sizeof *sizes,
        N_DEPTHS = sizeof depths / sizeof *depths
    };
    for (size_t i = 0; i < N_SIZES; i++)
        for (size_t j = 0; j < N_SIZES; j++) {
            struct shape s = { sizes[i], sizes[j], depths[check_below(c, N_DEPTHS)] };
            int form = (int)check_below(c, 3);
            run_case(c, s, form, check_below(c, 2) == 0, -1);
            s.k = depths[check_below(c, N_DEPTHS)];
            int32_t kind = (int32_t)check_below(c, ATTN_EPI_HARD_SWISH + 1);
            run_case(c, s, form, check_below(c, 2) == 0,
                     kind == ATTN_EPI_ADD ? ATTN_EPI_SCALE : kind);
        }
    for (size_t i = 0; i < N_DEPTHS; i++)
        for (int form = 0; form < 6; form++)
            run_case(c, (struct shape){ 6, 40, depths[i] }, form / 2, form % 2, -1);
    run_case(c, (struct shape){ 128, 1000, 300 }, 0, true, ATTN_EPI_GELU);
    run_case(c, (struct shape){ 1, 1000, 1000 }, 1, false, -1);
    run_case(c, (struct shape){ 0, 5, 5 }, 0, false, -1);
    run_case(c, (struct shape){ 5, 0, 5 }, 0, false, -1);
    for (int packed = 1; c->bench && packed >= 0; packed--) {
        bench_shape(c, 128, 384, 384, packed);
        bench_shape(c, 128, 1536, 384, packed);
        bench_shape(c, 512, 384, 1536, packed);
        bench_shape(c, 128, 768, 3072, packed);
        bench_shape(c, 1, 768, 768, packed);
        bench_shape(c, 4, 768, 3072, packed);
        bench_shape(c, 16, 384, 1536, packed);
        bench_shape(c, 1, 4096, 4096, packed);
    }
}

void check_gemm_bf16(struct check *c) { check_gemm_f32(c); }

/* Each element, or each half of a word, beside the conversion kernel of single numbers. */
void check_gemm_pack_bf16(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        if (n > 100)
            continue;
        const size_t k = (size_t)check_below(c, 40), lanes = (size_t)c->k->vec_bytes / 4;
        const float *b = check_normal_f32(c, n * k);
        uint32_t *panels = check_memory(c, column_bf16(c, k) * padded(c, n));
        const uint16_t *halves = (const uint16_t *)(const void *)panels;
        const size_t rows = c->dots_bf16 ? (k + 1) / 2 * 2 : k;
        uint16_t *want = check_memory(c, (n * k + 1) * sizeof *want);
        const bool transposed = check_below(c, 2) != 0;
        const size_t row = transposed ? 1 : n, col = transposed ? k : 1;
        c->k->f32_to_bf16(want, b, n * k);
        c->k->gemm_pack_bf16(panels, b, ATTN_B_F32, (ptrdiff_t)row, (ptrdiff_t)col, k, n);
        for (size_t j = 0; j < padded(c, n); j++) {
            const size_t first = j / (2 * lanes) * (2 * lanes);
            const size_t width = n - first <= lanes ? lanes : 2 * lanes;
            for (size_t i = 0; i < rows; i++) {
                const size_t word = first * ((k + 1) / 2) + i / 2 * width + j - first;
                const uint32_t half = !c->dots_bf16
                                          ? halves[first * k + i * width + j - first]
                                      : i % 2 == 0 ? panels[word] & 0xffff
                                                   : panels[word] >> 16;
                const bool inside = i < k && j < n;
                check_near(c, j * k + i, half, inside ? want[i * row + j * col] : 0, 0);
            }
        }
        check_again(c);
    }
}

void check_gemm_pack_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        if (n > 100)
            continue;
        size_t k = (size_t)check_below(c, 40);
        const float *b = check_normal_f32(c, n * k);
        float *panels = check_memory(c, k * padded(c, n) * sizeof *panels);
        bool transposed = check_below(c, 2) != 0;
        ptrdiff_t row = transposed ? 1 : (ptrdiff_t)n,
                  col = transposed ? (ptrdiff_t)k : 1;
        c->k->gemm_pack_f32(panels, b, row, col, k, n);
        size_t lanes = (size_t)c->k->vec_bytes / 4;
        for (size_t j = 0; j < padded(c, n); j++) {
            size_t first = j / (2 * lanes) * (2 * lanes);
            size_t width = n - first <= lanes ? lanes : 2 * lanes;
            for (size_t i = 0; i < k; i++)
                check_f32(
                    c, j, panels[first * k + i * width + j - first],
                    j < n ? (double)b[(ptrdiff_t)i * row + (ptrdiff_t)j * col] : 0.0, 0);
        }
    }
}

void check_gemm_pack_16(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        if (n > 100)
            continue;
        const size_t k = (size_t)check_below(c, 40), lanes = (size_t)c->k->vec_bytes / 4;
        uint16_t *b = check_memory(c, n * k * sizeof *b);
        uint16_t *panels = check_memory(c, k * padded(c, n) * sizeof *panels);
        for (size_t i = 0; i < n * k; i++)
            b[i] = (uint16_t)check_below(c, 1 << 16);
        const bool transposed = check_below(c, 2) != 0;
        const ptrdiff_t row = transposed ? 1 : (ptrdiff_t)n,
                        col = transposed ? (ptrdiff_t)k : 1;
        c->k->gemm_pack_16(panels, b, row, col, k, n);
        for (size_t j = 0; j < padded(c, n); j++) {
            const size_t first = j / (2 * lanes) * (2 * lanes);
            const size_t width = n - first <= lanes ? lanes : 2 * lanes;
            for (size_t i = 0; i < k; i++)
                check_true(c, j,
                           panels[first * k + i * width + j - first] ==
                               (j < n ? b[(ptrdiff_t)i * row + (ptrdiff_t)j * col] : 0),
                           "is not the element of B");
        }
    }
}

void check_transpose_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        size_t rows = n > 100 ? 33 : (size_t)check_below(c, 70),
               extra = (size_t)check_below(c, 3);
        const float *x = check_normal_f32(c, rows * (n + extra));
        float *y = check_memory(c, n * (rows + extra) * sizeof *y);
        c->k->transpose_f32(y, (ptrdiff_t)(rows + extra), x, (ptrdiff_t)(n + extra), rows,
                            n);
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < n; j++)
                check_f32(c, j, y[j * (rows + extra) + i], (double)x[i * (n + extra) + j],
                          0);
    }
    const float *x = check_normal_f32(c, 384 * 384);
    float *y = check_memory(c, 384 * 384 * sizeof *y);
    CHECK_BENCH(c, "384x384", 8.0 * 384 * 384, "GB/s")
    c->k->transpose_f32(y, 384, x, 384, 384, 384);
}
