/* check_nbits.c - weights of 2, 4 and 8 bits: unpacked, and times few rows. */
#include "checks.h"

enum { BLOCK = 16 };

/* Weights for k rows and `panels` panels; what they stand for is worked out by element(). Blocks
 * of 400 and 528 rows end with a part of a chunk where rows are rounded (128) or in digits (512).
 */
static struct attn_nbits weights(struct check *c, size_t k, size_t panels)
{
    static const int32_t bits[] = { 2, 4, 8, 4 };
    const size_t width = (size_t)c->k->vec_bytes / 2;
    const int64_t kind = check_below(c, 4), zeros = check_below(c, 3);
    static const size_t blocks[] = { BLOCK, 2 * BLOCK, 3 * BLOCK, 400, 528 };
    struct attn_nbits b = { .k = k, .block = blocks[check_below(c, 5)] };
    b.bits = bits[kind];
    b.blocks = (k + b.block - 1) / b.block;
    b.q = check_bytes(c, panels * attn_nbits_panel(&b, width));
    b.scale = check_normal_f32(c, panels * b.blocks * width);
    if (kind == 3)
        b.table = check_normal_f32(c, 16);
    else if (zeros == 0)
        b.zero_u8 = check_bytes(c, panels * b.blocks * width);
    else if (zeros == 1)
        b.zero_f32 = check_normal_f32(c, panels * b.blocks * width);
    else
        b.zero = 7.0f;
    return b;
}

static double element(const struct check *c, const struct attn_nbits *b, size_t panel,
                      size_t k, size_t column)
{
    const size_t width = (size_t)c->k->vec_bytes / 2, per = 32 / (size_t)b->bits;
    const size_t block = b->group != NULL ? (size_t)b->group[k] : k / b->block;
    const size_t at = (panel * b->blocks + block) * width + column;
    const uint8_t *word =
        b->q + panel * attn_nbits_panel(b, width) + (k / per * width + column) * 4;
    const size_t bit = k % per * (size_t)b->bits;
    const int q = word[bit / 8] >> bit % 8 & ((1 << b->bits) - 1);
    const double zero = b->zero_u8 != NULL    ? (double)b->zero_u8[at]
                        : b->zero_f32 != NULL ? (double)b->zero_f32[at]
                                              : (double)b->zero;
    if (b->table != NULL)
        return (double)(b->table[q] * b->scale[at]);
    return (double)(((float)q - (float)zero) * b->scale[at]);
}

void check_nbits_unpack_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t width = (size_t)c->k->vec_bytes / 2;
        const size_t some = check_below(c, 2) ? width : width / 2;
        const size_t from = n > 8 ? (size_t)check_below(c, 2) * 4 : 0, panel = n % 2;
        struct attn_nbits b = weights(c, n, 2);
        if (n > 0 && check_below(c, 2)) {
            int32_t *group = check_memory(c, n * sizeof *group);
            for (size_t i = 0; i < n; i++)
                group[i] = (int32_t)check_below(c, (int64_t)b.blocks);
            b.group = group;
        }
        float *y = check_memory(c, (n - from) * some * sizeof *y);
        c->k->nbits_unpack_f32(y, &b, panel, from, n - from, some);
        for (size_t i = from; i < n; i++)
            for (size_t j = 0; j < some; j++)
                check_f32(c, i * width + j, y[(i - from) * some + j],
                          element(c, &b, panel, i, j), 0);
    }
}

void check_nbits_unpack_bf16(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t width = (size_t)c->k->vec_bytes / 2;
        const size_t some = check_below(c, 2) ? width : width / 2;
        const size_t from = n > 8 ? (size_t)check_below(c, 2) * 4 : 0, panel = n % 2;
        const size_t words = (n - from + 1) / 2;
        struct attn_nbits b = weights(c, n, 2);
        uint32_t *y = check_memory(c, words * some * sizeof *y), one;
        c->k->nbits_unpack_bf16(y, &b, panel, from, n - from, some);
        for (size_t i = 0; i < words; i++)
            for (size_t j = 0; j < some; j++) {
                const size_t row = from + 2 * i;
                const float two[2] = { (float)element(c, &b, panel, row, j),
                                       row + 1 < n
                                           ? (float)element(c, &b, panel, row + 1, j)
                                           : 0.0f };
                c->k->words_bf16(&one, two, 1);
                check_i64(c, i * width + j, y[i * some + j], one);
            }
    }
}

