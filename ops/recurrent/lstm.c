/* lstm.c - LSTM: gates i, o, f, c (in this order in W, R, B), peepholes i, o, f.
 *
 * i, f   f(X W' + h R' + bias + P c);  with input_forget f = 1 - i
 * c      f c + i g(X Wc' + h Rc' + bias)
 * o      f(X Wo' + h Ro' + bias + P c), of the new c
 * h      o h(c);  f = Sigmoid, g = h = Tanh by default
 *
 * recurrent.h has the shapes and the cost (G = 4). Source: ONNX LSTM-14.
 *
 * com.microsoft DynamicQuantizeLSTM is the same with W [D,I,4 H] and R [D,H,4 H] of
 * bytes, a scale and a zero point for each direction or for each column of each
 * direction. X and h are quantized when they are multiplied (recurrent_i8.c). Source:
 * ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "recurrent.h"

static const attnrun_attr_def lstm_attrs[] = {
    RECURRENT_ATTR_ROWS, ATTR_FLAG(struct recurrent_args, input_forget, 0), ATTR_END
};

static const attnrun_attr_def dynamic_lstm_attrs[] = {
    RECURRENT_TIME_FIRST_ROWS, ATTR_FLAG(struct recurrent_args, input_forget, 0), ATTR_END
};

static void add_peephole(const struct recurrent_cell *cell, float *gate, const float *c,
                         int number)
{
    int64_t hidden = cell->state->hidden;
    if (cell->peephole == NULL)
        return;
    const float *p = cell->peephole + number * hidden;
    for (int64_t i = 0; i < hidden; i++)
        gate[i] += p[i] * c[i];
}

static void lstm_row(const struct recurrent_cell *cell, float *gates, float *h, float *c)
{
    const struct recurrent_args *args = cell->step->args;
    const struct attn_kernels *k = cell->step->kernels;
    const struct recurrent_function *f = cell->state->functions[cell->direction];
    int64_t n = cell->state->hidden;
    float *in = gates, *out = gates + n, *forget = gates + 2 * n, *fresh = gates + 3 * n;
    add_peephole(cell, in, c, 0);
    add_peephole(cell, forget, c, 2);
    attn_recurrent_clip(cell, in, n);
    attn_recurrent_clip(cell, forget, 2 * n);
    attn_recurrent_apply(k, &f[0], in, in, n);
    attn_recurrent_apply(k, &f[0], forget, forget, n);
    attn_recurrent_apply(k, &f[1], fresh, fresh, n);
    if (args->input_forget)
        for (int64_t i = 0; i < n; i++)
            forget[i] = 1.0f - in[i];
    for (int64_t i = 0; i < n; i++)
        c[i] = forget[i] * c[i] + in[i] * fresh[i];
    add_peephole(cell, out, c, 1);
    attn_recurrent_clip(cell, out, n);
    attn_recurrent_apply(k, &f[0], out, out, n);
    attn_recurrent_apply(k, &f[2], fresh, c, n);
    for (int64_t i = 0; i < n; i++)
        h[i] = out[i] * fresh[i];
}

static void lstm_rows(const struct recurrent_cell *cell)
{
    int64_t hidden = cell->state->hidden;
    for (int64_t row = 0; row < cell->rows; row++)
        lstm_row(cell, cell->gates + row * 4 * hidden, cell->h + row * hidden,
                 cell->c + row * hidden);
}

static void lstm_cell(const struct recurrent_cell *cell)
{
    int64_t hidden = cell->state->hidden;
    attn_recurrent_product(cell, cell->h, cell->r, 4 * hidden, cell->gates, 4 * hidden,
                           true);
    lstm_rows(cell);
}

static void dynamic_lstm_cell(const struct recurrent_cell *cell)
{
    attn_recurrent_gates_i8(cell);
    lstm_rows(cell);
}

static const struct recurrent_kind lstm = { .gates = 4,
                                            .functions = 3,
                                            .activations = { "Sigmoid", "Tanh", "Tanh" },
                                            .cell_state = true,
                                            .cell = lstm_cell };

static attn_status lstm_infer(attnrun_step *step)
{
    return attn_recurrent_infer(step, &lstm);
}
static attn_status lstm_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    return attn_recurrent_pack(pack, &lstm, bytes, packed);
}
static attn_status lstm_run(const attnrun_step *step, const attnrun_work *work)
{
    return attn_recurrent_run(step, work, &lstm);
}

const attnrun_op_def op_lstm_1 = {
    RECURRENT_ROW,
    .name = "LSTM",
    .inputs = "X:T W:T R:T B:T? sequence_lens:i32? initial_h:T? initial_c:T? P:T?",
    .outputs = "Y:T? Y_h:T? Y_c:T?",
    .attrs = lstm_attrs,
    .infer = lstm_infer,
    .pack = lstm_pack,
    .run = lstm_run,
};

static const struct recurrent_kind dynamic_lstm = {
    .gates = 4,
    .functions = 3,
    .activations = { "Sigmoid", "Tanh", "Tanh" },
    .cell_state = true,
    .quantized = true,
    .cell = dynamic_lstm_cell,
};

static attn_status dynamic_lstm_infer(attnrun_step *step)
{
    return attn_recurrent_infer(step, &dynamic_lstm);
}
static attn_status dynamic_lstm_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    return attn_recurrent_pack(pack, &dynamic_lstm, bytes, packed);
}

static attn_status dynamic_lstm_check_packed(const attnrun_pack *pack, int64_t bytes,
                                             const void *packed)
{
    (void)bytes;
    return attn_recurrent_check_packed_i8(pack, &dynamic_lstm, packed);
}
static attn_status dynamic_lstm_run(const attnrun_step *step, const attnrun_work *work)
{
    return attn_recurrent_run(step, work, &dynamic_lstm);
}

const attnrun_op_def op_ms_dynamic_quantize_lstm_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "DynamicQuantizeLSTM",
    .since = 1,
    .args_bytes = sizeof(struct recurrent_args),
    .state_bytes = sizeof(struct recurrent_state),
    .inputs = "X:T W:T2 R:T2 B:T? sequence_lens:i32? initial_h:T? initial_c:T? P:T? "
              "W_scale:T W_zero_point:T2 R_scale:T R_zero_point:T2",
    .outputs = "Y:T? Y_h:T? Y_c:T?",
    .types = "T=f32 T2=i8,u8",
    .attrs = dynamic_lstm_attrs,
    .infer = dynamic_lstm_infer,
    .pack = dynamic_lstm_pack,
    .check_packed = dynamic_lstm_check_packed,
    .run = dynamic_lstm_run,
    .cost = "O(T B H (I + H))",
    .source = "ONNX Runtime contrib operators",
};
