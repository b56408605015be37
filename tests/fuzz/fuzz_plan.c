/* fuzz_plan.c - blocks of random sizes and lifetimes, placed in an arena.
 *
 * usage: fuzz_plan [--seconds N] [--seed N] [--only N]
 *
 * A case is a seed: up to 300 blocks (in one of 500 cases up to 9,000) like those of networks, or
 * at random, some empty, some so large that their sum is no int64_t. It is wrong when
 *   - two blocks that are alive at one step overlap, or one is not in the arena or not aligned;
 *   - the arena is not as long as its blocks need, or longer than all of them, or the lower bound
 *     or its step is another one than counted here;
 *   - a sum over INT64_MAX is taken, or blocks that fit are refused;
 *   - the same blocks are placed elsewhere in a second run, or memory is held afterwards.
 * Cases run in child processes (children.h). Exit code 1 where one is a finding. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/harness.h"
#include "children.h"
#include "fuzz_random.h"
#include "offsets.h"

enum { MANY = 9000, UNIT = ATTN_ARENA_ALIGN };

static void one_case(struct fuzz_progress *progress);
static struct fuzz_cases cases = {
    .seconds = 20, .seed = 1, .bytes = sizeof(struct fuzz_progress), .one_case = one_case
};

struct plan_case {
    uint64_t seed;
    struct attn_block blocks[MANY], again[MANY];
    int64_t n;
    int32_t n_steps;
};

_Noreturn static void wrong(const struct plan_case *c, const char *what)
{
    fprintf(stderr, "seed %" PRIu64 ", %" PRId64 " blocks, %d steps: %s\n", c->seed, c->n,
            c->n_steps, what);
    abort();
}

/* ---- blocks ---- */

static int64_t make_bytes(struct fuzz_random *r, const int64_t sizes[5], int kind)
{
    if (kind == 0) /* like those of a network: one of a few sizes */
        return sizes[fuzz_below(r, 5)] * UNIT;
    if (kind == 1)
        return fuzz_below(r, 40) * UNIT; /* 0, too */
    if (kind == 2)
        return fuzz_below(r, INT64_C(1) << fuzz_below(r, 44)) * UNIT;
    return fuzz_chance(r, 10) ? INT64_MAX / UNIT * UNIT - fuzz_below(r, 4) * UNIT
                              : (fuzz_below(r, INT64_C(1) << 56)) * UNIT;
}

static void make_case(struct plan_case *c, struct fuzz_random *r)
{
    int64_t sizes[5];
    const int kind = fuzz_chance(r, 5) ? 3 : (int)fuzz_below(r, 3);
    const bool like_network = fuzz_chance(r, 60);
    c->n = fuzz_below(r, 500) == 0 ? fuzz_below(r, MANY) : fuzz_below(r, 300) + 1;
    if (fuzz_chance(r, 30))
        c->n = fuzz_below(r, 12);
    c->n_steps = 1 + (int32_t)(like_network ? c->n : fuzz_below(r, c->n + 20));
    for (int i = 0; i < 5; i++)
        sizes[i] = 1 + fuzz_below(r, 1000);
    for (int64_t i = 0; i < c->n; i++) {
        struct attn_block *b = &c->blocks[i];
        const int64_t first = like_network ? i : fuzz_below(r, c->n_steps);
        const int64_t more =
            fuzz_below(r, like_network && !fuzz_chance(r, 12) ? 3 : c->n_steps - first);
        const int64_t last = first + more;
        *b = (struct attn_block){ .bytes = make_bytes(r, sizes, kind),
                                  .first = (int32_t)first,
                                  .last = (int32_t)(last < c->n_steps ? last
                                                                      : c->n_steps - 1),
                                  .value = (int32_t)i };
        if (fuzz_chance(r, 10)) { /* the scratch of a step */
            b->last = b->first;
            b->value = -1;
        }
    }
}

/* ---- what must hold ---- */

static bool is_too_large(const struct plan_case *c)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < c->n; i++)
        if (__builtin_add_overflow(sum, c->blocks[i].bytes, &sum))
            return true;
    return false;
}

