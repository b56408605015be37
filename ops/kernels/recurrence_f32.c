/* recurrence_f32.c - attention whose memory is a matrix S: tokens write to it, and
 * queries read it.
 *
 * Two tokens are applied to S together. A row of S is loaded once, decays, takes both
 * writes and is read after each. What the next two tokens will find under their keys is
 * read in the same pass, all in registers. Cost: two multiply-adds for each element of S
 * and token (3 with the delta rule), and no form of the sum has fewer. Decays are
 * multiplied one by one; nothing is divided by them. Source: Yang 2024, arXiv:2412.06464.
 */
#include "isa.h"

/* What a pass does; constants of the frequent ones. */
struct pass {
    int tokens, next;
    bool decay, store;
};

/* What the tokens write: values, or what corrects what S has under their keys. */
static ALWAYS_INLINE void find_updates(const struct attn_recurrence *g, size_t j,
                                       size_t n, const int nv, v_f32 (*u)[2])
{
    for (int t = 0; t < g->tokens; t++)
        UNROLL
    for (int v = 0; v < nv; v++) {
        const size_t at = j + (size_t)v * VF, left = n - (size_t)v * VF;
        u[t][v] = v_load_part(g->v[t] + at, left, 0.0f);
        if (g->r[0] == NULL)
            continue;
        v_f32 found = v_load_part(g->r[t] + at, left, 0.0f);
        if (t > 0)
            found += g->cross * u[0][v];
        u[t][v] = g->beta[t] * (u[t][v] - found);
    }
}

/* Columns j … j + n - 1, n <= nv * VF, of all rows. */
static ALWAYS_INLINE void columns(const struct attn_recurrence *g, size_t j, size_t n,
                                  const int nv, const struct pass p)
{
    v_f32 u[2][2] = { { { 0 } } }, o[2][2] = { { { 0 } } }, r[2][2] = { { { 0 } } };
    const struct attn_recurrence x = *g; /* its pointers stay in registers */
    const float *from = x.from + j;
    float *to = p.store ? x.to + j : NULL;
    find_updates(g, j, n, nv, u);
    for (size_t d = 0; d < x.rows; d++, from += x.from_row) {
        v_f32 s[2];
        UNROLL
        for (int v = 0; v < nv; v++)
            s[v] = v_load(from + v * VF);
        UNROLL
        for (int t = 0; t < 2; t++) {
            if (t >= p.tokens)
                continue;
            UNROLL
            for (int v = 0; v < nv; v++) {
                if (p.decay)
                    s[v] *= x.decay[t][d];
                s[v] += x.k[t][d] * u[t][v];
                o[t][v] += x.q[t][d] * s[v];
            }
        }
        UNROLL
        for (int t = 0; t < 2; t++) {
            if (t >= p.next)
                continue;
            UNROLL
            for (int v = 0; v < nv; v++)
                r[t][v] += x.next[t][d] * s[v];
        }
        if (!p.store)
            continue;
        UNROLL
        for (int v = 0; v < nv; v++)
            v_store(to + v * VF, s[v]);
        to += x.to_row;
    }
    for (int v = 0; v < nv; v++) {
        const size_t at = j + (size_t)v * VF, left = n - (size_t)v * VF;
        for (int t = 0; t < p.tokens; t++)
            v_store_part(x.o[t] + at, o[t][v] * x.scale, left);
        for (int t = 0; t < p.next; t++)
            v_store_part(x.r[t] + at, r[t][v], left);
    }
}

static ALWAYS_INLINE void all_columns(const struct attn_recurrence *g,
                                      const struct pass p)
{
    size_t j = 0;
    for (; g->n - j > VF; j += g->n - j < 2 * VF ? g->n - j : 2 * VF)
        columns(g, j, g->n - j < 2 * VF ? g->n - j : 2 * VF, 2, p);
    if (j < g->n)
        columns(g, j, g->n - j, 1, p);
}

/* clang-format off */
#define PASS(name, ...)                                                                  \
    static __attribute__((noinline)) void name(const struct attn_recurrence *g)          \
    { all_columns(g, (struct pass){ __VA_ARGS__ }); }
PASS(linear, 2, 0, false, true) PASS(gated, 2, 0, true, true)
PASS(delta, 2, 2, false, true) PASS(gated_delta, 2, 2, true, true)
PASS(read_linear, 2, 0, false, false) PASS(read_gated, 2, 0, true, false)
#undef PASS
    /* clang-format on */

    void K(recurrence_f32)(const struct attn_recurrence *g)
{
    const struct pass p = { g->tokens, g->n_next, g->decay[0] != NULL, g->to != NULL };
    const bool some =
        ATTN_ONE_TEXT || p.tokens < 2 || p.next == 1 || (p.next == 2 && !p.store);
    if (some)
        all_columns(g, p);
    else if (p.next == 2)
        (p.decay ? gated_delta : delta)(g);
    else if (p.store)
        (p.decay ? gated : linear)(g);
    else
        (p.decay ? read_gated : read_linear)(g);
}

float K(recurrence_keys_f32)(const float *k0, const float *k1, const float *decay0,
                             const float *decay1, size_t n, float *next0, float *next1)
{
    v_f32 sum = { 0 };
    for (size_t i = 0; i < n; i += VF) {
        const size_t left = n - i;
        const v_f32 a = v_load_part(k0 + i, left, 0.0f),
                    b = v_load_part(k1 + i, left, 0.0f);
        if (decay0 == NULL) {
            sum += a * b;
            continue;
        }
        const v_f32 x = v_load_part(decay0 + i, left, 0.0f);
        const v_f32 later = v_load_part(decay1 + i, left, 0.0f) * b;
        sum += a * later;
        v_store_part(next0 + i, x * a, left);
        v_store_part(next1 + i, x * later, left);
    }
    return v_reduce_add(sum);
}
