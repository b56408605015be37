/* gemm_loops.h - C = epilogue(A B) by blocks: groups of up to ATTN_GEMM_WIDE columns,
 * blocks of K, panels of NR columns, tiles of MR rows.
 *
 * In: gemm_tiles.h, and by the file that includes this one
 *   depth_of(g)      words of K
 *   stored_bytes(g)  bytes of a word of a packed B in memory; 0: it is not prefetched
 *   find_panel()     a panel of a block of B: in place, or in scratch
 *   find_rows()      a block of A: in place, or in scratch
 *   multiply_tile()  m rows and `width` columns, as tiles[][] do
 * Out: run_groups().
 *
 * A panel of B of one block of K (48 KiB) stays in a near cache while the rows of A are
 * read; a block of A stays in L2 for the group. The sums of the first blocks of K stay in
 * scratch; the last block runs the epilogue. An element is the sum of its blocks, each
 * summed from zero in the order of k, so no element depends on its tile. */
#ifndef ATTN_GEMM_LOOPS_H
#define ATTN_GEMM_LOOPS_H

#include "gemm_tiles.h"

/* The first steps of the epilogue, if they are a bias and a matrix of rows. The first
 * block of K begins with them, which costs nothing. */
struct addends {
    const float *bias;                /* or NULL */
    const struct attn_epilogue *rows; /* or NULL */
    int n;                            /* steps of the epilogue that these are */
};

static struct addends find_addends(const struct attn_gemm_f32 *g, bool whole_panel)
{
    struct addends found = { NULL, NULL, 0 };
    for (int e = 0; whole_panel && !g->accumulate && e < g->n_epilogue; e++) {
        const struct attn_epilogue *step = &g->epilogue[e];
        if (step->kind != ATTN_EPI_ADD || step->col != 1 || step->alpha != 1.0f)
            break;
        if (step->row == 0 && found.bias == NULL)
            found.bias = step->data;
        else if (step->row != 0 && found.rows == NULL)
            found.rows = step;
        else
            break;
        found.n++;
    }
    return found;
}

/* Finds what the first block of K adds its products to. */
static void begin_sum(const struct attn_gemm_f32 *g, const struct addends *addends,
                      struct tile *t, size_t i, size_t m, size_t j, bool direct)
{
    const struct attn_epilogue *rows = addends->rows;
    t->sum = NULL;
    if (addends->bias != NULL)
        t->bias = addends->bias + j;
    if (rows != NULL) {
        t->sum = rows->data + (ptrdiff_t)i * rows->row + j;
        t->sum_row = rows->row;
        if (t->k >= FETCH_K)
            fetch_rows(t, t->sum, t->sum_row, m);
    } else if (direct && g->accumulate) {
        t->sum = g->c + (ptrdiff_t)i * g->c_row + j;
        t->sum_row = g->c_row;
    }
}

/* Adds one block of K to all rows of C for columns j … j + n - 1, and keeps the sums
 * before it. False where the call must end. */
