/* check_cbam.c - CBAM against its formula. */
#include "operator_harness.h"
#include "map_words.h"

enum { MAX_CHANNELS = 640, MAX_PIXELS = 4096 };

struct cbam {
    int64_t batch, c, h, w, hidden, k; /* hidden 0: no w1, k 0: no ws */
    const char *pools[4], *activation, *gate;
    int n_pools;
    bool relu;
    float *x;
    const float *w1, *b1, *w2, *b2, *ws, *bs, *identity;
};

/* g of an image. */
static void channel_gates(const struct cbam *s, const float *x, double *g)
{
    double z[MAX_CHANNELS], u[MAX_CHANNELS], logits[MAX_CHANNELS] = { 0 };
    for (int t = 0; t < s->n_pools; t++) {
        for (int64_t c = 0; c < s->c; c++)
            z[c] = map_pool(s->pools[t], x + c * s->h * s->w, s->h * s->w);
        for (int64_t r = 0; r < s->hidden; r++) {
            u[r] = s->b1 != NULL ? (double)s->b1[r] : 0;
            for (int64_t c = 0; c < s->c; c++)
                u[r] += (double)s->w1[r * s->c + c] * z[c];
            u[r] = map_activate(s->activation, u[r]);
        }
        for (int64_t c = 0; c < s->c; c++) {
            logits[c] += s->b2 != NULL ? (double)s->b2[c] : 0;
            for (int64_t r = 0; r < s->hidden; r++)
                logits[c] += (double)s->w2[c * s->hidden + r] * u[r];
        }
    }
    for (int64_t c = 0; c < s->c; c++)
        g[c] = s->hidden > 0 ? map_gate(s->gate, logits[c]) : 1;
}

/* What a pixel sees of a plane: zeros around it. */
static double seen(const struct cbam *s, const double *plane, int64_t y, int64_t x)
{
    return y >= 0 && y < s->h && x >= 0 && x < s->w ? plane[y * s->w + x] : 0;
}

static void pixel_gates(const struct cbam *s, const float *x, const double *g, double *q)
{
    static double max[MAX_PIXELS], mean[MAX_PIXELS];
    const int64_t n = s->h * s->w, half = s->k / 2;
    for (int64_t p = 0; p < n; p++) {
        max[p] = -(double)INFINITY;
        mean[p] = 0;
        for (int64_t c = 0; c < s->c; c++) {
            const double v = g[c] * (double)x[c * n + p];
            max[p] = isnan(v) || isnan(max[p]) ? (double)NAN : fmax(max[p], v);
            mean[p] += v / (double)s->c;
        }
    }
    for (int64_t p = 0; p < n; p++) {
        q[p] = s->bs != NULL ? (double)s->bs[0] : 0;
        for (int64_t i = 0; i < s->k; i++)
            for (int64_t j = 0; j < s->k; j++) {
                const int64_t y = p / s->w + i - half, at = p % s->w + j - half;
                q[p] += (double)s->ws[i * s->k + j] * seen(s, max, y, at) +
                        (double)s->ws[(s->k + i) * s->k + j] * seen(s, mean, y, at);
            }
        q[p] = map_gate(s->gate, q[p]);
    }
}

static void reference(const struct cbam *s, double *y)
{
    static double q[MAX_PIXELS];
    double g[MAX_CHANNELS];
    const int64_t n = s->h * s->w;
    for (int64_t b = 0; b < s->batch; b++) {
        const float *x = s->x + b * s->c * n;
        channel_gates(s, x, g);
        if (s->k > 0)
            pixel_gates(s, x, g, q);
        for (int64_t i = 0; i < s->c * n; i++) {
            double v = g[i / n] * (double)x[i] * (s->k > 0 ? q[i % n] : 1);
            if (s->identity != NULL)
                v += (double)s->identity[b * s->c * n + i];
            y[b * s->c * n + i] = s->relu ? map_activate("relu", v) : v;
        }
    }
}

/* ---- cases ---- */

static const float *weight(struct check *c, const char *name, int rank,
                           const int64_t *dims, int64_t terms)
{
    float *w = check_weight(c, name, rank, dims);
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    for (int64_t i = 0; !c->blank && i < n; i++)
        w[i] /= sqrtf((float)terms);
    return w;
}

static const float *maybe(struct check *c, bool possible, const char *name, int64_t n)
{
    if (possible && check_chance(c, 50))
        return check_weight(c, name, DIMS(n));
    check_absent(c);
    return NULL;
}

