/* cut.c - cuts products into tasks that many threads share evenly. cut.h describes the
 * tasks. */
#include "cut.h"

#include "../tile.h"

enum {
    EVEN_TASKS = 128, /* so many are even enough in any case */
    MAX_PARTS = 4,
    MIN_PART = 32 /* rows */
};

void attn_cut_none(struct attn_cut *cut)
{
    *cut = (struct attn_cut){ .m_block = 1, .m_part = 1, .parts = 1, .n_block = 1 };
}

static void set_parts(struct attn_cut *cut, int64_t parts)
{
    cut->m_part = ceil_div(ceil_div(cut->m_block, parts), 8) * 8;
    cut->parts = ceil_div(cut->m_block, cut->m_part);
}

static void set_columns(struct attn_cut *cut, int64_t columns)
{
    cut->n_block = columns;
    cut->n_blocks = ceil_div(cut->n, columns);
}

void attn_cut_blocks(struct attn_cut *cut, int64_t products, int64_t m, int64_t n,
                     int64_t m_block, int64_t n_block, int64_t grain)
{
    *cut = (struct attn_cut){ .products = products, .m = m, .n = n };
    cut->m_block = ceil_div(ceil_div(m, ceil_div(m, m_block)), 8) * 8;
    cut->m_blocks = ceil_div(m, cut->m_block);
    const int64_t blocks = ceil_div(n, max64(n_block, grain));
    set_columns(cut, ceil_div(ceil_div(n, blocks), grain) * grain);
    set_parts(cut, 1);
}

/* Whether the rows of the last part are few, and those of the block that it is of are not. */
static bool parts_differ(const struct attn_cut *cut, int64_t few_rows)
{
    const int64_t last = (cut->m - 1) % cut->m_block + 1, left = last % cut->m_part;
    return left >= 1 && left <= few_rows && left != last;
}

struct refining {
    const struct attn_cut_limits *limits;
    attn_cut_ns ns;
    const void *what;
    struct attn_cut best;
    double longest; /* thread, with that */
};

static void try_parts(struct refining *r, struct attn_cut *cut)
{
    const int64_t max =
        r->limits->whole_rows ? 1 : min64(MAX_PARTS, cut->m_block / MIN_PART);
    for (int64_t parts = 1; parts <= max64(1, max); parts++) {
        set_parts(cut, parts);
        const int64_t tasks = cut->products * cut->m_blocks * cut->n_blocks * cut->parts;
        const double ns = r->ns(cut, r->what), longest = op_longest_thread(tasks, ns);
        if (ns < (double)r->limits->min_ns || longest > 0.98 * r->longest ||
            parts_differ(cut, r->limits->few_rows))
            continue;
        r->best = *cut;
        r->longest = longest;
    }
    set_parts(cut, 1);
}

void attn_cut_refine(struct attn_cut *cut, const struct attn_cut_limits *limits,
                     attn_cut_ns ns, const void *what)
{
    const double rows = (double)cut->products * (double)cut->m_blocks;
    struct refining r = { limits, ns, what, *cut, 1e300 };
    while (rows * (double)cut->n_blocks < EVEN_TASKS) {
        try_parts(&r, cut);
        /* The most columns that make one block more. */
        const int64_t columns =
            (cut->n - 1) / cut->n_blocks / limits->grain * limits->grain;
        if (columns < limits->min_columns)
            break;
        set_columns(cut, columns);
        if (ns(cut, what) < (double)limits->min_ns)
            break;
    }
    *cut = r.best;
}

bool attn_cut_tasks(const struct attn_cut *cut, int64_t *n_tasks)
{
    return ck_mul(cut->products, cut->m_blocks, n_tasks) &&
           ck_mul(*n_tasks, cut->n_blocks, n_tasks) &&
           ck_mul(*n_tasks, cut->parts, n_tasks);
}

struct attn_cut_piece attn_cut_next(const struct attn_cut *cut, int64_t task, int64_t end,
                                    int64_t max_blocks)
{
    int64_t product = task;
    const int64_t part = op_take(&product, cut->parts),
                  block = op_take(&product, cut->n_blocks),
                  top = op_take(&product, cut->m_blocks) * cut->m_block;
    const int64_t parts = min64(end - task, cut->parts - part);
    int64_t blocks = 1;
    if (parts == cut->parts) {
        /* Equal parts instead of a last one of few columns. */
        const int64_t left = min64((end - task) / cut->parts, cut->n_blocks - block);
        blocks = ceil_div(left, ceil_div(left, max64(1, max_blocks)));
    }
    struct attn_cut_piece piece = { .product = product,
                                    .row = top + part * cut->m_part,
                                    .column = block * cut->n_block,
                                    .n_tasks = parts * blocks };
    const int64_t bottom =
        min64(cut->m, min64(top + cut->m_block, piece.row + parts * cut->m_part));
    piece.m = max64(0, bottom - piece.row);
    piece.n = min64(cut->n - piece.column, blocks * cut->n_block);
    return piece;
}
