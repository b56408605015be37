/* check_blocked_bytes.c - convolution of maps of bytes in blocks of 16 channels, to the bit,
 * against sums in 64 bits and floats that are rounded one by one. */
#include "checks.h"

enum { BLOCK = ATTN_BLOCK, MAX_TAPS = 10, MAX_PIXELS = 40, MAX_COLUMNS = 5 * BLOCK };

static uint8_t *make_bytes(struct check *c, int64_t n, bool extreme)
{
    static const uint8_t ends[] = { 0, 127, 128, 255 };
    uint8_t *x = check_bytes(c, (size_t)n);
    for (int64_t i = 0; extreme && i < n; i++)
        x[i] = ends[check_below(c, 4)];
    return x;
}

/* Sums of bytes of about `products` products become bytes; sometimes beside another map. */
static void make_requantize(struct check *c, struct attn_requantize *to, int64_t columns,
                            int64_t products, const uint8_t *z)
{
    float *factor = check_memory(c, (size_t)columns * sizeof *factor);
    const float zero = (float)check_below(c, 256), z_zero = (float)check_below(c, 256);
    for (int64_t i = 0; i < columns; i++)
        factor[i] = check_below(c, 20) == 0
                        ? NAN
                        : (float)(1 + check_below(c, 1000)) / (8000.0f * (float)products);
    *to = (struct attn_requantize){
        .factor = factor,
        .low = -zero,
        .high = 255.0f - zero,
        .z = z,
        .ratio = (float)check_below(c, 1000) / 700.0f,
        .z_ratio = (float)check_below(c, 1000) / 700.0f,
        .z_zero = (uint32_t)check_below(c, 256),
        .sum_zero = z_zero,
        .zero = z != NULL ? 0 : (uint32_t)zero,
        .table = check_below(c, 4) == 0 ? check_bytes(c, 256) : NULL,
    };
}

static float between(float x, float low, float high)
{
    x = x > low ? x : low;
    return nearbyintf(x < high ? x : high);
}

static uint8_t byte_of(const struct attn_requantize *to, uint32_t sum, int64_t column,
                       int64_t at)
{
    float q = between((float)(int32_t)sum * to->factor[column], to->low, to->high);
    if (to->z != NULL) {
        const volatile float one = q * to->ratio;
        const volatile float other = ((float)to->z[at] - (float)to->z_zero) * to->z_ratio;
        const volatile float both = one + other;
        q = between(both + to->sum_zero, 0.0f, 255.0f);
    }
    const uint8_t y = (uint8_t)((int32_t)q + (int32_t)to->zero);
    return to->table != NULL ? to->table[y] : y;
}

/* ---- dense ---- */

struct conv_case {
    struct attn_blocked_bytes d;
    struct attn_blocked_tap taps[MAX_TAPS];
    int32_t pixels[MAX_PIXELS];
    int8_t *weights; /* [rows][columns][4] */
};

static int64_t panel_of(const struct check *c)
{
    return attn_blocked_panel(c->k->vec_bytes);
}

/* The weights in the panels of blocked_types.h, and what belongs to columns. */
static void pack_weights(struct check *c, struct conv_case *t)
{
    const int64_t rows = t->d.rows, columns = t->d.columns, panel = panel_of(c);
    int8_t *packed = check_memory(c, (size_t)(rows * columns * 4)), *to = packed;
    uint32_t *sums = check_memory(c, (size_t)columns * 4);
    for (int64_t first = 0; first < columns; first += panel)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < 4 * panel && first * 4 + i < columns * 4; i++)
                *to++ = t->weights[(row * columns + first) * 4 + i];
    for (int64_t column = 0; column < columns; column++) {
        sums[column] = 0;
        for (int64_t row = 0; row < rows; row++)
            for (int i = 0; i < 4; i++)
                sums[column] +=
                    (uint32_t)(int32_t)t->weights[(row * columns + column) * 4 + i];
    }
    t->d.w = (const uint8_t *)packed;
    t->d.w_sum = sums;
}

static uint32_t *random_words(struct check *c, int64_t n, int64_t below)
{
    uint32_t *x = check_memory(c, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint32_t)check_below(c, below) - (uint32_t)(below / 2);
    return x;
}