/* The bytes alive at each step, from what begins and ends there. */
static int64_t count_bound(const struct plan_case *c, int32_t *peak)
{
    int64_t *change = calloc((size_t)c->n_steps + 1, sizeof *change);
    int64_t alive = 0, bound = 0;
    if (change == NULL)
        wrong(c, "the fuzz itself has no memory left");
    for (int64_t i = 0; i < c->n; i++) {
        change[c->blocks[i].first] += c->blocks[i].bytes;
        change[c->blocks[i].last + 1] -= c->blocks[i].bytes;
    }
    *peak = 0;
    for (int32_t s = 0; s < c->n_steps; s++) {
        alive += change[s];
        if (alive > bound) {
            bound = alive;
            *peak = s;
        }
    }
    free(change);
    return bound;
}

/* Whether both have a byte at one place at one step: an empty block has none, wherever it is. */
static bool overlap(const struct attn_block *a, const struct attn_block *b)
{
    return a->bytes > 0 && b->bytes > 0 && a->first <= b->last && b->first <= a->last &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static int by_first(const void *x, const void *y)
{
    const struct attn_block *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

static void check_packing(struct plan_case *c, int64_t arena)
{
    int64_t highest = 0, sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const struct attn_block *b = &c->blocks[i];
        if (b->offset < 0 || b->offset % UNIT != 0 || b->offset > arena - b->bytes)
            wrong(c, "a block is not in the arena, or not aligned");
        highest = b->offset + b->bytes > highest ? b->offset + b->bytes : highest;
        sum += b->bytes;
    }
    if (highest != arena || arena > sum)
        wrong(c, "the arena is longer than its blocks need");
    qsort(c->blocks, (size_t)c->n, sizeof *c->blocks, by_first);
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t k = i + 1; k < c->n && c->blocks[k].first <= c->blocks[i].last; k++)
            if (overlap(&c->blocks[i], &c->blocks[k]))
                wrong(c, "two blocks overlap");
}

static attnrun_status pack(struct plan_case *c, struct attn_block *blocks, int64_t *arena,
                           int64_t *bound, int32_t *peak)
{
    struct test_memory counted;
    struct attn_memory_counts counts;
    test_memory_init(&counted);
    struct attn_memory *memory = attn_memory_create(&counted.allocator, 0);
    if (memory == NULL)
        wrong(c, "the fuzz itself has no memory left");
    const attnrun_status status =
        attn_pack_offsets(memory, blocks, c->n, c->n_steps, arena, bound, peak);
    attn_memory_counts(memory, &counts);
    if (counts.used_bytes != 0)
        wrong(c, "memory is held afterwards");
    attn_memory_destroy(memory);
    if (atomic_load(&counted.live_blocks) != 0 || atomic_load(&counted.faults) != 0)
        wrong(c, "memory is held, or a block was written behind its end");
    return status;
}

static void one_case(struct fuzz_progress *progress)
{
    static struct plan_case c;
    struct fuzz_random r = { progress->seed };
    int64_t arena = -1, bound = -1, arena_again = -1, bound_again = -1;
    int32_t peak = -1, peak_again = -1, peak_here;
    c.seed = progress->seed;
    make_case(&c, &r);
    memcpy(c.again, c.blocks, (size_t)c.n * sizeof *c.blocks);
    const bool large = is_too_large(&c);
    const attnrun_status status = pack(&c, c.blocks, &arena, &bound, &peak);
    if (status != ATTNRUN_OK && !large)
        wrong(&c, attnrun_last_error()->message);
    if (status != ATTNRUN_OK && status != ATTNRUN_E_LIMIT && status != ATTNRUN_E_MEMORY)
        wrong(&c, attnrun_status_name(status));
    if (pack(&c, c.again, &arena_again, &bound_again, &peak_again) != status)
        wrong(&c, "a second run gives another status");
    if (status == ATTNRUN_OK && !large) {
        if (arena_again != arena ||
            memcmp(c.again, c.blocks, (size_t)c.n * sizeof *c.blocks) != 0)
            wrong(&c, "a second run places blocks elsewhere");
        if (count_bound(&c, &peak_here) != bound || peak_here != peak || bound > arena)
            wrong(&c, "the lower bound is another one");
        check_packing(&c, arena);
    }
    progress->cases++;
    progress->good += status == ATTNRUN_OK;
    if (cases.only)
        printf("seed %" PRIu64 ": %" PRId64 " blocks, %d steps: %s, arena %" PRId64
               ", lower bound %" PRId64 "\n",
               c.seed, c.n, c.n_steps, attnrun_status_name(status), arena, bound);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!fuzz_take_option(&cases, argc, argv, &i)) {
            fprintf(stderr, "usage: fuzz_plan [--seconds N] [--seed N] [--only N]\n");
            return 2;
        }
    return fuzz_run_cases(&cases, 0);
}
