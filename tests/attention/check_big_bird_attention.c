/* check_big_bird_attention.c - BigBirdAttention against its lists of blocks. */
#include "pattern.h"

struct big_bird {
    int64_t block, blocks, lists, random;
    int64_t *rand; /* (lists, blocks - 2, random), or NULL */
};

static double count(const struct pattern *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct big_bird *s = p->arg;
    const int64_t own = i / s->block, key = j / s->block, last = s->blocks - 1;
    (void)b;
    if (own == 0 || own == last)
        return 1;
    double n = key == 0 || key == last || (key >= own - 1 && key <= own + 1);
    const int64_t list = (s->lists == 1 ? 0 : h) * (s->blocks - 2) + own - 1;
    for (int64_t r = 0; r < s->random; r++)
        n += s->rand[list * s->random + r] == key;
    return n;
}

static void build(struct check *c, struct pattern p, struct big_bird *s, bool masked)
{
    check_begin(c, "BigBirdAttention");
    pattern_operands(c, &p);
    check_int(c, "block_size", s->block);
    s->blocks = (p.q_len + s->block - 1) / s->block;
    s->rand = NULL;
    if (s->random > 0 && s->blocks >= 2) {
        s->rand = check_data(c, "rand_blocks", ATTNRUN_I64,
                             DIMS(s->lists, s->blocks - 2, s->random));
        for (int64_t i = 0; i < s->lists * (s->blocks - 2) * s->random; i++)
            s->rand[i] = check_below(c, check_chance(c, 50) ? s->blocks : 1);
        if (check_chance(c, 50))
            check_constant(c);
    } else if (masked) {
        check_absent(c);
    }
    if (masked)
        p.mask = check_mask(c, "key_mask", p.batch, p.kv_len);
    p.arg = s;
    p.count = count;
    p.zero_masked_queries = true;
    pattern_output(c, &p);
}

static void refusals(struct check *c)
{
    struct pattern p = { 1, 40, 40, 2, 2, 4, 4, .causal = false };
    struct big_bird s = { 8, 0, 1, 2, NULL };
    build(c, p, &s, false);
    s.rand[3] = 5;
    check_refuses(c, ATTNRUN_E_RANGE, "rand_blocks|holds 5|0 to 4");
    build(c, p, &s, false);
    s.rand[0] = -1;
    check_refuses(c, ATTNRUN_E_RANGE, "rand_blocks|holds -1");
    build(c, p, &s, false);
    check_int(c, "is_causal", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "is_causal|never");
    s.lists = 3;
    build(c, p, &s, false);
    check_refuses(c, ATTNRUN_E_SHAPE, "rand_blocks|dim 0 is 3|1 or 2");
    s.lists = 1;
    build(c, p, &s, false);
    c->in[3].dims[1] = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "rand_blocks|the blocks except");
    s.block = 0;
    s.random = 0;
    check_begin(c, "BigBirdAttention");
    pattern_operands(c, &p);
    check_int(c, "block_size", 0);
    check_heads_output(c, "Y", 1, 40, 2, 4);
    check_refuses(c, ATTNRUN_E_ATTR, "block_size is 0|expected 1");
    p.q_len = p.kv_len = 32;
    s.block = 8;
    build(c, p, &s, false);
    check_refuses(c, ATTNRUN_E_SHAPE, "32 tokens|4 blocks of 8|at least 5 blocks");
    p.kv_len = 31;
    s.random = 0;
    build(c, p, &s, false);
    check_refuses(c, ATTNRUN_E_SHAPE, "length");
}

void check_big_bird_attention(struct check *c)
{
    struct big_bird s;
    CHECK_ROUNDS(c, 60)
    {
        struct pattern p = pattern_sizes(c, c->round % 8 == 0 ? 900 : 160, true);
        p.q_len = p.kv_len += 4;
        s = (struct big_bird){ .block = check_between(c, 1, (p.q_len - 1) / 4) };
        s.random = check_chance(c, 30) ? 0 : check_between(c, 1, 4);
        s.lists = check_chance(c, 50) ? 1 : p.q_heads;
        build(c, p, &s, check_chance(c, 60));
        check_run(c, CHECK_A);
    }
    refusals(c);
    struct pattern large = { 1, 16384, 16384, 8, 8, 64, 64, .causal = false };
    s = (struct big_bird){ 64, 0, 8, 3, NULL };
    c->blank = true;
    build(c, large, &s, false);
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}
