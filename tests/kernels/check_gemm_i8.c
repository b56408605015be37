/* check_gemm_i8.c - gemm_i8, gemm_pack_i8 against sums in 64 bits, to the bit. */
#include "checks.h"

#include <stdio.h>
#include <stdlib.h>

struct shape {
    size_t m, n, k;
};

/* How an operand lies in memory. */
struct operand {
    uint8_t *data;
    ptrdiff_t row, col;
    bool is_signed;
};

static int32_t value_of(const struct operand *x, size_t i, size_t j)
{
    const uint8_t byte = x->data[(ptrdiff_t)i * x->row + (ptrdiff_t)j * x->col];
    return x->is_signed ? (int8_t)byte : byte;
}

/* form: 0 rows, 1 columns, 2 gaps between elements too. Extremes where `extreme`. */
static struct operand make_operand(struct check *c, size_t rows, size_t columns, int form,
                                   bool extreme)
{
    static const uint8_t ends[] = { 0, 127, 128, 255 };
    const size_t extra = (size_t)check_below(c, 3);
    struct operand x = { .is_signed = check_below(c, 2) != 0 };
    x.row = form == 0   ? (ptrdiff_t)(columns + extra)
            : form == 1 ? 1
                        : (ptrdiff_t)(2 * columns + 1);
    x.col = form == 0 ? 1 : form == 1 ? (ptrdiff_t)(rows + extra) : 2;
    const size_t bytes = rows > 0 && columns > 0 ? (rows - 1) * (size_t)x.row +
                                                       (columns - 1) * (size_t)x.col + 1
                                                 : 0;
    const uint8_t end = ends[check_below(c, 4)];
    x.data = check_bytes(c, bytes);
    for (size_t i = 0; extreme && i < bytes; i++)
        x.data[i] = check_below(c, 8) == 0 ? ends[check_below(c, 4)] : end;
    return x;
}

/* NULL, the same everywhere, or different ones. */
static int32_t *make_zeros(struct check *c, size_t n, bool is_signed)
{
    const int64_t form = check_below(c, 4);
    const int32_t low = is_signed ? -128 : 0;
    int32_t *zero = check_memory(c, n * sizeof *zero);
    const int32_t one = form == 1 ? 0 : low + (int32_t)check_below(c, 2) * 255;
    for (size_t i = 0; i < n; i++)
        zero[i] = form == 3 ? low + (int32_t)check_below(c, 256) : one;
    return form == 0 ? NULL : zero;
}

static size_t whole_panels(const struct check *c, size_t n)
{
    const size_t panel = (size_t)c->k->vec_bytes / 2;
    return (n + panel - 1) / panel * panel;
}

static void compare(struct check *c, const struct attn_gemm_i8 *g,
                    const struct operand *a, const struct operand *b)
{
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++) {
            const int32_t za = g->a_zero != NULL ? g->a_zero[i] : 0;
            const int32_t zb = g->b_zero != NULL ? g->b_zero[j] : 0;
            int64_t sum = 0;
            for (size_t k = 0; k < g->k; k++)
                sum += (int64_t)(value_of(a, i, k) - za) * (value_of(b, k, j) - zb);
            check_i64(c, i * g->n + j, g->c[(ptrdiff_t)i * g->c_row + (ptrdiff_t)j],
                      (uint32_t)sum);
        }
}

