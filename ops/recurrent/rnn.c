/* rnn.c - RNN: h = f(X W' + h R' + bias), f = Tanh by default. recurrent.h has the shapes
 * and the cost (G = 1). Source: ONNX RNN-14. */
#include "recurrent.h"

static const attnrun_attr_def rnn_attrs[] = { RECURRENT_ATTR_ROWS, ATTR_END };

static void rnn_cell(const struct recurrent_cell *cell)
{
    const struct recurrent_state *s = cell->state;
    int64_t n = cell->rows * s->hidden;
    attn_recurrent_product(cell, cell->h, cell->r, s->hidden, cell->gates, s->hidden,
                           true);
    attn_recurrent_clip(cell, cell->gates, n);
    attn_recurrent_apply(cell->step->kernels, &s->functions[cell->direction][0], cell->h,
                         cell->gates, n);
}

static const struct recurrent_kind rnn = {
    .gates = 1, .functions = 1, .activations = { "Tanh" }, .cell = rnn_cell
};

static attn_status rnn_infer(attnrun_step *step)
{
    return attn_recurrent_infer(step, &rnn);
}
static attn_status rnn_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    return attn_recurrent_pack(pack, &rnn, bytes, packed);
}
static attn_status rnn_run(const attnrun_step *step, const attnrun_work *work)
{
    return attn_recurrent_run(step, work, &rnn);
}

const attnrun_op_def op_rnn_1 = {
    RECURRENT_ROW,
    .name = "RNN",
    .inputs = "X:T W:T R:T B:T? sequence_lens:i32? initial_h:T?",
    .outputs = "Y:T? Y_h:T?",
    .attrs = rnn_attrs,
    .infer = rnn_infer,
    .pack = rnn_pack,
    .run = rnn_run,
};
