/* check_luong_attention.c - LuongAttention against its formula. */
#include "single_head.h"

enum { GLOBAL, LOCAL_M, LOCAL_P };

struct local {
    int mode, at; /* at 1: gaussian before */
    int64_t window, offset;
    bool gaussian, concat;
    double sigma;
    const float *pos;
};

static const char *const modes[] = { "global", "local_m", "local_p" };

static double plain_score(const struct single_head *u, int64_t b, int64_t i, int64_t j)
{
    double s = 0;
    for (int64_t d = 0; d < u->units; d++) {
        const double q = (double)u->q[(b * u->q_len + i) * u->units + d];
        const double k = (double)u->k[(b * u->kv_len + j) * u->units + d];
        s += u->form != 0 ? (double)u->v[d] * tanh(q + k) : q * k;
    }
    return s * u->scale;
}

/* Keys that the window shows; the gaussian of a key. */
static double bell(const struct local *l, const struct single_head *u, int64_t b,
                   int64_t i, int64_t j, bool *seen)
{
    int64_t len = 0;
    while (len < u->kv_len && (u->mask == NULL || u->mask[b * u->kv_len + len] != 0))
        len++;
    const double p = l->mode == LOCAL_M ? (double)(i + l->offset)
                                        : (double)len * (double)l->pos[b * u->q_len + i];
    *seen = j < len && fabs((double)j - floor(p)) <= (double)l->window;
    const double x = ((double)j - p) / l->sigma;
    return l->gaussian ? exp(-x * x / 2) : 1;
}

static void local_row(const struct local *l, const struct single_head *u, int64_t b,
                      int64_t i, double *p)
{
    double max = -HUGE_VAL, sum = 0;
    bool seen;
    for (int64_t j = 0; j < u->kv_len; j++) {
        const double g = bell(l, u, b, i, j, &seen);
        p[j] = seen ? plain_score(u, b, i, j) * (l->at ? g : 1) : -HUGE_VAL;
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < u->kv_len; j++)
        sum += p[j] = p[j] == -HUGE_VAL ? 0 : exp(p[j] - max);
    for (int64_t j = 0; j < u->kv_len && sum > 0; j++)
        p[j] *= (l->at ? 1 : bell(l, u, b, i, j, &seen)) / sum;
}

static void local_outputs(struct check *c, const struct local *l,
                          const struct single_head *u, bool weights)
{
    double *y = check_output(c, "Y", DIMS(u->batch, u->q_len, u->v_dim)), p[1024];
    double *w =
        weights ? check_output(c, "weights", DIMS(u->batch, u->q_len, u->kv_len)) : NULL;
    for (int64_t row = 0; !c->blank && row < u->batch * u->q_len; row++) {
        local_row(l, u, row / u->q_len, row % u->q_len, p);
        single_head_sum(u, row / u->q_len, p, y + row * u->v_dim);
        for (int64_t j = 0; w != NULL && j < u->kv_len; j++)
            w[row * u->kv_len + j] = p[j];
    }
}

/* The true ones first. */
static const uint8_t *prefix_mask(struct check *c, const struct single_head *u)
{
    uint8_t *mask = check_data(c, "key_mask", ATTNRUN_BOOL, DIMS(u->batch, u->kv_len));
    for (int64_t b = 0; b < u->batch; b++) {
        const int64_t len = check_between(c, 0, u->kv_len);
        for (int64_t j = 0; j < u->kv_len; j++)
            mask[b * u->kv_len + j] = j < len;
    }
    return mask;
}

static void attributes(struct check *c, struct local *l, struct single_head *u)
{
    if (l->concat)
        check_string(c, "score", "concat");
    if (l->mode != GLOBAL || check_chance(c, 30))
        check_string(c, "mode", modes[l->mode]);
    u->scale = 1;
    if (check_chance(c, 40)) {
        check_float(c, "scale", 0.25f);
        u->scale = 0.25;
    }
    if (l->mode == GLOBAL)
        return;
    if (l->window != 10 || check_chance(c, 30))
        check_int(c, "window", l->window);
    l->gaussian = l->mode == LOCAL_P;
    if (check_chance(c, 50)) {
        l->gaussian = check_chance(c, 50);
        check_int(c, "gaussian", l->gaussian);
    }
    l->sigma = (double)l->window / 2;
    if (l->window == 0 || check_chance(c, 30)) {
        l->sigma = 0.75;
        check_float(c, "sigma", 0.75f);
    }
    l->at = check_chance(c, 40);
    if (l->at)
        check_string(c, "gaussian_at", "before");
    if (l->mode == LOCAL_M && check_chance(c, 50)) {
        l->offset = check_between(c, -9, 30);
        check_int(c, "step_offset", l->offset);
    }
}

static const float *positions(struct check *c, const struct single_head *u)
{
    float *pos = check_f32(c, "pos", DIMS(u->batch, u->q_len));
    for (int64_t i = 0; i < u->batch * u->q_len; i++)
        pos[i] = (float)check_below(c, 100001) / 100000.0f;
    return pos;
}

