/* resize_passes.c - Resize of integers with antialias: axis by axis, the last one first,
 * and rounded to the element type after each axis, as ONNX Runtime, torch and Pillow do.
 *
 * in    X and the tables of resize_table.c
 * out   Y; the image between two axes is in shared memory
 *
 * Bytes: weights are rounded to 2^-22 (halves away from zero), and sums to the nearest
 * byte (halves up). Other integers: sums are doubles, rounded with halves away from zero.
 * All results are clamped. Positions outside of the image are filled; in later passes the weights
 * of a sum, which is 1, keep them. A task is one line behind the axis, or all positions of the
 * last axis. Cost: the taps of an axis for each element between two axes.
 * Source: compared with onnxruntime 1.32.0 and torch 2.13.0. */
#include <math.h>

#include "resize.h"
#include "../tile.h"

enum { WEIGHT_BITS = 22, POLL = 256 /* elements between two polls */ };

void attn_resize_put_int(int32_t dtype, void *data, int64_t i, double v)
{
    static const double min[] = { [ATTNRUN_I8] = -128.0,
                                  [ATTNRUN_I16] = -32768.0,
                                  [ATTNRUN_I32] = -2147483648.0,
                                  [ATTNRUN_I64] = -9223372036854775808.0,
                                  [ATTNRUN_U64] = 0.0 };
    static const double max[] = { [ATTNRUN_I8] = 127.0,
                                  [ATTNRUN_U8] = 255.0,
                                  [ATTNRUN_I16] = 32767.0,
                                  [ATTNRUN_U16] = 65535.0,
                                  [ATTNRUN_I32] = 2147483647.0,
                                  [ATTNRUN_U32] = 4294967295.0,
                                  [ATTNRUN_I64] = 9223372036854774784.0,
                                  [ATTNRUN_U64] = 18446744073709549568.0,
                                  [ATTNRUN_BOOL] = 1.0 };
    v = v > min[dtype] ? v : min[dtype];
    v = v < max[dtype] ? v : max[dtype];
    uint64_t bits = dtype == ATTNRUN_U64 ? (uint64_t)v : (uint64_t)(int64_t)v;
    memcpy((uint8_t *)data + i * dtype_bytes(dtype), &bits, (size_t)dtype_bytes(dtype));
}

static bool is_byte(int32_t dtype) { return dtype == ATTNRUN_U8 || dtype == ATTNRUN_I8; }

void attn_resize_round_weights(const attnrun_step *step, const struct resize_axis *axis,
                               double *weight)
{
    const double max =
        1 << 30; /* cubic_coeff_a may be anything: sums must not overflow */
    for (int64_t i = 0; is_byte(step->x[0].dtype) && i < axis->out * axis->taps; i++) {
        double w = round(weight[i] * (double)(1 << WEIGHT_BITS));
        weight[i] = w > -max ? (w < max ? w : max) : -max;
    }
}

/* ---- plan ---- */

/* Finds the elements in front of an axis and behind it when pass `pass` begins; the axes
 * behind it are resized already. */
static bool around(const struct resize_state *state, int axis, int64_t *outer,
                   int64_t *inner)
{
    bool fits = true;
    *outer = *inner = 1;
    for (int a = 0; a < state->rank; a++) {
        if (a < axis)
            fits = fits && ck_mul(*outer, state->axes[a].in, outer);
        if (a > axis)
            fits = fits && ck_mul(*inner, state->axes[a].out, inner);
    }
    return fits;
}

attn_status attn_resize_plan_passes(attnrun_step *step, struct resize_state *state)
{
    const int64_t bytes = dtype_bytes(step->in[0].dtype);
    int64_t between[2] = { 0, 0 }; /* passes write into the two buffers in turn */
    int n = 0;
    for (int a = state->rank - 1; a >= 0; a--)
        if (state->axes[a].active)
            state->pass_axis[n++] = a;
    for (int pass = 0; pass < n; pass++) {
        const struct resize_axis *axis = &state->axes[state->pass_axis[pass]];
        int64_t outer, inner, lines, size;
        if (!around(state, state->pass_axis[pass], &outer, &inner) ||
            !ck_mul(outer, axis->out, &lines) || !ck_mul(lines, inner, &size) ||
            !ck_mul(size, bytes, &size))
            return op_fail_size(step, "the memory of a pass", "2^63 - 1 bytes");
        double cost = (double)axis->taps * (double)(inner > 1 ? inner : axis->out);
        op_tasks(step, pass + 1, inner > 1 ? lines : outer,
                 cost < 1e12 ? (int64_t)cost + 50 : (int64_t)1e12);
        if (pass + 1 < n && size > between[pass % 2])
            between[pass % 2] = size;
    }
    for (int k = 0; k < 2; k++)
        if (!op_slot(&state->between[k], &step->shared_bytes, between[k], 1))
            return op_fail_size(step, "the memory between two passes", "2^63 - 1 bytes");
    state->n_passes = n;
    return ATTNRUN_OK;
}

