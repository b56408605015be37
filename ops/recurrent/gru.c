/* gru.c - GRU: gates z, r, h (in this order in W, R, B).
 *
 * z, r   f(X W' + h R' + bias)
 * n      g(X Wh' + (r h) Rh' + Rbh + Wbh), or with linear_before_reset
 *        g(X Wh' + r (h Rh' + Rbh) + Wbh)
 * h      (1 - z) n + z h;  f = Sigmoid, g = Tanh by default
 *
 * recurrent.h has the shapes and the cost (G = 3). Source: ONNX GRU-14. */
#include "recurrent.h"

static const attnrun_attr_def gru_attrs[] = {
    RECURRENT_ATTR_ROWS, ATTR_FLAG(struct recurrent_args, linear_before_reset, 0),
    ATTR_END
};

/* extra = h Rh' + Rbh, then gate n += r extra. */
static void add_linear(const struct recurrent_cell *cell)
{
    int64_t hidden = cell->state->hidden;
    attn_recurrent_product(cell, cell->h, cell->r2, hidden, cell->extra, hidden, false);
    for (int64_t row = 0; row < cell->rows; row++) {
        const float *r = cell->gates + (row * 3 + 1) * hidden;
        float *n = cell->gates + (row * 3 + 2) * hidden, *e = cell->extra + row * hidden;
        for (int64_t i = 0; i < hidden; i++) {
            float bias = cell->bias_r != NULL ? cell->bias_r[2 * hidden + i] : 0.0f;
            n[i] += r[i] * (e[i] + bias);
        }
    }
}

/* gate n += (r h) Rh'. */
static void add_reset(const struct recurrent_cell *cell)
{
    int64_t hidden = cell->state->hidden;
    for (int64_t row = 0; row < cell->rows; row++) {
        const float *r = cell->gates + (row * 3 + 1) * hidden,
                    *h = cell->h + row * hidden;
        for (int64_t i = 0; i < hidden; i++)
            cell->extra[row * hidden + i] = r[i] * h[i];
    }
    attn_recurrent_product(cell, cell->extra, cell->r2, hidden, cell->gates + 2 * hidden,
                           3 * hidden, true);
}

static void gru_cell(const struct recurrent_cell *cell)
{
    const struct recurrent_args *args = cell->step->args;
    const struct attn_kernels *k = cell->step->kernels;
    const struct recurrent_function *f = cell->state->functions[cell->direction];
    int64_t hidden = cell->state->hidden;
    attn_recurrent_product(cell, cell->h, cell->r, 2 * hidden, cell->gates, 3 * hidden,
                           true);
    for (int64_t row = 0; row < cell->rows; row++) {
        float *zr = cell->gates + row * 3 * hidden;
        attn_recurrent_clip(cell, zr, 2 * hidden);
        attn_recurrent_apply(k, &f[0], zr, zr, 2 * hidden);
    }
    if (args->linear_before_reset)
        add_linear(cell);
    else
        add_reset(cell);
    for (int64_t row = 0; row < cell->rows; row++) {
        float *z = cell->gates + row * 3 * hidden, *n = z + 2 * hidden;
        float *h = cell->h + row * hidden;
        attn_recurrent_clip(cell, n, hidden);
        attn_recurrent_apply(k, &f[1], n, n, hidden);
        for (int64_t i = 0; i < hidden; i++)
            h[i] = (1.0f - z[i]) * n[i] + z[i] * h[i];
    }
}

static const struct recurrent_kind gru = { .gates = 3,
                                           .functions = 2,
                                           .activations = { "Sigmoid", "Tanh" },
                                           .split_last = true,
                                           .keep_bias_r = true,
                                           .cell = gru_cell };

static attn_status gru_infer(attnrun_step *step)
{
    return attn_recurrent_infer(step, &gru);
}
static attn_status gru_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    return attn_recurrent_pack(pack, &gru, bytes, packed);
}
static attn_status gru_run(const attnrun_step *step, const attnrun_work *work)
{
    return attn_recurrent_run(step, work, &gru);
}

const attnrun_op_def op_gru_1 = {
    RECURRENT_ROW,
    .name = "GRU",
    .inputs = "X:T W:T R:T B:T? sequence_lens:i32? initial_h:T?",
    .outputs = "Y:T? Y_h:T?",
    .attrs = gru_attrs,
    .infer = gru_infer,
    .pack = gru_pack,
    .run = gru_run,
};