static void make_conv(struct check *c, struct conv_case *t)
{
    const bool extreme = check_below(c, 2) != 0, zeros = check_below(c, 3) == 0;
    *t = (struct conv_case){ .d.n_taps = 1 + check_below(c, MAX_TAPS) };
    t->d.n_pixels = 1 + check_below(c, MAX_PIXELS);
    t->d.columns = BLOCK * (1 + check_below(c, MAX_COLUMNS / BLOCK));
    t->d.y_block = BLOCK * (t->d.n_pixels + check_below(c, 3));
    for (int64_t i = 0; i < t->d.n_taps; i++) {
        t->taps[i].inputs = 1 + check_below(c, 12);
        t->taps[i].offset = check_below(c, 100);
    }
    const bool beside = check_below(c, 2) != 0; /* which large tiles have a text for */
    for (int64_t i = 0; i < t->d.n_pixels; i++)
        t->pixels[i] = (int32_t)(beside ? i * BLOCK : check_below(c, 200));
    check_make_grid(c, &t->d.grid, t->taps, t->d.n_taps, t->pixels, t->d.n_pixels);
    for (int64_t i = 0; i < t->d.n_taps; i++)
        t->d.rows += t->taps[i].inputs;
    const int64_t y_bytes =
        (t->d.columns / BLOCK - 1) * t->d.y_block + t->d.n_pixels * BLOCK;
    t->d.x = make_bytes(c, 4000, extreme);
    t->weights = (int8_t *)make_bytes(c, t->d.rows * t->d.columns * 4, extreme);
    t->d.begin = random_words(c, t->d.columns, 20000);
    if (zeros) {
        uint32_t *ones = check_memory(c, (size_t)t->d.rows * 4);
        for (int64_t i = 0; i < t->d.rows; i++)
            ones[i] = 0x01010101u >> 8 * check_below(c, 4);
        t->d.ones = ones;
        t->d.w_zero = random_words(c, t->d.columns, 512);
        t->d.x_sums = check_memory(c, (size_t)t->d.n_pixels * 4);
    }
    t->d.y = check_memory(c, (size_t)y_bytes);
    pack_weights(c, t);
    make_requantize(c, &t->d.to, t->d.columns, t->d.rows * 4,
                    check_below(c, 2) ? make_bytes(c, y_bytes, extreme) : NULL);
    t->d.taps = t->taps;
    t->d.pixels = t->pixels;
}

static void check_pixel(struct check *c, const struct conv_case *t, int64_t pixel,
                        int64_t column)
{
    const struct attn_blocked_bytes *d = &t->d;
    const int8_t *w = t->weights + column * 4;
    uint32_t sum = d->begin[column], seen = 0;
    int64_t row = 0;
    for (int64_t i = 0; i < d->n_taps; i++) {
        const uint8_t *x = d->x + d->pixels[pixel] + d->taps[i].offset;
        for (int64_t j = 0; j < d->taps[i].inputs;
             j++, row++, w += d->columns * 4, x += 4)
            for (int k = 0; k < 4; k++) {
                sum += (uint32_t)(x[k] * w[k]);
                if (d->w_zero != NULL && d->ones[row] >> 8 * k & 1)
                    seen += x[k];
            }
    }
    if (d->w_zero != NULL)
        sum -= d->w_zero[column] * seen;
    const int64_t at = column / BLOCK * d->y_block + pixel * BLOCK + column % BLOCK;
    check_i64(c, (size_t)at, d->y[at], byte_of(&d->to, sum, column, at));
}

/* Like a layer of 1 x 1, of `channels` inputs. */
static void bench_conv(struct check *c, int64_t channels, const char *label)
{
    enum { COLUMNS = 64, PIXELS = 56 };
    struct conv_case t = { .d = { .n_taps = channels / BLOCK,
                                  .rows = channels / 4,
                                  .n_pixels = PIXELS,
                                  .columns = COLUMNS,
                                  .y_block = PIXELS * BLOCK } };
    int32_t pixels[PIXELS];
    struct attn_blocked_tap taps[64];
    for (int32_t i = 0; i < PIXELS; i++)
        pixels[i] = i * BLOCK;
    for (int64_t i = 0; i < t.d.n_taps; i++)
        taps[i] = (struct attn_blocked_tap){ i * PIXELS * BLOCK, BLOCK / 4 };
    t.d.pixels = pixels;
    t.d.taps = taps;
    t.d.x = make_bytes(c, (channels + 16) * PIXELS, false);
    t.d.y = check_memory(c, COLUMNS * PIXELS);
    t.d.begin = random_words(c, COLUMNS, 1000);
    if (c->k->tiles) {
        t.d.grid = (struct attn_pixel_grid){ 1, PIXELS, PIXELS * 64, 64 };
        t.d.n_taps = channels / 64;
        for (int64_t i = 0; i < t.d.n_taps; i++)
            taps[i] = (struct attn_blocked_tap){ i * PIXELS * 64, 16 };
    }
    t.weights = check_bytes(c, (size_t)(channels * COLUMNS));
    pack_weights(c, &t);
    make_requantize(c, &t.d.to, COLUMNS, channels, NULL);
    t.d.to.table = NULL;
    CHECK_BENCH(c, label, 2.0 * (double)channels * COLUMNS * PIXELS, "GOP/s")
    c->k->blocked_conv_u8(&t.d);
}