/* ---- run ---- */

struct line {
    const attnrun_tensor *x; /* its type */
    const void *from;
    void *to;
    int64_t base, inner; /* first element of the axis; from one position to the next */
    const int64_t *index;
    const double *weight;
    int64_t taps;
    double outside; /* extrapolation_value as an integer */
};

/* Computes element `to` of the result: the taps of one position. */
#define LINE(name, T)                                                                    \
    static int64_t sum_##name##_taps(const struct line *l, int64_t at)                   \
    {                                                                                    \
        const T *x = (const T *)l->from + l->base + at;                                  \
        int64_t sum = INT64_C(1) << (WEIGHT_BITS - 1);                                   \
        for (int64_t t = 0; t < l->taps; t++)                                            \
            sum += (int64_t)l->weight[t] * x[l->index[t] * l->inner];                    \
        return sum >> WEIGHT_BITS;                                                       \
    }
LINE(u8, uint8_t)
LINE(i8, int8_t)

static double sum_real(const struct line *l, int64_t at)
{
    attnrun_tensor x = *l->x;
    double sum = 0.0;
    x.data = (void *)(uintptr_t)l->from;
    for (int64_t t = 0; t < l->taps; t++)
        sum += l->weight[t] * tensor_get_real(&x, l->base + l->index[t] * l->inner + at);
    return round(sum);
}

static void run_position(const struct line *l, int64_t to)
{
    for (int64_t i = 0; i < l->inner; i++) {
        if (i % POLL == 0 &&
            attn_poll_work(min64(l->inner - i, POLL) * l->taps) != ATTNRUN_OK)
            return;
        if (l->index[0] < 0) {
            attn_resize_put_int(l->x->dtype, l->to, to + i, l->outside);
        } else if (l->x->dtype == ATTNRUN_U8) {
            int64_t v = sum_u8_taps(l, i);
            ((uint8_t *)l->to)[to + i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        } else if (l->x->dtype == ATTNRUN_I8) {
            int64_t v = sum_i8_taps(l, i);
            ((int8_t *)l->to)[to + i] = (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
        } else {
            attn_resize_put_int(l->x->dtype, l->to, to + i, sum_real(l, i));
        }
    }
}

attn_status attn_resize_pass(const attnrun_step *step, const attnrun_work *work)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    const int pass = work->phase - 1, last = state->n_passes - 1;
    const struct resize_axis *axis = &state->axes[state->pass_axis[pass]];
    uint8_t *shared = work->shared;
    int64_t outer, inner;
    struct line l = { .x = &step->x[0], .taps = axis->taps };
    l.outside = trunc((double)args->extrapolation_value);
    (void)around(state, state->pass_axis[pass], &outer, &inner);
    l.inner = inner;
    l.from = pass == 0 ? step->x[0].data : shared + state->between[(pass - 1) % 2];
    l.to = pass == last ? step->y[0].data : shared + state->between[pass % 2];
    const int64_t *index = (const int64_t *)(const void *)(shared + axis->index);
    const double *weight = (const double *)(const void *)(shared + axis->weight);
    /* Positions of a task: one, or where nothing is behind the axis all of them. */
    const int64_t each = inner > 1 ? 1 : axis->out;
    for (int64_t t = work->begin; t < work->end && l.to != NULL; t++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t k = t * each; k < (t + 1) * each; k++) {
            const int64_t at = k % axis->out;
            l.base = k / axis->out * axis->in * inner;
            l.index = index + at * axis->taps;
            l.weight = weight + at * axis->taps;
            run_position(&l, k * inner);
        }
    }
    return ATTNRUN_OK;
}
