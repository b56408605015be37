/* check_afm_pooling.c - AFMPooling against its formula. */
#include "operator_harness.h"

struct afm {
    int64_t batch, fields, dim, units;
    bool plain;
    const float *e, *w, *h, *bias;
    const uint8_t *mask;
};

static double score(const struct afm *a, const double *p)
{
    double s = 0;
    for (int64_t u = 0; u < a->units; u++) {
        double x = a->bias != NULL ? (double)a->bias[u] : 0;
        for (int64_t d = 0; d < a->dim; d++)
            x += p[d] * (double)a->w[d * a->units + u];
        s += (double)a->h[u] * fmax(x, 0);
    }
    return s;
}

static void sample(const struct afm *a, int64_t b, double *y, double *weights)
{
    static double p[8192][64], s[8192];
    double max = -HUGE_VAL, sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < a->fields; i++)
        for (int64_t j = i + 1; j < a->fields; j++, n++) {
            const int64_t at = b * a->fields;
            for (int64_t d = 0; d < a->dim; d++)
                p[n][d] = (double)a->e[(at + i) * a->dim + d] *
                          (double)a->e[(at + j) * a->dim + d];
            const bool seen =
                a->mask == NULL || (a->mask[at + i] != 0 && a->mask[at + j] != 0);
            s[n] = !seen ? -HUGE_VAL : a->plain ? 0 : score(a, p[n]);
            max = fmax(max, s[n]);
        }
    for (int64_t k = 0; k < n; k++)
        sum += s[k] = s[k] == -HUGE_VAL ? 0 : exp(s[k] - max);
    for (int64_t k = 0; k < n; k++) {
        s[k] = a->plain || sum == 0 ? s[k] : s[k] / sum;
        for (int64_t d = 0; d < a->dim; d++)
            y[d] += s[k] * p[k][d];
        if (weights != NULL)
            weights[k] = s[k];
    }
}

static void build(struct check *c, struct afm *a)
{
    const int64_t pairs = a->fields * (a->fields - 1) / 2;
    check_begin(c, "AFMPooling");
    a->plain = check_chance(c, 25);
    if (a->plain)
        check_int(c, "attention", 0);
    a->e = check_f32(c, "E", DIMS(a->batch, a->fields, a->dim));
    a->w = check_weight(c, "W", DIMS(a->dim, a->units));
    float *h = check_weight(c, "h", DIMS(a->units));
    for (int64_t i = 0; i < a->units; i++)
        h[i] /= (float)a->units;
    a->h = h;
    a->bias = NULL;
    a->mask = NULL;
    if (check_chance(c, 60))
        a->bias = check_weight(c, "b", DIMS(a->units));
    else
        check_absent(c);
    if (check_chance(c, 60))
        a->mask = check_mask(c, "field_mask", a->batch, a->fields);
    double *y = check_output(c, "Y", DIMS(a->batch, a->dim)), *weights = NULL;
    if (check_chance(c, 50))
        weights = check_output(c, "weights", DIMS(a->batch, pairs));
    for (int64_t b = 0; !c->blank && b < a->batch; b++)
        sample(a, b, y + b * a->dim, weights != NULL ? weights + b * pairs : NULL);
    check_hide(c, c->in[0].data, a->mask, a->batch * a->fields, a->dim);
    c->no_twin = true;
}

static void refusals(struct check *c)
{
    struct afm a = { .batch = 2, .fields = 5, .dim = 4, .units = 3 };
    build(c, &a);
    c->n_attrs = 0;
    check_int(c, "attention", 2);
    check_refuses(c, ATTNRUN_E_ATTR, "'attention' is 2");
    build(c, &a);
    c->in[1].dims[0] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "W|the size of E");
    build(c, &a);
    c->in[2].dims[0] = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "the columns of W");
    build(c, &a);
    c->in[0].rank = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "E|rank 3");
    do {
        build(c, &a);
    } while (a.mask == NULL);
    c->in[4].dims[1] = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "field_mask|the fields");
}

void check_afm_pooling(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        struct afm a = { .batch = check_between(c, 0, 3),
                         .fields = check_between(c, 0, c->round % 8 == 0 ? 60 : 12),
                         .dim = check_between(c, 1, 30),
                         .units = check_between(c, 1, 30) };
        if (c->round % 20 == 7) /* parts */
            a = (struct afm){ .batch = 1, .fields = 120, .dim = 64, .units = 64 };
        build(c, &a);
        /* A plain sum of n terms may be small. */
        check_run_with(c, 1e-5, a.plain ? 1e-6 * (1 + (double)a.fields) : 2e-6);
    }
    refusals(c);
    c->blank = true;
    build(c, &(struct afm){ .batch = 256, .fields = 500, .dim = 64, .units = 64 });
    c->n_out = 1;
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}