void check_blocked_conv_u8(struct check *c)
{
    for (int n = 0; n < 60; n++) {
        struct conv_case t;
        make_conv(c, &t);
        c->k->blocked_conv_u8(&t.d);
        for (int64_t pixel = 0; pixel < t.d.n_pixels; pixel++)
            for (int64_t column = 0; column < t.d.columns; column++)
                check_pixel(c, &t, pixel, column);
        check_again(c);
    }
    bench_conv(c, 64, "64 to 64, 1x1, 56 pixels");
    bench_conv(c, 512, "512 to 64, 1x1, 56 pixels");
}

/* ---- each channel by itself ---- */

static void make_rows(struct check *c, struct attn_blocked_byte_rows *d, bool extreme)
{
    *d = (struct attn_blocked_byte_rows){
        .parts = 1 + check_below(c, 3),
        .kernel_rows = 1 + check_below(c, 5),
        .groups = 1 + check_below(c, 3),
        .rows = 1 + check_below(c, 4),
        .columns = 1 + check_below(c, 9),
        .column_step = BLOCK * (1 + check_below(c, 3)),
    };
    const int64_t pixels = d->columns * 3 + 16;
    d->tap_step = pixels * BLOCK * (1 + check_below(c, 2));
    d->row_step = pixels * BLOCK * (1 + check_below(c, 2));
    const int64_t n = d->rows * d->columns * BLOCK,
                  words = d->parts * d->kernel_rows * d->groups * 2 * BLOCK;
    uint32_t *sums = check_memory(c, BLOCK * 4);
    d->x = make_bytes(c, pixels * BLOCK * (2 * d->rows + 2 * d->kernel_rows), extreme);
    d->w = make_bytes(c, words * 4, extreme);
    d->begin = random_words(c, BLOCK, 20000);
    /* Weights of the two outputs add up to the same sums, as those of a window do. */
    for (int64_t i = 0; i < words * 4; i++) {
        const int64_t output = i / 4 / BLOCK % 2;
        if (output == 1)
            ((uint8_t *)(uintptr_t)d->w)[i] = d->w[i - 4 * BLOCK];
    }
    for (int64_t lane = 0; lane < BLOCK; lane++) {
        sums[lane] = 0;
        for (int64_t i = 0; i < words; i += 2 * BLOCK)
            for (int k = 0; k < 4; k++)
                sums[lane] +=
                    (uint32_t)(int32_t)((const int8_t *)d->w)[(i + lane) * 4 + k];
    }
    d->w_sum = sums;
    d->y = check_memory(c, (size_t)n);
    make_requantize(c, &d->to, BLOCK, words / 8,
                    check_below(c, 2) ? make_bytes(c, n, extreme) : NULL);
}

static void check_output(struct check *c, const struct attn_blocked_byte_rows *d,
                         int64_t at)
{
    const int64_t lane = at % BLOCK, column = at / BLOCK % d->columns,
                  row = at / BLOCK / d->columns;
    uint32_t sum = d->begin[lane];
    const int8_t *w = (const int8_t *)d->w + (column % 2 * BLOCK + lane) * 4;
    for (int64_t part = 0; part < d->parts; part++)
        for (int64_t i = 0; i < d->kernel_rows; i++)
            for (int64_t k = 0; k < d->groups * 4; k++) {
                const uint8_t *x = d->x + row * d->row_step + i * d->tap_step +
                                   column / 2 * 2 * d->column_step + k * BLOCK + lane;
                sum += (uint32_t)(*x * w[k % 4]);
                w += k % 4 == 3 ? 8 * BLOCK : 0;
            }
    check_i64(c, (size_t)at, d->y[at], byte_of(&d->to, sum, lane, at));
}

void check_blocked_depthwise_u8(struct check *c)
{
    for (int n = 0; n < 100; n++) {
        struct attn_blocked_byte_rows d;
        make_rows(c, &d, n % 2 != 0);
        c->k->blocked_depthwise_u8(&d);
        for (int64_t at = 0; at < d.rows * d.columns * BLOCK; at++)
            check_output(c, &d, at);
        check_again(c);
    }
}

