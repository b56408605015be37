/* features_f32.c - attention by features: maps of queries and keys with the sums that belong to
 * them, and the steps for rows between two products. features.def says what goes into each kernel
 * and what comes out; struct attn_features is in kernel_types.h. Each row is read and written
 * once, and the sums are taken in the same pass. Cost: one map of each element. */
#include "vtrig.h"

/* ---- maps ---- */

/* exp(x) of x <= 0 and x + 1 above: exp(min(x, 0)) + max(x, 0). */
static ALWAYS_INLINE v_f32 map_elu1(v_f32 x)
{
    return v_exp_negative(v_min(v_set(0.0f), x)) + v_max(v_set(0.0f), x);
}

static ALWAYS_INLINE v_f32 map(int kind, v_f32 x)
{
    v_f32 y;
    switch (kind) {
    case ATTN_MAP_RELU:
        return v_relu(x);
    case ATTN_MAP_ELU1:
        return map_elu1(x);
    case ATTN_MAP_EXP:
        return v_exp(x);
    case ATTN_MAP_EXP2:
        return v_exp2(v_min(v_set(128.0f), x)); /* no stabilizer: it may overflow */
    case ATTN_MAP_REQU:
        y = v_relu(x);
        return y * y;
    case ATTN_MAP_SIGMOID:
        return v_sigmoid(x);
    case ATTN_MAP_TANH:
        return v_tanh(x);
    case ATTN_MAP_GELU:
        return v_gelu(x);
    case ATTN_MAP_ABS:
        return v_abs(x);
    case ATTN_MAP_COS:
        return v_cos(x);
    case ATTN_MAP_SIN:
        return v_sin(x);
    default:
        return x;
    }
}

/* ---- rows ---- */

/* The conditions of a loop; with fewer of them the frequent loops are short. All maps share the
 * loop that has all conditions, and choose the map for each vector. */
enum form {
    QUERIES,    /* a shift for each row, add, dots */
    KEYS,       /* sums of columns */
    TRANSPOSED, /* keys as columns: a shift for each, sums of rows */
    ANY
};

struct row {
    v_f32 sum, dot;
    float shift, factor;
};

/* Up to VF features from i on. */
static ALWAYS_INLINE void part(const struct attn_features *f, struct row *row,
                               const float *x, float *y, size_t i, size_t n, int kind,
                               const enum form form)
{
    v_f32 v = v_load_part(x + i, n, 0.0f);
    if (form == ANY)
        v = v * f->scale;
    if (form == QUERIES || form == ANY)
        v -= row->shift;
    if (form == TRANSPOSED || (form == ANY && f->column_shift != NULL))
        v -= v_load_part(f->column_shift + i, n, 0.0f);
    v = map(kind, v);
    if (form == QUERIES || form == ANY)
        v += f->add;
    if (form == ANY) {
        v_f32 by = v_set(row->factor);
        if (f->column_factor != NULL)
            by *= v_load_part(f->column_factor + i, n, 0.0f);
        v = v_select(by == 0.0f, v_set(0.0f), v * by);
    }
    v_store_part(y + i, v, n);
    if (n < VF) /* the rest of the vector is the map of nothing */
        v = v_load_tail(y + i, n, 0.0f);
    if (form == QUERIES || (form == ANY && f->dots != NULL))
        row->dot += v * v_load_part(f->weights + i, n, 0.0f);
    if (form == TRANSPOSED || form == ANY)
        row->sum += v;
    if (form == KEYS || (form == ANY && f->column_sums != NULL))
        v_store_part(f->column_sums + i, v_load_part(f->column_sums + i, n, 0.0f) + v, n);
}

static ALWAYS_INLINE void rows_of(const struct attn_features *f, int kind,
                                  const enum form form)
{
    for (size_t r = 0; r < f->rows; r++) {
        const float *x = f->x + (ptrdiff_t)r * f->x_row;
        float *y = f->y + (ptrdiff_t)r * f->y_row;
        prefetch_row(x, f->x_row, f->n);
        struct row row = { .sum = { 0 }, .dot = { 0 }, .shift = 0, .factor = 1 };
        if (form != KEYS && f->row_shift != NULL)
            row.shift = f->row_shift[r];
        if (form == ANY && f->row_factor != NULL)
            row.factor = f->row_factor[r];
        size_t i = 0;
        for (; form != ANY && i + VF <= f->n; i += VF)
            part(f, &row, x, y, i, VF, kind, form);
        for (; i < f->n; i += VF)
            part(f, &row, x, y, i, f->n - i, kind, form);
        if (form == QUERIES || (form == ANY && f->dots != NULL))
            f->dots[r] = v_reduce_add(row.dot);
        if (form == TRANSPOSED || (form == ANY && f->row_sums != NULL))
            f->row_sums[r] += v_reduce_add(row.sum);
    }
}