static void run_case(struct check *c, struct shape s, int form, bool packed, bool extreme)
{
    const struct operand a =
        make_operand(c, s.m, s.k, check_below(c, 4) == 0 ? 1 + form % 2 : 0, extreme);
    const struct operand b = make_operand(c, s.k, s.n, form, extreme);
    struct attn_gemm_i8 g = { .a = a.data,
                              .a_row = a.row,
                              .a_col = a.col,
                              .a_signed = a.is_signed,
                              .b = b.data,
                              .b_row = b.row,
                              .b_col = b.col,
                              .b_signed = b.is_signed,
                              .a_zero = make_zeros(c, s.m, a.is_signed),
                              .b_zero = make_zeros(c, s.n, b.is_signed),
                              .m = s.m,
                              .n = s.n,
                              .k = s.k };
    const size_t extra = (size_t)check_below(c, 3);
    g.c_row = (ptrdiff_t)(s.n + extra);
    g.c =
        check_memory(c, (s.m == 0 ? 0 : s.m * (s.n + extra) - extra) * sizeof(uint32_t));
    g.scratch = aligned_alloc(
        64, (attn_gemm_i8_scratch(s.m, s.n) * sizeof(uint32_t) + 63) / 64 * 64);
    if (packed) {
        const size_t wide = whole_panels(c, s.n);
        uint8_t *panels = check_memory(c, wide * ((s.k + 3) / 4 * 4));
        uint32_t *sums = check_memory(c, wide * sizeof *sums);
        c->k->gemm_pack_i8(panels, sums, b.data, b.row, b.col, s.k, s.n, b.is_signed);
        g.b = panels;
        g.sums = sums;
    }
    c->k->gemm_i8(&g);
    compare(c, &g, &a, &b);
    free(g.scratch);
    check_again(c);
}

static void bench_shape(struct check *c, size_t m, size_t n, size_t k, bool packed)
{
    const size_t wide = whole_panels(c, n), rows = m < 128 ? m : 128;
    uint8_t *a = check_bytes(c, m * k), *b = check_bytes(c, k * n);
    uint8_t *panels = check_memory(c, wide * ((k + 3) / 4 * 4));
    uint32_t *sums = check_memory(c, wide * sizeof *sums),
             *y = check_memory(c, m * n * sizeof *y);
    c->k->gemm_pack_i8(panels, sums, b, (ptrdiff_t)n, 1, k, n, true);
    struct attn_gemm_i8 g = { .a_row = (ptrdiff_t)k,
                              .b = packed ? panels : b,
                              .sums = packed ? sums : NULL,
                              .b_row = (ptrdiff_t)n,
                              .b_col = 1,
                              .b_signed = true,
                              .c_row = (ptrdiff_t)n,
                              .n = n,
                              .k = k };
    g.scratch = aligned_alloc(
        64, (attn_gemm_i8_scratch(rows, n) * sizeof(uint32_t) + 63) / 64 * 64);
    char label[64];
    snprintf(label, sizeof label, "%zux%zux%zu%s", m, n, k, packed ? " packed" : "");
    CHECK_BENCH(c, label, 2.0 * (double)m * (double)n * (double)k, "GOP/s")
    for (size_t i = 0; i < m; i += rows) {
        g.m = m - i < rows ? m - i : rows;
        g.a = a + i * k;
        g.c = y + i * n;
        c->k->gemm_i8(&g);
    }
    free(g.scratch);
    check_again(c);
}

void check_gemm_i8(struct check *c)
{
    static const size_t sizes[] = { 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 70 };
    static const size_t depths[] = {
        0, 1, 2, 3, 4, 7, 63, 64, 65, 129, 1023, 1025, 2090
    };
    enum { N_SIZES = sizeof sizes / sizeof *sizes, N_DEPTHS = 13, CASES = 700 };
    for (int i = 0; i < CASES; i++) {
        const struct shape s = { sizes[check_below(c, N_SIZES)],
                                 sizes[check_below(c, N_SIZES)],
                                 depths[check_below(c, i < 600 ? 10 : N_DEPTHS)] };
        run_case(c, s, i % 3, i / 3 % 2 != 0, i / 6 % 4 == 0);
    }
    run_case(c, (struct shape){ 128, 67, 300 }, 0, true, false);
    run_case(c, (struct shape){ 0, 5, 5 }, 0, false, false);
    run_case(c, (struct shape){ 5, 0, 5 }, 0, false, false);
    run_case(c, (struct shape){ 2, 3, 140000 }, 0, false, true); /* sums wrap */
    for (int packed = 1; c->bench && packed >= 0; packed--) {
        bench_shape(c, 128, 3072, 768, packed);
        bench_shape(c, 128, 768, 3072, packed);
        bench_shape(c, 512, 384, 384, packed);
        bench_shape(c, 16, 3072, 768, packed);
        bench_shape(c, 4, 3072, 768, packed);
        bench_shape(c, 1, 3072, 768, packed);
        bench_shape(c, 128, 128, 64, packed);
    }
}