/* q_len, kv_len, units, batch of `u` are set. */
static void build(struct check *c, struct single_head *u, struct local *l, int64_t v_dim)
{
    check_begin(c, "LuongAttention");
    attributes(c, l, u);
    float *q = check_f32(c, "query", DIMS(u->batch, u->q_len, u->units));
    u->q = q;
    u->k = check_f32(c, "keys", DIMS(u->batch, u->kv_len, u->units));
    for (int64_t i = 0; !c->blank && i < u->batch * u->q_len * u->units; i++)
        q[i] /= sqrtf((float)u->units);
    single_head_values(c, u, v_dim);
    u->score = plain_score;
    u->form = l->concat;
    if (l->mode == LOCAL_P)
        l->pos = positions(c, u);
    else
        check_absent(c);
    if (l->concat)
        u->v = check_weight(c, "v", DIMS(u->units));
    else
        check_absent(c);
    u->mask = NULL;
    const bool weights = check_chance(c, 50);
    if (check_chance(c, 50))
        u->mask = l->mode == GLOBAL ? check_mask(c, "key_mask", u->batch, u->kv_len)
                                    : prefix_mask(c, u);
    if (l->mode == GLOBAL)
        single_head_outputs(c, u, false, weights);
    else
        local_outputs(c, l, u, weights);
    if (l->mode != GLOBAL || l->concat || weights) /* else it is a stream, as Attention */
        single_head_hide(c, u, 2);
    c->no_twin = true;
}

static void plain(struct check *c, int mode, bool concat)
{
    struct single_head u = { .batch = 2, .q_len = 3, .kv_len = 6, .units = 4 };
    struct local l = { .mode = mode, .concat = concat, .window = 10 };
    do {
        build(c, &u, &l, 5);
    } while (c->n_attrs != (mode != GLOBAL) + concat); /* defaults */
}

static void refusals(struct check *c)
{
    plain(c, LOCAL_P, false);
    check_leave_out(c, 3);
    check_refuses(c, ATTNRUN_E_ATTR, "local_p|pos");
    plain(c, GLOBAL, true);
    check_leave_out(c, 4);
    check_refuses(c, ATTNRUN_E_ATTR, "concat|(v) is absent");
    plain(c, LOCAL_M, false);
    check_int(c, "gaussian", 1);
    check_float(c, "sigma", -1.0f);
    check_refuses(c, ATTNRUN_E_ATTR, "sigma is -1");
    plain(c, GLOBAL, false); /* refused where it is not used, too */
    check_float(c, "sigma", -2.0f);
    check_refuses(c, ATTNRUN_E_ATTR, "sigma is -2|more than 0");
    plain(c, LOCAL_P, false);
    check_int(c, "window", 0);
    check_refuses(c, ATTNRUN_E_ATTR, "sigma is 0");
    plain(c, LOCAL_M, false);
    check_int(c, "window", -1);
    check_refuses(c, ATTNRUN_E_ATTR, "window is -1");
    plain(c, GLOBAL, false);
    check_float(c, "scale", 0.0f);
    check_refuses(c, ATTNRUN_E_ATTR, "scale is 0");
    plain(c, GLOBAL, false);
    check_int(c, "gaussian", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "gaussian|global");
    plain(c, GLOBAL, false);
    check_string(c, "mode", "local");
    check_refuses(c, ATTNRUN_E_ATTR, "mode|local");
    plain(c, LOCAL_P, false);
    c->in[3].dims[1] = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "pos|expected 3");
    do {
        plain(c, LOCAL_M, false);
    } while (c->n_in < 6);
    ((uint8_t *)c->in[5].data)[6] = 0;
    ((uint8_t *)c->in[5].data)[11] = 1;
    check_refuses(c, ATTNRUN_E_RANGE, "key_mask [1,|must come first");
}

void check_luong_attention(struct check *c)
{
    CHECK_ROUNDS(c, 100)
    {
        const bool long_ones = c->round % 8 == 0;
        struct single_head u = { .batch = check_between(c, 0, 3),
                                 .q_len = check_between(c, 0, long_ones ? 150 : 9),
                                 .kv_len = check_between(c, 0, long_ones ? 600 : 40),
                                 .units = check_between(c, 1, 30) };
        struct local l = { .mode = (int)check_below(c, 3),
                           .concat = check_chance(c, 40) };
        l.window = check_chance(c, 30) ? 10 : check_between(c, 0, long_ones ? 400 : 12);
        build(c, &u, &l, check_between(c, 1, 20));
        check_run(c, CHECK_A);
    }
    refusals(c);
    for (int mode = GLOBAL; mode <= LOCAL_P; mode++) {
        c->blank = true;
        struct single_head u = {
            .batch = 1, .q_len = 16384, .kv_len = 16384, .units = 256
        };
        struct local l = { .mode = mode, .window = 128 };
        build(c, &u, &l, 64);
        /* without weights the global form streams in blocks of 1,024 queries */
        check_extra_memory(c, mode == GLOBAL ? 4 << 20 : 2 << 20);
        c->blank = false;
    }
}
