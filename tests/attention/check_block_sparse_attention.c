/* check_block_sparse_attention.c - BlockSparseAttention against its counts. */
#include "pattern.h"

struct layout {
    int64_t block, layouts, rows, entries; /* row_ptr is (layouts, rows + 1) */
    int32_t *row_ptr;
    int64_t *col_idx;
};

static double count(const struct pattern *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct layout *l = p->arg;
    const int64_t layout = h % l->layouts;
    const int32_t *row = l->row_ptr + layout * (l->rows + 1) + i / l->block;
    double n = 0;
    (void)b;
    for (int64_t at = row[0]; at < row[1]; at++)
        n += l->col_idx[layout * l->entries + at] == j / l->block;
    return n;
}

static void fill_layout(struct check *c, struct layout *l, int64_t key_blocks)
{
    for (int64_t i = 0; i < l->layouts; i++) {
        int32_t *row = l->row_ptr + i * (l->rows + 1);
        row[0] = (int32_t)check_between(c, 0, l->entries > 0);
        for (int64_t a = 0; a < l->rows; a++) {
            const int64_t left = l->entries - row[a];
            const int64_t more = check_between(c, 0, 2 * l->entries / l->rows + 1);
            row[a + 1] = row[a] + (int32_t)(more < left ? more : left);
        }
    }
    for (int64_t i = 0; i < l->layouts * l->entries; i++)
        l->col_idx[i] = check_between(c, -1, key_blocks - 1);
}

static struct pattern build(struct check *c, struct pattern p, struct layout *l,
                            int64_t entries)
{
    const int64_t key_blocks = (p.kv_len + l->block - 1) / l->block;
    check_begin(c, "BlockSparseAttention");
    pattern_operands(c, &p);
    check_int(c, "block_size", l->block);
    if (p.causal)
        check_int(c, "is_causal", 1);
    l->rows = (p.q_len + l->block - 1) / l->block;
    l->entries = entries;
    l->row_ptr = check_data(c, "row_ptr", ATTNRUN_I32, DIMS(l->layouts, l->rows + 1));
    if (check_chance(c, 50))
        check_constant(c);
    l->col_idx = check_data(c, "col_idx", ATTNRUN_I64, DIMS(l->layouts, entries));
    if (check_chance(c, 50))
        check_constant(c);
    fill_layout(c, l, key_blocks);
    if (check_chance(c, 50))
        p.mask = check_mask(c, "key_mask", p.batch, p.kv_len);
    p.arg = l;
    p.count = count;
    pattern_output(c, &p);
    return p;
}

static struct pattern plain(struct layout *l)
{
    *l = (struct layout){ .block = 16, .layouts = 1 };
    return (struct pattern){ .batch = 1,
                             .q_len = 40,
                             .kv_len = 40,
                             .q_heads = 2,
                             .kv_heads = 2,
                             .dim = 4,
                             .v_dim = 4 };
}

static void refusals(struct check *c)
{
    struct layout l;
    struct pattern p = plain(&l);
    l.block = 24;
    build(c, p, &l, 6);
    check_refuses(c, ATTNRUN_E_ATTR, "block_size is 24|expected 8");
    l.block = 16;
    build(c, p, &l, 6);
    l.row_ptr[1] = 3, l.row_ptr[2] = 2;
    check_refuses(c, ATTNRUN_E_RANGE, "row_ptr|holds 2 at [0,2]|expected 3 to 6");
    build(c, p, &l, 6);
    l.row_ptr[3] = 7;
    check_refuses(c, ATTNRUN_E_RANGE, "row_ptr|holds 7 at [0,3]");
    build(c, p, &l, 6);
    l.row_ptr[1] = l.row_ptr[2] = l.row_ptr[3] = 6;
    l.col_idx[5] = 3;
    check_refuses(c, ATTNRUN_E_RANGE, "col_idx|holds 3|expected -1 to 2");
    build(c, p, &l, 6);
    l.row_ptr[0] = 0;
    l.row_ptr[1] = l.row_ptr[2] = l.row_ptr[3] = 6;
    l.col_idx[0] = -2;
    check_refuses(c, ATTNRUN_E_RANGE, "col_idx|holds -2");
    l.layouts = 3;
    build(c, p, &l, 6);
    check_refuses(c, ATTNRUN_E_SHAPE, "row_ptr|a divisor of the 2 heads");
    l.layouts = 1;
    build(c, p, &l, 6);
    c->in[3].dims[1] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "row_ptr|blocks of queries + 1");
    build(c, p, &l, 6);
    check_int(c, "window", 3);
    check_refuses(c, ATTNRUN_E_ATTR, "window");
}

void check_block_sparse_attention(struct check *c)
{
    static const int64_t blocks[] = { 8, 16, 32, 64, 128 };
    struct layout l;
    CHECK_ROUNDS(c, 60)
    {
        struct pattern p = pattern_sizes(c, c->round % 8 == 0 ? 700 : 160, false);
        if (c->round % 8 == 0) /* several groups of queries, tiles that are packed */
            p.q_len += 300;
        l = (struct layout){ .block = blocks[check_below(c, 5)] };
        l.layouts = check_chance(c, 50) ? 1 : p.q_heads;
        p.causal = check_chance(c, 50);
        build(c, p, &l, check_between(c, 0, 6 * (p.q_len / l.block + 1)));
        check_run(c, CHECK_A);
    }
    refusals(c);
    struct pattern large = plain(&l);
    l.block = 64;
    large.q_len = large.kv_len = 16384;
    large.q_heads = large.kv_heads = 8;
    large.dim = large.v_dim = 64;
    c->blank = true;
    build(c, large, &l, 2048);
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}
