/* test_cut.c - random products, cut into tasks as matrix products are: pieces of random ranges of
 * the tasks cover each element of C once, a small cut does not leave the last part few rows, and 8
 * threads share what they can. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ops/matmul/cut.h"

static uint64_t state = 0x9e3779b97f4a7c15u;
static int64_t below(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(state >> 33) % n;
}

static double ns_of(const struct attn_cut *cut, const void *each)
{
    return *(const double *)each * (double)min64(cut->m, cut->m_part) *
           (double)min64(cut->n, cut->n_block);
}

static unsigned char seen[1 << 20];

static void fail(const char *what, const struct attn_cut *c)
{
    printf("%s: %lld products of %lld x %lld, blocks of %lld (parts of %lld) x %lld\n",
           what, (long long)c->products, (long long)c->m, (long long)c->n,
           (long long)c->m_block, (long long)c->m_part, (long long)c->n_block);
    exit(1);
}

static void mark(const struct attn_cut *c, const struct attn_cut_piece *p)
{
    if (p->m == 0) /* behind the last row */
        return;
    if (p->product >= c->products || p->row + p->m > c->m || p->column + p->n > c->n)
        fail("a piece is beyond C", c);
    for (int64_t i = p->row; i < p->row + p->m; i++)
        for (int64_t j = p->column; j < p->column + p->n; j++)
            if (seen[(p->product * c->m + i) * c->n + j]++ != 0)
                fail("an element is in two pieces", c);
}

static int64_t cover(const struct attn_cut *c)
{
    int64_t n_tasks, n_products = 0;
    if (!attn_cut_tasks(c, &n_tasks))
        fail("too many tasks", c);
    memset(seen, 0, sizeof seen);
    for (int64_t begin = 0, end; begin < n_tasks; begin = end) {
        end = begin + 1 + below(n_tasks - begin);
        for (int64_t task = begin, most = 1 + below(9); task < end; n_products++) {
            const struct attn_cut_piece p = attn_cut_next(c, task, end, most);
            if (p.n_tasks < 1 || p.n_tasks > end - task)
                fail("a piece is of no task, or of others", c);
            mark(c, &p);
            task += p.n_tasks;
        }
    }
    for (int64_t i = 0; i < c->products * c->m * c->n; i++)
        if (seen[i] != 1)
            fail("an element is in no piece", c);
    return n_products;
}

int main(void)
{
    int64_t n_products = 0, n_parts = 0;
    for (int round = 0; round < 3000; round++) {
        struct attn_cut cut;
        const double each = 0.5 + (double)below(100);
        const int64_t grain = INT64_C(1) << below(6), m = 1 + below(400);
        const struct attn_cut_limits limits = { .grain = grain,
                                                .min_columns = grain,
                                                .whole_rows = below(4) == 0,
                                                .few_rows = below(9),
                                                .min_ns = 3000 };
        attn_cut_blocks(&cut, 1 + below(4), m, 1 + below(600), 8 << below(6),
                        1 + below(300), grain);
        attn_cut_refine(&cut, &limits, ns_of, &each);
        const int64_t last = (m - 1) % cut.m_block + 1, left = last % cut.m_part;
        if (cut.parts > 1 &&
            (limits.whole_rows || (left >= 1 && left <= limits.few_rows && left != last)))
            fail("a part is too small", &cut);
        n_parts += cut.parts > 1;
        n_products += cover(&cut);
    }
    struct attn_cut cut; /* a layer of MiniLM with 128 tokens */
    const struct attn_cut_limits limits = { 32, 32, false, 0, 3000 };
    int64_t n_tasks;
    attn_cut_blocks(&cut, 1, 128, 384, 128, 64, 32);
    attn_cut_refine(&cut, &limits, ns_of, &(const double){ 5 });
    if (!attn_cut_tasks(&cut, &n_tasks) || n_tasks % 8 != 0 || n_parts == 0)
        fail("8 threads do not share it evenly", &cut);
    printf("%lld products, %lld shapes in parts\n", (long long)n_products,
           (long long)n_parts);
    return 0;
}