/* clang-format off */
#define ROWS(kind, form) \
    static __attribute__((noinline)) void rows_##kind##_##form(const struct attn_features *f) \
    { rows_of(f, ATTN_MAP_##kind, form); }
ROWS(IDENTITY, QUERIES) ROWS(RELU, QUERIES) ROWS(ELU1, QUERIES) ROWS(EXP2, QUERIES)
ROWS(IDENTITY, KEYS) ROWS(RELU, KEYS) ROWS(ELU1, KEYS) ROWS(EXP2, TRANSPOSED)
#undef ROWS
static void rows_any(const struct attn_features *f) { rows_of(f, f->map, ANY); }
/* clang-format on */

static enum form form_of(const struct attn_features *f)
{
    const bool plain =
        f->scale == 1.0f && f->row_factor == NULL && f->column_factor == NULL;
    if (!plain)
        return ANY;
    if (f->dots != NULL && f->column_shift == NULL && f->row_sums == NULL &&
        f->column_sums == NULL)
        return QUERIES;
    if (f->dots != NULL || f->row_shift != NULL || f->add != 0.0f)
        return ANY;
    if (f->column_sums != NULL && f->row_sums == NULL && f->column_shift == NULL)
        return KEYS;
    return f->row_sums != NULL && f->column_sums == NULL && f->column_shift != NULL
               ? TRANSPOSED
               : ANY;
}

void K(features_f32)(const struct attn_features *f)
{
    const enum form form = ATTN_ONE_TEXT ? ANY : form_of(f);
    void (*run)(const struct attn_features *) = rows_any;
    if (form == QUERIES)
        run = f->map == ATTN_MAP_IDENTITY ? rows_IDENTITY_QUERIES
              : f->map == ATTN_MAP_RELU   ? rows_RELU_QUERIES
              : f->map == ATTN_MAP_ELU1   ? rows_ELU1_QUERIES
              : f->map == ATTN_MAP_EXP2   ? rows_EXP2_QUERIES
                                          : run;
    else if (form == KEYS)
        run = f->map == ATTN_MAP_IDENTITY ? rows_IDENTITY_KEYS
              : f->map == ATTN_MAP_RELU   ? rows_RELU_KEYS
              : f->map == ATTN_MAP_ELU1   ? rows_ELU1_KEYS
                                          : run;
    else if (form == TRANSPOSED && f->map == ATTN_MAP_EXP2)
        run = rows_EXP2_TRANSPOSED;
    run(f);
}

/* ---- between products ---- */

void K(causal_rows_f32)(float *s, ptrdiff_t row, size_t rows, size_t n, ptrdiff_t first,
                        float *sums)
{
    for (size_t r = 0; r < rows; r++, s += row) {
        const ptrdiff_t end = first + (ptrdiff_t)r + 1;
        const size_t keep = end <= 0 ? 0 : (size_t)end < n ? (size_t)end : n;
        memset(s + keep, 0, (n - keep) * sizeof *s);
        v_f32 sum = { 0 };
        for (size_t j = 0; j < keep; j += VF)
            sum += v_load_part(s + j, n - j, 0.0f); /* zeros behind `keep` */
        sums[r] += v_reduce_add(sum);
    }
}

void K(multiply_rows_f32)(float *y, ptrdiff_t row, size_t rows, size_t n,
                          const float *factors)
{
    for (size_t r = 0; r < rows; r++, y += row) {
        const v_f32 by = v_set(factors[r]);
        for (size_t i = 0; i < n; i += VF)
            v_store_part(y + i, v_load_part(y + i, n - i, 0.0f) * by, n - i);
    }
}

void K(max_columns_f32)(float *y, const float *x, ptrdiff_t row, size_t rows, size_t n,
                        const uint8_t *keep)
{
    for (size_t i = 0; i < n; i += VF) {
        v_f32 max = v_load_part(y + i, n - i, 0.0f);
        for (size_t r = 0; r < rows; r++)
            if (keep == NULL || keep[r] != 0)
                max = v_max(max, v_load_part(x + (ptrdiff_t)r * row + i, n - i, 0.0f));
        v_store_part(y + i, max, n - i);
    }
}

void K(square_rows_f32)(float *y, const float *x, ptrdiff_t row, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++, x += row) {
        v_f32 sum = { 0 };
        for (size_t i = 0; i < n; i += VF) {
            v_f32 v = v_load_part(x + i, n - i, 0.0f);
            sum += v * v;
        }
        y[r] = v_reduce_add(sum);
    }
}