/* ---- bytes ---- */

void check_binary_u8(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float zero = (float)check_below(c, 256);
        const struct attn_binary_u8 d = {
            .a = check_bytes(c, n),
            .b = check_bytes(c, n > 16 ? n : 16),
            .a_zero = (float)check_below(c, 256),
            .b_zero = (float)check_below(c, 256),
            .a_ratio = (float)(1 + check_below(c, 1000)) / (n % 2 ? 700.0f : 70000.0f),
            .b_ratio = (float)check_below(c, 1000) / 700.0f,
            .zero = zero,
            .flip = n % 3 == 0 ? 128 : 0,
            .multiply = n % 2 == 0,
            .b_repeats = n % 5 == 0,
        };
        uint8_t *y = check_memory(c, n);
        c->k->binary_u8(y, &d, n);
        for (size_t i = 0; i < n; i++) {
            const float a = (float)(d.a[i] ^ d.flip) - d.a_zero,
                        b = (float)(d.b[d.b_repeats ? i % 16 : i] ^ d.flip) - d.b_zero;
            const volatile float x = a * d.a_ratio, other = b * d.b_ratio;
            const volatile float sum = d.multiply ? a * b * d.a_ratio : x + other;
            check_i64(c, i, y[i], (uint8_t)between(sum + zero, 0.0f, 255.0f) ^ d.flip);
        }
    }
}

void check_look_up_u8(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const uint8_t *x = check_bytes(c, n), *table = check_bytes(c, 256);
        uint8_t *y = check_memory(c, n);
        c->k->look_up_u8(y, x, table, n);
        for (size_t i = 0; i < n; i++)
            check_i64(c, i, y[i], table[x[i]]);
    }
}

/* Rows of all lengths beside rows of 4 and 16 without gaps; nothing between them is written. */
void check_transpose_u8(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const bool dense = check_below(c, 2) == 0;
        const size_t width = dense && check_below(c, 2) ? 4 : 16;
        const size_t rows = (size_t)check_below(c, dense ? (int64_t)width + 1 : 70),
                     fill = dense       ? width - rows
                            : rows < 16 ? (size_t)check_below(c, 17 - (int64_t)rows)
                                        : 0,
                     y_row = rows + fill + (dense ? 0 : (size_t)check_below(c, 3)),
                     x_row = n + (size_t)check_below(c, 20);
        const uint8_t flip = check_below(c, 2) ? 128 : 0;
        const uint8_t *x = check_bytes(c, rows * x_row), *old = check_bytes(c, n * y_row);
        uint8_t *y = check_memory(c, n * y_row);
        memcpy(y, old, n * y_row);
        c->k->transpose_u8(y, (ptrdiff_t)y_row, x, (ptrdiff_t)x_row, rows, n, fill, flip);
        for (size_t i = 0; i < n * y_row; i++) {
            const size_t row = i % y_row;
            check_i64(c, i, y[i],
                      row < rows          ? x[row * x_row + i / y_row] ^ flip
                      : row < rows + fill ? 0
                                          : old[i]);
        }
    }
    const uint8_t *x = check_bytes(c, 1024 * BLOCK);
    uint8_t *y = check_memory(c, 1024 * BLOCK);
    CHECK_BENCH(c, "16 rows", 2.0 * 1024 * BLOCK, "GB/s")
    c->k->transpose_u8(y, BLOCK, x, 1024, BLOCK, 1024, 0, 128);
}

void check_max_u8(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t step = (size_t)(1 + check_below(c, 3)) * BLOCK;
        const uint8_t *x = check_bytes(c, n * step), *old = check_bytes(c, n * BLOCK);
        uint8_t *y = check_memory(c, n * BLOCK);
        for (size_t i = 0; i < n * BLOCK; i++)
            y[i] = old[i];
        c->k->max_u8(y, x, step, n);
        for (size_t i = 0; i < n * BLOCK; i++) {
            const uint8_t other = x[i / BLOCK * step + i % BLOCK];
            check_i64(c, i, y[i], old[i] > other ? old[i] : other);
        }
    }
}

void check_sum_u8(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const uint8_t *x = check_bytes(c, n * BLOCK);
        uint32_t *y = check_memory(c, BLOCK * sizeof *y);
        c->k->sum_u8(y, x, n);
        for (size_t lane = 0; lane < BLOCK; lane++) {
            uint32_t sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += x[i * BLOCK + lane];
            check_i64(c, lane, y[lane], sum);
        }
    }
}
