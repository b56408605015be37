/* check_local_attention.c - LocalAttention against its set of keys, index by index. */
#include "plain_softmax.h"

enum { HEADS = 6 };

struct local {
    struct plain_sizes s;
    bool causal;
    int64_t left[HEADS], right[HEADS], dilation[HEADS], num_global;
    const uint8_t *key_mask, *global_mask;
};

static bool is_global(const struct local *l, int64_t b, int64_t j)
{
    return j < l->num_global ||
           (l->global_mask != NULL && l->global_mask[b * l->s.kv_len + j] != 0);
}

static int sees(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                double *score)
{
    const struct local *l = arg;
    const int64_t p = i + l->s.kv_len - l->s.q_len, d = l->dilation[h], t = (j - p) / d;
    bool seen = (j - p) % d == 0 && (l->left[h] < 0 || t >= -l->left[h]) &&
                (l->right[h] < 0 || t <= l->right[h]);
    (void)score;
    seen = seen || is_global(l, b, j) || (p >= 0 && is_global(l, b, p));
    if (l->key_mask != NULL && l->key_mask[b * l->s.kv_len + j] == 0)
        seen = false;
    return seen && !(l->causal && j > p);
}

static void random_ints(struct check *c, const char *name, int64_t *to, int64_t heads,
                        int64_t min, int64_t max, bool per_head)
{
    for (int h = 0; h < HEADS; h++)
        to[h] = h > 0 && !per_head ? to[0] : check_between(c, min, max);
    if (name != NULL)
        check_ints(c, name, per_head ? (int)heads : 1, to);
}

/* Attributes, as they are given or left out. */
static void set_windows(struct check *c, struct local *l)
{
    const int64_t max = check_chance(c, 60) ? 6 : check_between(c, 7, 200);
    random_ints(c, "left_window", l->left, l->s.q_heads, -1, max, check_chance(c, 40));
    memcpy(l->right, l->left, sizeof l->right);
    if (check_chance(c, 60))
        random_ints(c, "right_window", l->right, l->s.q_heads, -1, max,
                    check_chance(c, 40));
    for (int h = 0; h < HEADS; h++)
        l->dilation[h] = 1;
    if (check_chance(c, 60))
        random_ints(c, "dilation", l->dilation, l->s.q_heads, 1,
                    check_chance(c, 80) ? 7 : 500, check_chance(c, 50));
}

static void local_case(struct check *c, struct local *l, bool masks)
{
    struct plain_sizes *s = &l->s;
    check_begin(c, "LocalAttention");
    check_heads_attrs(c, s->q_heads, s->kv_heads);
    s->scale = 1 / sqrt((double)s->dim);
    if (check_chance(c, 30)) {
        check_float(c, "scale", 0.4f);
        s->scale = (double)0.4f;
    }
    l->causal = check_chance(c, 40);
    if (l->causal)
        check_int(c, "is_causal", 1);
    set_windows(c, l);
    if (l->num_global > 0)
        check_int(c, "num_global", l->num_global);
    const float *q = check_heads(c, "Q", s->batch, s->q_len, s->q_heads, s->dim);
    const float *k = check_heads(c, "K", s->batch, s->kv_len, s->kv_heads, s->dim);
    const float *v = check_heads(c, "V", s->batch, s->kv_len, s->kv_heads, s->v_dim);
    if (masks && check_chance(c, 70))
        l->key_mask = check_mask(c, "key_mask", s->batch, s->kv_len);
    else if (masks)
        check_absent(c);
    if (masks && s->q_len == s->kv_len && check_chance(c, 60))
        l->global_mask = check_mask(c, "global_mask", s->batch, s->kv_len);
    double *y = check_heads_output(c, "Y", s->batch, s->q_len, s->q_heads, s->v_dim);
    plain_softmax(s, q, k, v, sees, l, y);
    check_run(c, CHECK_A);
}

static void random_cases(struct check *c)
{
    CHECK_ROUNDS(c, 120)
    {
        const bool large = c->round % 10 == 0;
        struct local l = { .s = { .batch = check_between(c, 0, 2),
                                  .q_len = check_between(c, 0, large ? 700 : 40),
                                  .kv_heads = check_between(c, 1, 3),
                                  .dim = check_between(c, 1, large ? 8 : 40),
                                  .v_dim = check_between(c, 0, large ? 8 : 40) } };
        l.s.q_heads = l.s.kv_heads * check_between(c, 1, 2);
        l.s.kv_len = l.s.q_len;
        if (check_chance(c, 40))
            l.s.kv_len = check_between(c, 0, large ? 700 : 60);
        if (check_chance(c, 30))
            l.num_global = check_between(c, 0, 5);
        local_case(c, &l, check_chance(c, 60));
    }
    /* Blocks of more than one group, so that tiles are packed. */
    CHECK_ROUNDS(c, 12)
    {
        const int64_t n = check_between(c, 256, 600);
        struct local l = { .s = { 2, n, n, 6, 3, 3, 2, 0 } };
        l.num_global = c->round == 1 ? 300 : 0;
        local_case(c, &l, c->round > 0);
    }
}

static void blank_case(struct check *c, int64_t n, int64_t kv)
{
    c->blank = true;
    check_begin(c, "LocalAttention");
    check_int(c, "q_num_heads", 8);
    check_heads(c, "Q", 1, n, 8, 64);
    check_heads(c, "K", 1, kv, 8, 64);
    check_heads(c, "V", 1, kv, 8, 64);
    check_heads_output(c, "Y", 1, n, 8, 64);
}

static void refuse_ints(struct check *c, const char *name, int n, const int64_t *values,
                        const char *words)
{
    blank_case(c, 5, 5);
    if (strcmp(name, "left_window") != 0)
        check_ints(c, "left_window", 1, (const int64_t[]){ 2 });
    check_ints(c, name, n, values);
    check_refuses(c, ATTNRUN_E_ATTR, words);
}

void check_local_attention(struct check *c)
{
    random_cases(c);
    blank_case(c, 16384, 16384);
    check_ints(c, "left_window", 1, (const int64_t[]){ 256 });
    check_mask(c, "key_mask", 1, 16384);
    check_mask(c, "global_mask", 1, 16384);
    check_extra_memory(c, 2 << 20);
    refuse_ints(c, "left_window", 1, (const int64_t[]){ -2 }, "left_window|-2");
    refuse_ints(c, "right_window", 2, (const int64_t[]){ 1, 2 },
                "right_window|2 elements|8");
    refuse_ints(c, "dilation", 1, (const int64_t[]){ 0 }, "dilation|0");
    blank_case(c, 5, 5);
    check_refuses(c, ATTNRUN_E_ATTR, "left_window");
    blank_case(c, 5, 5);
    check_ints(c, "left_window", 1, (const int64_t[]){ 2 });
    check_int(c, "num_global", -1);
    check_refuses(c, ATTNRUN_E_ATTR, "num_global|-1");
    blank_case(c, 5, 7);
    check_ints(c, "left_window", 1, (const int64_t[]){ 2 });
    check_absent(c);
    check_mask(c, "global_mask", 1, 7);
    check_refuses(c, ATTNRUN_E_SHAPE, "length|7");
    blank_case(c, 5, 5);
    check_ints(c, "left_window", 1, (const int64_t[]){ 2 });
    check_mask(c, "key_mask", 1, 6);
    check_refuses(c, ATTNRUN_E_SHAPE, "key_mask|number of keys");
    blank_case(c, 5, 5);
    check_ints(c, "left_window", 1, (const int64_t[]){ 2 });
    check_int(c, "stride", 2);
    check_refuses(c, ATTNRUN_E_ATTR, "stride");
}