/* Each row of y against the sum in double. */
static void check_rows(struct check *c, const struct attn_nbits *b, const float *a,
                       size_t a_row, size_t m, const void *digits)
{
    const size_t width = (size_t)c->k->vec_bytes / 2, panel = b->k % 2;
    const size_t columns = 1 + (size_t)check_below(c, (int64_t)width),
                 c_row = columns + 1;
    const float *bias = check_below(c, 2) ? check_normal_f32(c, columns) : NULL;
    float *y = check_memory(c, ((m - 1) * c_row + columns) * sizeof *y);
    c->k->nbits_rows_f32(y, (ptrdiff_t)c_row, a, (ptrdiff_t)a_row, m, b, digits, panel,
                         columns, bias);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < columns; j++) {
            double sum = bias != NULL ? (double)bias[j] : 0, size = fabs(sum);
            for (size_t k = 0; k < b->k; k++) {
                const double term = (double)a[i * a_row + k] * element(c, b, panel, k, j);
                sum += term;
                size += fabs(term);
            }
            check_near(c, i * width + j, (double)y[i * c_row + j], sum, 4e-6 * size);
        }
}

static void *digits_of(struct check *c, const float *a, size_t a_row, size_t m,
                       const struct attn_nbits *b)
{
    const size_t bytes = c->k->nbits_digits(NULL, NULL, 0, m, b);
    void *digits = bytes > 0 ? check_memory(c, bytes) : NULL;
    return bytes > 0 && c->k->nbits_digits(digits, a, (ptrdiff_t)a_row, m, b) == bytes
               ? digits
               : NULL;
}

void check_nbits_rows_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t m = 1 + (size_t)check_below(c, ATTN_NBITS_ROWS);
        const size_t a_row = n + (size_t)check_below(c, 3);
        const struct attn_nbits b = weights(c, n, 2);
        const float *a = check_normal_f32(c, (m - 1) * a_row + n);
        check_rows(c, &b, a, a_row, m, NULL);
        check_rows(c, &b, a, a_row, m, digits_of(c, a, a_row, m, &b));
    }
    const struct attn_nbits b = { .q = check_bytes(c, 4096 * 16),
                                  .scale = check_normal_f32(c, 4096),
                                  .zero = 8,
                                  .k = 1024,
                                  .block = 32,
                                  .blocks = 32,
                                  .bits = 4 };
    const float *a = check_normal_f32(c, 1024);
    float y[ATTN_GEMM_NR_MAX];
    const size_t width = (size_t)c->k->vec_bytes / 2;
    const void *digits = digits_of(c, a, 1024, 1, &b);
    CHECK_BENCH(c, "one row, 4 bits", (double)(512 * width), "GB/s")
    c->k->nbits_rows_f32(y, 0, a, 0, 1, &b, digits, 0, width, NULL);
}

/* Digits are made where a set has products of bytes, unless a number says no. Their values are
 * looked at through check_nbits_rows_f32, the largest of a long block here. */