void check_gemm_pack_i8(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        if (n > 100)
            continue;
        const size_t k = (size_t)check_below(c, 40), deep = (k + 3) / 4 * 4,
                     wide = whole_panels(c, n), panel = (size_t)c->k->vec_bytes / 2;
        const struct operand b = make_operand(c, k, n, (int)check_below(c, 3), false);
        int8_t *panels = check_memory(c, wide * deep);
        uint32_t *sums = check_memory(c, wide * sizeof *sums);
        c->k->gemm_pack_i8((uint8_t *)panels, sums, b.data, b.row, b.col, k, n,
                           b.is_signed);
        for (size_t j = 0; j < wide; j++) {
            const size_t first = j / panel * panel;
            int64_t sum = 0;
            for (size_t i = 0; i < deep; i++) {
                const int32_t want =
                    i < k && j < n ? value_of(&b, i, j) - (b.is_signed ? 0 : 128) : 0;
                check_i64(
                    c, j,
                    panels[first * deep + i / 4 * 4 * panel + 4 * (j - first) + i % 4],
                    want);
                sum += want;
            }
            check_i64(c, j, sums[j], (uint32_t)sum);
        }
    }
}

void check_requantize_i32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const bool is_signed = check_below(c, 2) != 0, biased = check_below(c, 2) != 0;
        const size_t step = (size_t)check_below(c, 2);
        const int32_t low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
        const struct attn_byte_limits to = { low + (int32_t)check_below(c, 256), low,
                                             high };
        int32_t *x = check_bytes(c, n * sizeof *x);
        int32_t *bias = check_bytes(c, n * sizeof *bias);
        float *factor = check_memory(c, (step != 0 ? n : 1) * sizeof *factor);
        uint8_t *y = check_memory(c, n);
        for (size_t i = 0; i < (step != 0 ? n : 1); i++)
            factor[i] = check_below(c, 9) == 0   ? NAN
                        : check_below(c, 2) == 0 ? 0.5f
                                                 : check_normal(c) * 0x1p-6f;
        for (size_t i = 0; i < n; i++) {
            x[i] = check_below(c, 9) == 0 ? x[i] : x[i] % 4096;
            bias[i] = check_below(c, 9) == 0 ? bias[i] : bias[i] % 4096;
        }
        c->k->requantize_i32(y, x, biased ? bias : NULL, factor, step, to, n);
        for (size_t i = 0; i < n; i++) {
            const uint32_t sum = (uint32_t)x[i] + (biased ? (uint32_t)bias[i] : 0);
            const volatile float product = (float)(int32_t)sum * factor[step * i];
            double want = rint((double)product) + (double)to.zero;
            want = want > (double)low ? want : (double)low;
            want = want < (double)high ? want : (double)high;
            check_i64(c, i, y[i], (uint8_t)(int32_t)want);
        }
    }
}

void check_rescale_i32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t step = (size_t)check_below(c, 2);
        const bool biased = check_below(c, 2) != 0;
        const int32_t *x = check_bytes(c, n * sizeof *x);
        const float *scale = check_normal_f32(c, step != 0 ? n : 1);
        const float *bias = check_normal_f32(c, n);
        float *y = check_memory(c, n * sizeof *y);
        c->k->rescale_i32(y, x, scale, step, biased ? bias : NULL, n);
        for (size_t i = 0; i < n; i++) {
            const double product = (double)x[i] * (double)scale[step * i];
            check_near(c, i, (double)y[i], product + (biased ? (double)bias[i] : 0),
                       fabs(product) * 0x1p-22 + 1e-6);
        }
    }
}
