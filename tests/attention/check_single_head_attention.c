/* check_single_head_attention.c - SingleHeadAttention against gated keys and values. */
#include "plain_softmax.h"

struct single {
    struct plain_sizes s;
    bool causal;
    const uint8_t *key_mask;
};

static int sees(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                double *score)
{
    const struct single *t = arg;
    (void)h;
    (void)score;
    return !(t->causal && j > i + t->s.kv_len - t->s.q_len) &&
           (t->key_mask == NULL || t->key_mask[b * t->s.kv_len + j] != 0);
}

static float *gated(const float *x, const float *gate, int64_t rows, int64_t width)
{
    float *y = malloc((size_t)(rows * width + 1) * sizeof *y);
    for (int64_t i = 0; i < rows * width; i++)
        y[i] = gate != NULL ? x[i] * gate[i % width] : x[i];
    return y;
}

static void random_case(struct check *c, struct single *t, int64_t heads)
{
    static const char *const names[] = { "q_gate", "k_gate", "v_gate" };
    struct plain_sizes *s = &t->s;
    const int64_t width = s->dim * heads;
    const float *gates[3] = { NULL, NULL, NULL };
    check_begin(c, "SingleHeadAttention");
    if (heads > 1 || check_chance(c, 30))
        check_int(c, "q_num_heads", heads);
    if (!t->causal || check_chance(c, 30))
        check_int(c, "is_causal", t->causal);
    s->scale = 1 / sqrt((double)s->dim);
    if (check_chance(c, 30)) {
        check_float(c, "scale", 0.25f);
        s->scale = 0.25;
    }
    const float *q = check_f32(c, "Q", 3, (const int64_t[]){ s->batch, s->q_len, width });
    const float *m =
        check_f32(c, "memory", 3, (const int64_t[]){ s->batch, s->kv_len, width });
    for (int i = 0; i < 3; i++) {
        if (check_chance(c, 60))
            gates[i] = check_weight(c, names[i], 1, (const int64_t[]){ width });
        else
            check_absent(c);
    }
    if (check_chance(c, 50))
        t->key_mask = check_mask(c, "key_mask", s->batch, s->kv_len);
    double *y = check_output(c, "Y", 3, (const int64_t[]){ s->batch, s->q_len, width });
    float *gq = gated(q, gates[0], s->batch * s->q_len, width),
          *gk = gated(m, gates[1], s->batch * s->kv_len, width),
          *gv = gated(m, gates[2], s->batch * s->kv_len, width);
    s->q_heads = s->kv_heads = heads;
    s->v_dim = s->dim;
    plain_softmax(s, gq, gk, gv, sees, t, y);
    check_run(c, CHECK_B);
    free(gq);
    free(gk);
    free(gv);
}

static void blank_case(struct check *c, int64_t n, int64_t width, int64_t gate)
{
    c->blank = true;
    check_begin(c, "SingleHeadAttention");
    check_f32(c, "Q", 3, (const int64_t[]){ 1, n, 512 });
    check_f32(c, "memory", 3, (const int64_t[]){ 1, n, width });
    check_f32(c, "q_gate", 1, (const int64_t[]){ gate });
    check_output(c, "Y", 3, (const int64_t[]){ 1, n, 512 });
}

void check_single_head_attention(struct check *c)
{
    CHECK_ROUNDS(c, 80)
    {
        const bool large = c->round % 10 == 0;
        struct single t = { .s = { .batch = check_between(c, 0, large ? 1 : 2),
                                   .q_len = check_between(c, 1, large ? 600 : 20),
                                   .kv_len = check_between(c, 0, large ? 600 : 40),
                                   .dim = check_between(c, 1, large ? 10 : 60) },
                            .causal = check_chance(c, 60) };
        random_case(c, &t, check_between(c, 1, 3));
    }
    blank_case(c, 16384, 512, 512);
    check_int(c, "q_num_heads", 8);
    check_extra_memory(c, 2 << 20);
    blank_case(c, 16384, 512, 512);
    check_int(c, "q_num_heads", 1);
    check_extra_memory(c, 2 << 20);
    blank_case(c, 5, 511, 512);
    check_refuses(c, ATTNRUN_E_SHAPE, "memory|head size|511");
    blank_case(c, 5, 512, 511);
    check_refuses(c, ATTNRUN_E_SHAPE, "q_gate|the width of Q");
    blank_case(c, 5, 512, 512);
    check_int(c, "q_num_heads", 7);
    check_refuses(c, ATTNRUN_E_SHAPE, "multiple of 7");
    blank_case(c, 5, 512, 512);
    check_int(c, "kv_num_heads", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "kv_num_heads");
    blank_case(c, 5, 512, 512);
    check_float(c, "scale", 0.0f);
    check_refuses(c, ATTNRUN_E_ATTR, "scale|0");
    c->blank = true;
    check_begin(c, "SingleHeadAttention");
    check_f32(c, "Q", 4, (const int64_t[]){ 1, 2, 5, 8 });
    check_f32(c, "memory", 4, (const int64_t[]){ 1, 2, 5, 8 });
    check_output(c, "Y", 4, (const int64_t[]){ 1, 2, 5, 8 });
    check_refuses(c, ATTNRUN_E_SHAPE, "rank 3");
}