static void words(struct check *c, struct cbam *s)
{
    static const char *const pools[] = { "avg", "max", "lp", "lse" };
    s->activation = map_activations[check_below(c, 5)];
    s->gate = map_gates[check_below(c, 2)];
    s->relu = check_chance(c, 30);
    s->n_pools = 2;
    s->pools[0] = "avg";
    s->pools[1] = "max";
    if (check_chance(c, 60)) {
        const int first = (int)check_below(c, 4);
        s->n_pools = (int)check_between(c, 1, 4);
        for (int t = 0; t < s->n_pools; t++)
            s->pools[t] = pools[(first + t) % 4];
        check_strings(c, "pools", s->n_pools, s->pools);
    }
    if (strcmp(s->activation, "relu") != 0 || check_chance(c, 50))
        check_string(c, "activation", s->activation);
    if (strcmp(s->gate, "sigmoid") != 0 || check_chance(c, 50))
        check_string(c, "gate", s->gate);
    if (s->relu || check_chance(c, 30))
        check_string(c, "post_activation", s->relu ? "relu" : "none");
}

static void build(struct check *c, struct cbam *s)
{
    check_begin(c, "CBAM");
    words(c, s);
    s->x = check_f32(c, "x", DIMS(s->batch, s->c, s->h, s->w));
    if (s->hidden > 0)
        s->w1 = weight(c, "w1", DIMS(s->hidden, s->c), s->c);
    else
        check_absent(c);
    s->b1 = maybe(c, s->hidden > 0, "b1", s->hidden);
    if (s->hidden > 0)
        s->w2 = weight(c, "w2", DIMS(s->c, s->hidden), s->hidden);
    else
        check_absent(c);
    s->b2 = maybe(c, s->hidden > 0, "b2", s->c);
    if (s->k > 0)
        s->ws = weight(c, "ws", DIMS(1, 2, s->k, s->k), 2 * s->k * s->k);
    else
        check_absent(c);
    s->bs = maybe(c, s->k > 0, "bs", 1);
    s->identity = NULL;
    if (check_chance(c, 40))
        s->identity = check_f32(c, "identity", DIMS(s->batch, s->c, s->h, s->w));
    c->no_twin = true;
}

#define OUTPUT(c, s) check_output((c), "Y", DIMS((s)->batch, (s)->c, (s)->h, (s)->w))

/* Logits are about as large as the numbers that pools give, sqrt(n) for lp; they are
 * rounded there, and sums over pixels may cancel. */
static void run(struct check *c, struct cbam *s)
{
    double scale = 1.0 / 16;
    for (int t = 0; t < s->n_pools; t++)
        if (strcmp(s->pools[t], "lp") == 0)
            scale = 1.0 / 3;
    reference(s, OUTPUT(c, s));
    check_run_with(c, 1e-5, 1e-6 * (1 + scale * sqrt((double)(s->h * s->w))));
}

/* ---- refusals ---- */

static void refuse_attributes(struct check *c)
{
    struct cbam s = { .batch = 2, .c = 6, .h = 3, .w = 5, .hidden = 2, .k = 3 };
    static const char *const words[][2] = { { "avg", "mean" }, { "max", "max" } };
    static const char *const said[] = { "pools has 'mean'", "'max' twice" };
    for (int i = 0; i < 3; i++) {
        build(c, &s);
        c->n_attrs = 0;
        check_strings(c, "pools", i < 2 ? 2 : 0, words[i % 2]);
        OUTPUT(c, &s);
        check_refuses(c, ATTNRUN_E_ATTR, i < 2 ? said[i] : "pools is empty");
    }
    static const char *const attributes[] = { "activation", "gate", "post_activation" };
    for (int i = 0; i < 3; i++) {
        build(c, &s);
        c->n_attrs = 0;
        check_string(c, attributes[i], "tanh");
        OUTPUT(c, &s);
        check_refuses(c, ATTNRUN_E_ATTR, attributes[i]);
    }
}

/* Inputs that are there without another one. */
static void refuse_alone(struct check *c)
{
    static const struct {
        int drop, named;
        const char *words;
    } cases[] = { { 1, 3, "w2|needs w1" },
                  { 3, 1, "w1|needs w2" },
                  { 5, 6, "bs|needs ws" } };
    struct cbam s = { .batch = 2, .c = 6, .h = 3, .w = 5, .hidden = 2, .k = 3 };
    for (int i = 0; i < 3; i++) {
        do {
            build(c, &s);
        } while (s.bs == NULL || s.b1 != NULL || s.b2 != NULL);
        c->in[cases[i].drop] = (struct check_operand){ 0 };
        OUTPUT(c, &s);
        check_refuses(c, ATTNRUN_E_INPUT, cases[i].words);
    }
    do {
        build(c, &s);
    } while (s.b1 == NULL);
    c->in[1] = c->in[3] = (struct check_operand){ 0 };
    OUTPUT(c, &s);
    check_refuses(c, ATTNRUN_E_INPUT, "b1|needs w1");
    s.hidden = s.k = 0;
    build(c, &s);
    OUTPUT(c, &s);
    check_refuses(c, ATTNRUN_E_INPUT, "neither w1 nor ws");
}