void check_nbits_digits(struct check *c)
{
    struct attn_nbits b = { .q = check_bytes(c, 2 * 3000 * (size_t)c->k->vec_bytes / 2),
                            .scale = check_normal_f32(c, (size_t)c->k->vec_bytes),
                            .zero = 128,
                            .k = 3000,
                            .block = 3000,
                            .blocks = 1,
                            .bits = 8 };
    float *a = check_memory(c, 3000 * sizeof *a);
    for (int turn = 0; turn < 4; turn++) {
        for (size_t k = 0; k < 3000; k++)
            a[k] = turn == 0 ? -1.0f : (float)(1 - 2 * check_below(c, 2)) * 3e38f;
        if (turn == 1)
            a[2999] = 1e30f;
        else
            memset(a + 7, 0, 4);
        const float wrong[] = { 0.0f, 0.0f, INFINITY, NAN };
        if (turn > 1)
            a[7] = wrong[turn];
        const size_t bytes = c->k->nbits_digits(NULL, NULL, 0, 1, &b);
        void *digits = check_memory(c, bytes + 64);
        const size_t made = c->k->nbits_digits(digits, a, 3000, 1, &b);
        check_f32(c, (size_t)turn, (float)made, turn > 1 ? 0.0 : (double)bytes, 0);
        if (turn == 0)
            check_rows(c, &b, a, 3000, 1, made > 0 ? digits : NULL);
    }
    for (size_t k = 0; k < 3000; k++)
        a[k] = 1e-38f;
    check_f32(c, 4, (float)c->k->nbits_digits(check_memory(c, 1 << 16), a, 3000, 1, &b),
              0, 0);
    b.table = check_normal_f32(c, 16);
    check_f32(c, 5, (float)c->k->nbits_digits(NULL, NULL, 0, 1, &b), 0, 0);
}

/* ---- rows rounded to bytes ---- */

/* The largest |a| among the numbers that share a factor with number k: those of its block, or of
 * the 128 of it that k is in. */
static double largest_beside(const struct attn_nbits *b, const float *a, size_t k)
{
    const size_t block = k / b->block * b->block, from = block + (k - block) / 128 * 128;
    double largest = 0;
    for (size_t i = from; i < b->k && i < from + 128 && i < block + b->block; i++)
        largest = fmax(largest, fabs((double)a[i]));
    return largest;
}

/* The bound that attnrun.h states: each number of A is off by 1/254 of the largest one beside
 * it. The sums themselves are those of floats. */
static void check_rounded(struct check *c, const struct attn_nbits *b, const float *a,
                          size_t a_row, size_t m)
{
    const size_t width = (size_t)c->k->vec_bytes / 2, panel = b->k % 2;
    const size_t bytes = c->k->nbits_round(NULL, NULL, 0, m, b),
                 columns = 1 + (size_t)check_below(c, (int64_t)width),
                 c_row = columns + 1;
    const float *bias = check_below(c, 2) ? check_normal_f32(c, columns) : NULL;
    float *y = check_memory(c, ((m - 1) * c_row + columns) * sizeof *y);
    void *rows = check_memory(c, bytes);
    const struct attn_nbits_product product = {
        .b = b,
        .rows = rows,
        .bias = bias,
        .c = y,
        .c_row = (ptrdiff_t)c_row,
        .m = m,
        .panel = panel,
        .n = columns,
        .scratch = check_memory(c, ATTN_NBITS_PART * ATTN_GEMM_NR_MAX),
    };
    if (bytes == 0 || c->k->nbits_round(rows, a, (ptrdiff_t)a_row, m, b) != bytes)
        return;
    c->k->nbits_rounded_f32(&product);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < columns; j++) {
            double sum = bias != NULL ? (double)bias[j] : 0, bound = 4e-6 * fabs(sum);
            for (size_t k = 0; k < b->k; k++) {
                const double w = element(c, b, panel, k, j), x = (double)a[i * a_row + k];
                sum += x * w;
                bound += fabs(w) * (largest_beside(b, a + i * a_row, k) * (1.001 / 254) +
                                    4e-6 * fabs(x));
            }
            check_near(c, i * width + j, (double)y[i * c_row + j], sum, bound);
        }
}

/* Sums of bytes are the largest where all numbers of a row are equal, and what zero points take
 * off them where these are 255. */
