/* check_recurrence.c - tokens on their way into a matrix, and queries that read it. */
#include <string.h>

#include "checks.h"

enum { ROWS = 5, MAX = 1024 };

struct pass {
    struct attn_recurrence g;
    double s[ROWS * MAX], r[2][MAX], o[2][MAX], size[MAX];
};

/* A pass over (ROWS, n), whose rows end with whole vectors. */
static void open_pass(struct check *c, struct pass *p, size_t n)
{
    struct attn_recurrence *g = &p->g;
    const size_t row = (n + 15) / 16 * 16 + 16 * (size_t)check_below(c, 2);
    *g = (struct attn_recurrence){ .n = n, .rows = (size_t)check_below(c, ROWS + 1) };
    float *s = check_normal_f32(c, ROWS * row);
    g->from = g->to = s;
    g->from_row = g->to_row = (ptrdiff_t)row;
    if (check_below(c, 3) == 0) {
        g->to = check_memory(c, ROWS * (row + 16) * sizeof *s);
        g->to_row = (ptrdiff_t)row + 16;
    } else if (check_below(c, 3) == 0) {
        g->to = NULL;
    }
    g->tokens = (int32_t)check_below(c, 3);
    const bool delta = check_below(c, 2) == 0, decay = check_below(c, 2) == 0;
    g->n_next = delta ? (int32_t)check_below(c, 3) : 0;
    g->scale = 0.5f;
    g->cross = check_normal(c);
    for (int t = 0; t < 2; t++) {
        g->k[t] = check_normal_f32(c, ROWS);
        g->q[t] = check_normal_f32(c, ROWS);
        g->v[t] = check_normal_f32(c, n);
        g->next[t] = check_normal_f32(c, ROWS);
        g->decay[t] = decay ? check_normal_f32(c, ROWS) : NULL;
        g->r[t] = delta ? check_normal_f32(c, n) : NULL;
        g->o[t] = check_memory(c, n * sizeof(float));
        g->beta[t] = check_normal(c);
    }
}

/* What becomes of column j, in p->s, p->o and p->r. */
static void expect(struct pass *p, size_t j)
{
    const struct attn_recurrence *g = &p->g;
    double u[2] = { 0 }, s[ROWS];
    p->size[j] = 1;
    for (size_t d = 0; d < g->rows; d++)
        s[d] = (double)g->from[d * (size_t)g->from_row + j];
    for (int t = 0; t < g->tokens; t++) {
        u[t] = (double)g->v[t][j];
        if (g->r[0] != NULL)
            u[t] = (double)g->beta[t] *
                   (u[t] - (double)g->r[t][j] - (t > 0 ? (double)g->cross * u[0] : 0));
        p->size[j] = fmax(p->size[j], fabs(u[t]));
        p->o[t][j] = 0;
        for (size_t d = 0; d < g->rows; d++) {
            s[d] *= g->decay[0] != NULL ? (double)g->decay[t][d] : 1;
            s[d] += (double)g->k[t][d] * u[t];
            p->o[t][j] += (double)g->q[t][d] * s[d] * (double)g->scale;
        }
    }
    for (int t = 0; t < g->n_next; t++) {
        p->r[t][j] = 0;
        for (size_t d = 0; d < g->rows; d++)
            p->r[t][j] += (double)g->next[t][d] * s[d];
    }
    memcpy(p->s + j * ROWS, s, sizeof s);
}

static void compare(struct check *c, const struct pass *p, size_t j)
{
    const struct attn_recurrence *g = &p->g;
    const double tolerance = 2e-5 * p->size[j];
    for (int t = 0; t < g->tokens; t++)
        check_near(c, j, (double)g->o[t][j], p->o[t][j], tolerance);
    for (int t = 0; t < g->n_next; t++)
        check_near(c, j, (double)g->r[t][j], p->r[t][j], tolerance);
    for (size_t d = 0; g->to != NULL && d < g->rows; d++)
        check_near(c, j, (double)g->to[d * (size_t)g->to_row + j], p->s[j * ROWS + d],
                   tolerance);
}

static void bench(struct check *c, const char *label, bool decay, bool delta)
{
    float *x = check_normal_f32(c, 64 * 64 + 16 * 64);
    float *rows = x + 64 * 64;
    struct attn_recurrence g = { .from = x, .to = x, .from_row = 64, .to_row = 64 };
    g.rows = g.n = 64;
    g.tokens = 2;
    g.n_next = delta ? 2 : 0;
    memset(rows, 0, 16 * 64 * sizeof *rows);
    for (int t = 0; t < 2; t++) {
        g.k[t] = g.q[t] = g.v[t] = g.next[t] = rows;
        g.decay[t] = decay ? rows + 64 : NULL;
        g.r[t] = delta ? rows + (2 + t) * 64 : NULL;
        g.o[t] = rows + (4 + t) * 64;
    }
    CHECK_BENCH(c, label, 2.0 * 2.0 * 64 * 64 * (2 + decay * 0.5 + delta), "GFLOP/s")
    c->k->recurrence_f32(&g);
}

void check_recurrence_f32(struct check *c)
{
    static struct pass p;
    CHECK_SIZES(c, n)
    {
        open_pass(c, &p, n);
        for (size_t j = 0; j < n; j++)
            expect(&p, j);
        c->k->recurrence_f32(&p.g);
        for (size_t j = 0; j < n; j++)
            compare(c, &p, j);
    }
    bench(c, "two tokens, 64 x 64", false, false);
    bench(c, "two tokens, decay, 64 x 64", true, false);
    bench(c, "two tokens, decay, delta, 64 x 64", true, true);
}

void check_recurrence_keys_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float *k[2], *decay[2];
        float *next[2];
        const bool decays = check_below(c, 2) == 0;
        double want = 0, size = 1;
        for (int t = 0; t < 2; t++) {
            k[t] = check_normal_f32(c, n);
            decay[t] = decays ? check_normal_f32(c, n) : NULL;
            next[t] = check_memory(c, n * sizeof(float));
        }
        for (size_t i = 0; i < n; i++) {
            const double part =
                (double)k[0][i] * (double)k[1][i] * (decays ? (double)decay[1][i] : 1);
            want += part;
            size += fabs(part);
        }
        float sum = c->k->recurrence_keys_f32(k[0], k[1], decay[0], decay[1], n, next[0],
                                              next[1]);
        check_near(c, n, (double)sum, want, 1e-6 * size);
        for (size_t i = 0; decays && i < n; i++) {
            const double first = (double)decay[0][i];
            check_f32(c, i, next[0][i], first * (double)k[0][i], 1);
            check_f32(c, i, next[1][i], first * (double)decay[1][i] * (double)k[1][i], 2);
        }
    }
}