static void refuse_shapes(struct check *c)
{
    static const struct {
        int in, axis;
        int64_t size;
        const char *words;
    } cases[] = { { 1, 1, 5, "w1|channels" }, { 1, 0, 0, "w1|dim 0 is 0" },
                  { 3, 0, 5, "w2|channels" }, { 3, 1, 1, "w2|rows of the first matrix" },
                  { 5, 0, 0, "ws|one gate" }, { 5, 1, 1, "ws|maximum and mean" },
                  { 5, 2, 4, "ws|odd size" }, { 5, 3, 2, "ws|odd size" },
                  { 5, 3, 3, "ws|a square" }, { 0, 1, 0, "x|dim 1 is 0" } };
    struct cbam s = { .batch = 2, .c = 6, .h = 3, .w = 5, .hidden = 2, .k = 5 };
    for (int i = 0; i < 10; i++) {
        do {
            build(c, &s);
        } while (s.b1 != NULL || s.b2 != NULL);
        c->in[cases[i].in].dims[cases[i].axis] = cases[i].size;
        OUTPUT(c, &s);
        check_refuses(c, ATTNRUN_E_SHAPE, cases[i].words);
    }
    do {
        build(c, &s);
    } while (s.identity == NULL);
    c->in[7].dims[2] = 1;
    OUTPUT(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "identity|that of the output");
    do {
        build(c, &s);
    } while (s.bs == NULL);
    c->in[6].dims[0] = 0;
    OUTPUT(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "bs|one gate");
    build(c, &s);
    c->in[0].rank = 3;
    OUTPUT(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "x|rank 4");
    s.k = 65;
    build(c, &s);
    OUTPUT(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "ws|odd size of at most 63");
}

/* ---- what must hold without a reference ---- */

/* A pixel that is no number takes part in all gates, an infinite one in some. */
static void odd_pixels(struct check *c)
{
    static const float odd[] = { (float)NAN, (float)INFINITY, -(float)INFINITY };
    CHECK_ROUNDS(c, 18)
    {
        struct cbam s = { .batch = 2, .c = 9, .h = 6, .w = 7, .hidden = 3, .k = 5 };
        s.hidden = c->round % 2 ? 3 : 0;
        build(c, &s);
        s.x[check_below(c, s.c * 42)] = odd[c->round % 3];
        run(c, &s);
    }
}

/* Weights and bias of 0 are a gate of 1/2. */
static void half_gate(struct check *c)
{
    struct cbam s = { .batch = 2, .c = 12, .h = 5, .w = 9, .hidden = 3, .k = 7 };
    do {
        build(c, &s);
    } while (strcmp(s.gate, "sigmoid") != 0 || s.identity != NULL || s.bs == NULL);
    memset(c->in[5].data, 0, 2 * 49 * sizeof(float));
    memset(c->in[6].data, 0, sizeof(float));
    double *y = OUTPUT(c, &s), g[MAX_CHANNELS];
    for (int64_t i = 0; i < s.batch * s.c * 45; i++) {
        if (i % (s.c * 45) == 0)
            channel_gates(&s, s.x + i, g);
        const double v = g[i / 45 % s.c] * (double)s.x[i] / 2;
        y[i] = s.relu ? map_activate("relu", v) : v;
    }
    check_run(c, CHECK_A);
}

void check_cbam(struct check *c)
{
    static const int64_t kernels[] = { 0, 1, 3, 7, 7, 11, 63 };
    CHECK_ROUNDS(c, 70)
    {
        struct cbam s = { .batch = check_between(c, 0, c->round % 7 == 0 ? 10 : 3),
                          .c = check_between(c, 1, c->round % 5 == 0 ? 90 : 20),
                          .h = check_between(c, 1, 19),
                          .w = check_between(c, 1, 19),
                          .hidden = check_between(c, 0, 24),
                          .k = kernels[check_below(c, 7)] };
        if (c->round % 10 == 3) /* many rows, some at a time */
            s = (struct cbam){
                .batch = 2, .c = 5, .h = 71, .w = 53, .hidden = 2, .k = 9
            };
        if (c->round % 20 == 8) /* large weights */
            s = (struct cbam){
                .batch = 9, .c = 610, .h = 2, .w = 2, .hidden = 3, .k = 3
            };
        if (c->round % 20 == 18) /* many channels: few pixels at a time */
            s = (struct cbam){ .batch = 1, .c = 600, .h = 40, .w = 3, .k = 3 };
        if (s.hidden == 0 && s.k == 0)
            s.k = 1;
        build(c, &s);
        run(c, &s);
    }
    odd_pixels(c);
    half_gate(c);
    refuse_attributes(c);
    refuse_alone(c);
    refuse_shapes(c);
    c->blank = true;
    struct cbam s = { .batch = 1, .c = 256, .h = 128, .w = 128, .hidden = 16, .k = 7 };
    build(c, &s);
    OUTPUT(c, &s);
    check_extra_memory(c, 4 * (2 * 256 + 3 * 128 * 128));
    s.batch = 16;
    build(c, &s);
    OUTPUT(c, &s);
    check_extra_memory(c, 4 * (2 * 256 + 3 * 128 * 128));
    c->blank = false;
}
