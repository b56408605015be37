/* gemm_epilogue.h - the last pass over sums of products: the steps of struct
 * attn_epilogue.
 *
 * In: rows of NR sums, their place in C, the list of steps. Out: C; the steps run in
 * registers, in their order. Cost: a read of the sums and of the data of each ADD step,
 * and a write of C. */
#ifndef ATTN_GEMM_EPILOGUE_H
#define ATTN_GEMM_EPILOGUE_H

#include "panel.h"
#include "vmath.h"

#define BOTH(f)                                                                          \
    do {                                                                                 \
        *x0 = f(*x0);                                                                    \
        *x1 = f(*x1);                                                                    \
    } while (0)
static ALWAYS_INLINE v_f32 hard_swish(v_f32 x)
{
    return x * v_min(v_set(1.0f), v_max(v_set(0.0f), x * (1.0f / 6.0f) + 0.5f));
}

static ALWAYS_INLINE void activate(v_f32 *x0, v_f32 *x1, const struct attn_epilogue *e)
{
    switch (e->kind) {
    case ATTN_EPI_SCALE:
        *x0 *= e->alpha;
        *x1 *= e->alpha;
        break;
    case ATTN_EPI_RELU:
        BOTH(v_relu);
        break;
    case ATTN_EPI_GELU:
        BOTH(v_gelu);
        break;
    case ATTN_EPI_GELU_TANH:
        BOTH(v_gelu_tanh);
        break;
    case ATTN_EPI_SILU:
        BOTH(v_silu);
        break;
    case ATTN_EPI_TANH:
        BOTH(v_tanh);
        break;
    case ATTN_EPI_SIGMOID:
        BOTH(v_sigmoid);
        break;
    case ATTN_EPI_CLIP:
        *x0 = v_min(v_set(e->beta), v_max(v_set(e->alpha), *x0));
        *x1 = v_min(v_set(e->beta), v_max(v_set(e->alpha), *x1));
        break;
    case ATTN_EPI_LEAKY_RELU:
        *x0 = v_select(*x0 < 0.0f, *x0 * e->alpha, *x0);
        *x1 = v_select(*x1 < 0.0f, *x1 * e->alpha, *x1);
        break;
    case ATTN_EPI_HARD_SWISH:
        BOTH(hard_swish);
        break;
    default:
        break;
    }
}
#undef BOTH

/* Loads n floats of the row of an ADD step, at most VF. */
static ALWAYS_INLINE v_f32 added(const struct attn_epilogue *e, size_t i, size_t j,
                                 size_t n)
{
    const float *data = e->data + (ptrdiff_t)i * e->row + (ptrdiff_t)j * e->col;
    v_f32 y = e->col == 0 ? v_set(data[0])
              : n >= VF   ? v_load(data)
                          : v_load_tail(data, n, 0.0f);
    return y * e->alpha;
}

/* Finishes row i of C, columns j … j + n - 1 (n <= NR), from the sums x: one pass, in
 * registers. */
static ALWAYS_INLINE void finish_row(const struct attn_gemm_f32 *g, const float *x, int e,
                                     size_t i, size_t j, const size_t n)
{
    float *c = g->c + (ptrdiff_t)i * g->c_row + j;
    const size_t n0 = n < VF ? n : VF, n1 = n - n0;
    v_f32 x0 = v_load(x), x1 = n1 > 0 ? v_load(x + VF) : x0;
    if (g->accumulate) {
        x0 += n0 == VF ? v_load(c) : v_load_tail(c, n0, 0.0f);
        if (n1 > 0)
            x1 += n1 == VF ? v_load(c + VF) : v_load_tail(c + VF, n1, 0.0f);
    }
    for (; e < g->n_epilogue; e++) {
        const struct attn_epilogue *step = &g->epilogue[e];
        if (step->kind == ATTN_EPI_ADD) {
            x0 += added(step, i, j, n0);
            if (n1 > 0)
                x1 += added(step, i, j + VF, n1);
        } else {
            activate(&x0, &x1, step);
        }
    }
    if (n0 == VF)
        v_store(c, x0);
    else
        v_store_tail(c, x0, n0);
    if (n1 == VF)
        v_store(c + VF, x1);
    else if (n1 > 0)
        v_store_tail(c + VF, x1, n1);
}

/* Finishes rows i … i + m - 1 of sum (NR floats each) as C[i …][j … j + n - 1]. */
static inline void finish(const struct attn_gemm_f32 *g, const float *sum, int e,
                          size_t i, size_t m, size_t j, size_t n)
{
    for (size_t r = 0; r < m; r++)
        finish_row(g, sum + r * NR, e, i + r, j, n);
}

#endif
