/* check_sparse_transformer_attention.c - the factorised patterns, pair by pair. */
#include "pattern.h"

struct sparse {
    int64_t stride, summary, verts, n;
    const char *patterns[8];
};

static const char *const names[] = { "local",         "strided",        "fixed_local",
                                     "fixed_summary", "strided_merged", "fixed" };

static int64_t floor_mod(int64_t a, int64_t b) { return (a % b + b) % b; }

static double count(const struct pattern *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct sparse *s = p->arg;
    const char *name = s->patterns[s->n == 1 ? 0 : h];
    const int64_t l = s->stride, at = i + p->kv_len - p->q_len, own = j % l;
    const int64_t end = l - h % s->verts * s->summary;
    const bool local = at - j < l && j - at < l;
    const bool strided = floor_mod(at - j, l) == 0;
    const bool block = at - floor_mod(at, l) == j - own;
    const bool summary = own >= end - s->summary && own < end;
    (void)b;
    return strcmp(name, "local") == 0           ? local
           : strcmp(name, "strided") == 0       ? strided
           : strcmp(name, "fixed_local") == 0   ? block
           : strcmp(name, "fixed_summary") == 0 ? summary
           : strcmp(name, "fixed") == 0         ? block || summary
                                                : local || strided;
}

static void build(struct check *c, struct pattern p, struct sparse *s, bool masked)
{
    check_begin(c, "SparseTransformerAttention");
    check_strings(c, "pattern", (int)s->n, s->patterns);
    check_int(c, "stride", s->stride);
    if (s->summary != 1 || check_chance(c, 50))
        check_int(c, "summary", s->summary);
    if (s->verts != 1)
        check_int(c, "num_verts", s->verts);
    if (!p.causal)
        check_int(c, "is_causal", 0);
    pattern_operands(c, &p);
    if (masked)
        p.mask = check_mask(c, "key_mask", p.batch, p.kv_len);
    p.arg = s;
    p.count = count;
    pattern_output(c, &p);
}

static void refusals(struct check *c)
{
    struct pattern p = { 1, 9, 9, 2, 2, 4, 4, .causal = true };
    struct sparse s = { 4, 1, 1, 1, { "diagonal" } };
    build(c, p, &s, false);
    check_refuses(c, ATTNRUN_E_ATTR, "pattern 'diagonal'|expected local");
    s = (struct sparse){ 4, 1, 1, 3, { "local", "local", "fixed" } };
    build(c, p, &s, false);
    check_refuses(c, ATTNRUN_E_ATTR, "pattern has 3 elements|1 or 2");
    s = (struct sparse){ 4, 5, 1, 1, { "fixed" } };
    build(c, p, &s, false);
    check_refuses(c, ATTNRUN_E_ATTR, "summary is 5|1 to 4");
    s = (struct sparse){ 4, 2, 3, 1, { "fixed" } };
    build(c, p, &s, false);
    check_refuses(c, ATTNRUN_E_ATTR, "num_verts is 3|1 to 2");
    check_begin(c, "SparseTransformerAttention");
    check_strings(c, "pattern", 1, s.patterns);
    pattern_operands(c, &p);
    check_heads_output(c, "Y", 1, 9, 2, 4);
    check_refuses(c, ATTNRUN_E_ATTR, "stride");
}

void check_sparse_transformer_attention(struct check *c)
{
    CHECK_ROUNDS(c, 90)
    {
        struct pattern p = pattern_sizes(c, c->round % 8 == 0 ? 900 : 130, false);
        struct sparse s = { .stride = check_between(c, 1, check_chance(c, 50) ? 12 : 90),
                            .summary = 1,
                            .verts = 1,
                            .n = check_chance(c, 60) ? 1 : p.q_heads };
        if (check_chance(c, 60))
            s.summary = check_between(c, 1, s.stride);
        if (check_chance(c, 40))
            s.verts = check_between(c, 1, s.stride / s.summary);
        for (int i = 0; i < s.n; i++)
            s.patterns[i] = names[(c->round + i) % 6];
        p.causal = check_chance(c, 60);
        build(c, p, &s, check_chance(c, 50));
        check_run(c, CHECK_A);
    }
    refusals(c);
    for (int i = 0; i < 6; i++) {
        struct pattern large = { 1, 16384, 16384, 8, 8, 64, 64, .causal = true };
        struct sparse s = { 128, 16, 1, 1, { names[i] } };
        c->blank = true;
        build(c, large, &s, false);
        check_extra_memory(c, 2 << 20);
        c->blank = false;
    }
}
