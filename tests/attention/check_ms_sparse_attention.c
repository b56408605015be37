/* check_ms_sparse_attention.c - com.microsoft SparseAttention over its cache. Turned
 * positions are in the golden cases. */
#include "pattern.h"

#include <stdlib.h>

struct sparse {
    int64_t block, layouts, rows, entries, capacity;
    int32_t *row_ptr, *col_idx, *lengths;
    int64_t past[4];
    bool packed;
};

static double count(const struct pattern *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct sparse *s = p->arg;
    const int64_t layout = h % s->layouts, position = s->past[b] + i;
    const int32_t *row = s->row_ptr + layout * (s->rows + 1) + position / s->block;
    for (int64_t at = row[0]; at < row[1] && j <= position; at++)
        if (s->col_idx[layout * s->entries + at] == j / s->block)
            return 1;
    return 0;
}

static void fill_layout(struct check *c, struct sparse *s)
{
    for (int64_t i = 0; i < s->layouts; i++) {
        int32_t *row = s->row_ptr + i * (s->rows + 1);
        for (int64_t a = 0; a < s->rows; a++) {
            const int64_t more = check_between(c, 0, 4), left = s->entries - row[a];
            row[a + 1] = row[a] + (int32_t)(more < left ? more : left);
        }
    }
    for (int64_t i = 0; i < s->layouts * s->entries; i++)
        s->col_idx[i] = (int32_t)check_below(c, s->rows);
}

/* New tokens of key or value go behind the past: `all` is (batch, capacity, heads, dim),
 * `present` (batch, heads, capacity, dim). */
static void merge(const struct pattern *p, const struct sparse *s, const float *past,
                  const float *fresh, int64_t row, float *all, double *present)
{
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t g = 0; g < p->kv_heads; g++)
            for (int64_t t = 0; t < s->capacity; t++) {
                const int64_t at = ((b * p->kv_heads + g) * s->capacity + t) * p->dim;
                const int64_t i = t - s->past[b];
                const float *from = i >= 0 && i < p->q_len
                                        ? fresh + (b * p->q_len + i) * row + g * p->dim
                                        : past + at;
                float *to = all + ((b * s->capacity + t) * p->kv_heads + g) * p->dim;
                for (int64_t d = 0; d < p->dim; d++)
                    present[at + d] = (double)(to[d] = from[d]);
            }
}

static void expect(struct check *c, struct pattern *p, struct sparse *s, const float *q,
                   const float *fresh[2], float *const past[2], int64_t row)
{
    const int64_t n = p->batch * s->capacity * p->kv_heads * p->dim;
    const int64_t width = p->q_heads * p->dim;
    float *all[2] = { calloc((size_t)n + 1, sizeof(float)),
                      calloc((size_t)n + 1, sizeof(float)) };
    float *queries = calloc((size_t)(p->batch * p->q_len * width) + 1, sizeof(float));
    double *y = check_output(c, "output", DIMS(p->batch, p->q_len, width));
    for (int i = 0; i < 2; i++) {
        double *present = check_output(c, i == 0 ? "present_key" : "present_value",
                                       DIMS(p->batch, p->kv_heads, s->capacity, p->dim));
        merge(p, s, past[i], fresh[i], s->packed ? row : p->kv_heads * p->dim, all[i],
              present);
    }
    for (int64_t i = 0; i < p->batch * p->q_len; i++)
        memcpy(queries + i * width, q + i * row, (size_t)width * sizeof *queries);
    p->q = queries;
    p->k = all[0];
    p->v = all[1];
    p->kv_len = s->capacity;
    p->count = count;
    p->arg = s;
    pattern_reference(p, y);
    free(all[0]);
    free(all[1]);
    free(queries);
}