static void check_equal_rows(struct check *c)
{
    const size_t width = (size_t)c->k->vec_bytes / 2, k = 400;
    uint8_t *zeros = check_memory(c, 2 * width);
    float *a = check_memory(c, 2 * k * sizeof *a);
    const struct attn_nbits b = { .q = check_bytes(c, 2 * k * width),
                                  .scale = check_normal_f32(c, 2 * width),
                                  .zero_u8 = zeros,
                                  .k = k,
                                  .block = k,
                                  .blocks = 1,
                                  .bits = 8 };
    memset(zeros, 255, 2 * width);
    for (size_t i = 0; i < 2 * k; i++)
        a[i] = i < k ? 3.0f : -3.0f;
    check_rounded(c, &b, a, k, 2);
    check_rows(c, &b, a, k, 2, digits_of(c, a, k, 2, &b));
}

void check_nbits_rounded_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t m = 1 + (size_t)check_below(c, 20);
        const size_t a_row = n + (size_t)check_below(c, 3);
        const struct attn_nbits b = weights(c, n, 2);
        check_rounded(c, &b, check_normal_f32(c, (m - 1) * a_row + n), a_row, m);
    }
    check_equal_rows(c);
    const size_t rows = 128, width = (size_t)c->k->vec_bytes / 2;
    const struct attn_nbits b = { .q = check_bytes(c, 384 * 16),
                                  .scale = check_normal_f32(c, 384),
                                  .zero = 8,
                                  .k = 384,
                                  .block = 32,
                                  .blocks = 12,
                                  .bits = 4 };
    const size_t bytes = c->k->nbits_round(NULL, NULL, 0, rows, &b);
    const float *a = check_normal_f32(c, rows * 384);
    struct attn_nbits_product product = { .b = &b, .m = rows, .n = width };
    product.rows = check_memory(c, bytes + 64);
    product.c = check_memory(c, rows * width * sizeof(float));
    product.c_row = (ptrdiff_t)width;
    product.scratch = check_memory(c, ATTN_NBITS_PART * ATTN_GEMM_NR_MAX);
    if (c->k->nbits_round((void *)product.rows, a, 384, rows, &b) == 0)
        return; /* no products of bytes */
    CHECK_BENCH(c, "128 rows, 4 bits", 2.0 * (double)(rows * 384 * width), "GFLOP/s")
    c->k->nbits_rounded_f32(&product);
}

/* What is not finite stays in its row, and what is too small to be divided by counts as 0. */
void check_nbits_round(struct check *c)
{
    const size_t width = (size_t)c->k->vec_bytes / 2;
    struct attn_nbits b = { .q = check_bytes(c, 3000 * width),
                            .scale = check_normal_f32(c, 2 * width),
                            .zero = 128,
                            .k = 3000,
                            .block = 3008,
                            .blocks = 1,
                            .bits = 8 };
    const float wrong[] = { INFINITY, -INFINITY, NAN };
    float *a = check_memory(c, 2 * 3000 * sizeof *a), *y = check_memory(c, 8 * width);
    const size_t bytes = c->k->nbits_round(NULL, NULL, 0, 2, &b);
    struct attn_nbits_product product = { .b = &b, .m = 2, .n = width, .c = y };
    product.rows = check_memory(c, bytes + 64);
    product.c_row = (ptrdiff_t)width;
    product.scratch = check_memory(c, ATTN_NBITS_PART * ATTN_GEMM_NR_MAX);
    for (int turn = 0; turn < 3 && bytes > 0; turn++) {
        for (size_t k = 0; k < 3000; k++) {
            a[k] = (float)(1 - 2 * check_below(c, 2)) * 3e38f;
            a[3000 + k] = 1e-38f;
        }
        a[700 * (turn + 1)] = wrong[turn];
        c->k->nbits_round((void *)product.rows, a, 3000, 2, &b);
        c->k->nbits_rounded_f32(&product);
        for (size_t j = 0; j < width; j++) {
            check_f32(c, j, (float)isnan(y[j]), 1, 0);
            check_f32(c, width + j, y[width + j], 0, 0);
        }
    }
    b.table = check_normal_f32(c, 16);
    check_f32(c, 5, (float)c->k->nbits_round(NULL, NULL, 0, 1, &b), 0, 0);
}