static bool add_block(const struct attn_gemm_f32 *g, struct block block, float *sums,
                      size_t j, size_t n)
{
    const size_t width = n <= VF ? VF : NR, n_tiles = (g->m + TILE_ROWS - 1) / TILE_ROWS;
    const struct addends addends = find_addends(g, n == width);
    const bool direct = block.last && n == width && addends.n == g->n_epilogue &&
                        (block.first || !g->accumulate);
    struct tile t; /* `fetch` does not change */
    t.a_row = block.a_row;
    t.a_col = block.a_col;
    t.k = block.k;
    t.next = NULL;
    t.next_lines = 0;
    t.a_strip = 1;
    t.half = NULL;
    find_panel(g, &t, block, j, n);
    /* The next panel of weights comes from memory while this one is used. */
    const size_t lines = block.k * width * stored_bytes(g) / LINE;
    const size_t strips = n_tiles * (block.k / STRIP);
    if (block.next != NULL && strips > 0)
        t.next_lines = (int)((lines + strips - 1) / strips);
    for (size_t tile = 0, next_i = 0; tile < n_tiles; tile++) {
        const size_t i = next_i, m = rows_of_tile(i, g->m);
        next_i += m;
        t.a = block.a + (ptrdiff_t)i * block.a_row;
        if (block.a_packed)
            t.a_col = (ptrdiff_t)m;
        if (block.next != NULL)
            t.next = block.next + tile * (block.k / STRIP) * (size_t)t.next_lines * LINE;
        t.n_fetch = 0;
        t.bias = NULL;
        t.sum = sums + i * NR;
        t.sum_row = NR;
        t.sum_kept = !block.first;
        if (block.first)
            begin_sum(g, &addends, &t, i, m, j, direct);
        t.kept = !direct && (!block.first || t.sum == NULL);
        t.out = direct ? g->c + (ptrdiff_t)i * g->c_row + j : sums + i * NR;
        t.out_row = direct ? g->c_row : NR;
        if (block.last && block.k >= FETCH_K)
            fetch_c(&t, g, addends.n, i, m, j);
        if (g->prefetch != NULL && block.next == NULL) {
            t.next = NULL;
            t.next_lines = 0;
            prefetch_listed(&t, g->prefetch);
        }
        multiply_tile(&t, m, width);
        if (block.last && !direct)
            finish(g, sums + i * NR, addends.n, i, m, j, n);
        if (attn_poll_work((int64_t)(m * width * (block.k / 5 + 4))) != ATTNRUN_OK)
            return false;
    }
    return attn_poll_work((int64_t)(4 * width * block.k)) == ATTNRUN_OK; /* of B */
}

/* Where packed weights are prefetched from while rows k0 … of panel j are multiplied: the panel
 * and block that come next; or, where few rows wait for memory, those a little ahead, which come in
 * time and in the order in which memory gives them fastest. NULL: nothing. */
static const char *prefetched(const struct attn_gemm_f32 *g, size_t j, size_t k0,
                              size_t next_j, size_t next_k)
{
    const size_t depth = depth_of(g), bytes = stored_bytes(g);
    if (!g->packed || g->packed_k != 0 || bytes == 0)
        return NULL;
    if (g->m <= FEW_ROWS)
        return (const char *)g->b + (j * depth + k0 * NR) * bytes + BYTES_AHEAD;
    return next_j < g->n ? (const char *)g->b + (next_j * depth + next_k * NR) * bytes
                         : NULL;
}

/* Computes columns j … j + n - 1: a block of A is read once for all of them. False where
 * the call must end. */
static bool run_group(const struct attn_gemm_f32 *g, size_t j, size_t n)
{
    const size_t depth = depth_of(g);
    const size_t n_blocks = depth > K_BLOCK ? (depth + K_BLOCK - 1) / K_BLOCK : 1;
    const size_t steps = (depth + K_STEP - 1) / K_STEP, rows = attn_gemm_rows(g->m);
    float *const sums = g->scratch + (size_t)(KC + 16) * rows + (size_t)KC * NR;
    for (size_t i = 0; i < n_blocks; i++) {
        struct block block = { .k0 = steps * i / n_blocks * K_STEP,
                               .first = i == 0,
                               .last = i + 1 == n_blocks };
        const size_t end = block.last ? depth : steps * (i + 1) / n_blocks * K_STEP;
        block.k = end - block.k0;
        find_rows(g, &block);
        for (size_t p = 0; p < n; p += NR) {
            bool last_panel = p + NR >= n;
            size_t next_j = j + (!last_panel ? p + NR : block.last ? n : 0);
            size_t next_k = !last_panel ? block.k0 : block.last ? 0 : block.k0 + block.k;
            block.next = prefetched(g, j + p, block.k0, next_j, next_k);
            if (!add_block(g, block, n_blocks > 1 ? sums + p * rows : sums, j + p,
                           n - p < NR ? n - p : NR))
                return false;
        }
    }
    return true;
}

/* Computes all columns of C. */
static void run_groups(const struct attn_gemm_f32 *g)
{
    const size_t step = g->m > ATTN_GEMM_FEW_ROWS ? ATTN_GEMM_WIDE : NR;
    for (size_t j = 0; j < g->n; j += step)
        if (!run_group(g, j, g->n - j < step ? g->n - j : step))
            return;
}

#endif