static void build(struct check *c, struct pattern p, struct sparse *s, bool prompt)
{
    const int64_t kv = p.kv_heads * p.dim;
    const int64_t row = p.q_heads * p.dim + (s->packed ? 2 * kv : 0);
    const float *fresh[2];
    float *past[2];
    check_begin(c, "com.microsoft::SparseAttention");
    check_int(c, "num_heads", p.q_heads);
    check_int(c, "kv_num_heads", p.kv_heads);
    check_int(c, "sparse_block_size", s->block);
    if (p.scale != 0.0f)
        check_float(c, "scale", p.scale);
    float *q = check_f32(c, "query", DIMS(p.batch, p.q_len, row));
    fresh[0] = q + p.q_heads * p.dim;
    fresh[1] = fresh[0] + kv;
    for (int i = 0; i < 2; i++) {
        if (s->packed)
            check_absent(c);
        else
            fresh[i] = check_f32(c, i == 0 ? "key" : "value", DIMS(p.batch, p.q_len, kv));
    }
    for (int i = 0; i < 2; i++)
        past[i] = check_f32(c, i == 0 ? "past_key" : "past_value",
                            DIMS(p.batch, p.kv_heads, s->capacity, p.dim));
    s->rows = (s->capacity + s->block - 1) / s->block;
    s->row_ptr = check_data(c, "rows", ATTNRUN_I32, DIMS(s->layouts, s->rows + 1));
    s->col_idx = check_data(c, "columns", ATTNRUN_I32, DIMS(s->layouts, s->entries));
    fill_layout(c, s);
    int32_t *total = check_data(c, "total", ATTNRUN_I32, DIMS(1));
    s->lengths = check_data(c, "lengths", ATTNRUN_I32, DIMS(p.batch));
    *total = (int32_t)(prompt ? p.q_len : s->capacity + 1);
    for (int64_t b = 0; b < p.batch; b++) {
        s->past[b] = prompt ? 0 : check_between(c, 0, s->capacity - p.q_len);
        s->lengths[b] = (int32_t)(s->past[b] + p.q_len);
    }
    expect(c, &p, s, q, fresh, past, row);
}

static void refusals(struct check *c)
{
    const struct pattern p = {
        .batch = 1, .q_len = 5, .q_heads = 4, .kv_heads = 2, .dim = 8, .v_dim = 8
    };
    struct sparse s = { .block = 8, .layouts = 1, .entries = 6, .capacity = 20 };
    build(c, p, &s, false);
    s.lengths[0] = 21;
    check_refuses(c, ATTNRUN_E_RANGE, "lengths|16 to 20|cache of 20");
    build(c, p, &s, false);
    s.lengths[0] = 4;
    check_refuses(c, ATTNRUN_E_RANGE, "lengths|tokens -1");
    build(c, p, &s, true);
    s.row_ptr[1] = 7;
    check_refuses(c, ATTNRUN_E_RANGE, "rows|holds 7");
    build(c, p, &s, true);
    s.row_ptr[1] = s.row_ptr[2] = s.row_ptr[3] = 6;
    s.col_idx[0] = 3;
    check_refuses(c, ATTNRUN_E_RANGE, "columns|holds 3|0 to 2");
    build(c, p, &s, true);
    check_int(c, "do_rotary", 1);
    check_refuses(c, ATTNRUN_E_INPUT, "cos_cache");
    s.layouts = 3;
    build(c, p, &s, true);
    check_refuses(c, ATTNRUN_E_SHAPE, "rows|a divisor of the 4 heads");
}

void check_ms_sparse_attention(struct check *c)
{
    CHECK_ROUNDS(c, 40)
    {
        struct pattern p = pattern_sizes(c, c->round % 8 == 0 ? 600 : 100, true);
        struct sparse s = { .block = check_between(c, 1, 70),
                            .layouts = check_chance(c, 50) ? 1 : p.q_heads,
                            .packed = check_chance(c, 50) };
        p.v_dim = p.dim;
        s.capacity = p.q_len + check_between(c, 0, 100);
        s.entries = check_between(c, 0, 3 * (s.capacity / s.block + 1));
        build(c, p, &s, check_chance(c, 40));
        check_run(c, CHECK_A);
    }
    refusals(c);
}
