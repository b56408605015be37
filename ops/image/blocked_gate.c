/* blocked_gate.c - BlockedGate: Y = X * gate, one factor for each channel of a blocked
 * map.
 *
 * X, Y  f32 or u8 [N, blocks, H, W, 16]
 * gate  [N or 1, blocks, 1, 1, 16]
 *
 * For bytes Y = saturate(round((X - x_zero) (gate - gate_zero) ratio) + y_zero), as in
 * QLinearMul. A task is some pixels of one block of channels. Y may share the memory of
 * X. Cost: one pass over X. Source: the pass blocked_layout writes it for Mul and
 * com.microsoft QLinearMul. */
#include "blocked.h"

enum { CHUNK = 1024 };

struct gate_args {
    int64_t x_zero, gate_zero, y_zero;
    float ratio;
};
static const attnrun_attr_def gate_attrs[] = { ATTR_INT(struct gate_args, x_zero, 0),
                                               ATTR_INT(struct gate_args, gate_zero, 0),
                                               ATTR_INT(struct gate_args, y_zero, 0),
                                               ATTR_FLOAT(struct gate_args, ratio, 1.0f),
                                               ATTR_END };
struct gate_state {
    int64_t pixels, chunks;
    bool shared; /* one gate for all images */
};

static attn_status blocked_gate_infer(attnrun_step *step)
{
    const struct gate_args *args = step->args;
    struct gate_state *s = step->state;
    const attnrun_dim *x = step->in[0].dims, *gate = step->in[1].dims;
    TRY(attn_blocked_check_byte(step, "x_zero", args->x_zero));
    TRY(attn_blocked_check_byte(step, "gate_zero", args->gate_zero));
    TRY(attn_blocked_check_byte(step, "y_zero", args->y_zero));
    if (!op_rank_known(step, 0) || !op_rank_known(step, 1))
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(attn_blocked_check(step, 0));
    TRY(attn_blocked_check(step, 1));
    if (!dim_is(gate[0], 1))
        TRY(op_need_dim(step, 1, 0, x[0], "one gate, or one for each image"));
    TRY(op_need_dim(step, 1, 1, x[1], "blocks of channels"));
    TRY(op_need_dim(step, 1, 2, dim_of(1), "one row"));
    TRY(op_need_dim(step, 1, 3, dim_of(1), "one column"));
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    if (!step->concrete)
        return ATTNRUN_OK;
    const int64_t planes = op_count(&step->in[0], 0, 2);
    s->pixels = op_count(&step->in[0], 2, 4);
    if (planes < 0 || s->pixels < 0 || op_count(&step->in[0], 0, 5) > ATTN_MAX_ELEMENTS)
        return op_fail_size(step, "the number of elements of the image", "2^46");
    s->chunks = planes > 0 ? ceil_div(s->pixels, CHUNK) : 0;
    s->shared = gate[0].value == 1;
    op_tasks(step, 0, planes * s->chunks, 3 * CHUNK);
    return ATTNRUN_OK;
}

static void gate_bytes(const attnrun_step *step, int64_t at, int64_t gate, int64_t n)
{
    const struct gate_args *args = step->args;
    const struct attn_binary_u8 d = {
        .a = (const uint8_t *)step->x[0].data + at,
        .b = (const uint8_t *)step->x[1].data + gate,
        .a_zero = (float)args->x_zero,
        .b_zero = (float)args->gate_zero,
        .a_ratio = args->ratio,
        .zero = (float)args->y_zero,
        .multiply = true,
        .b_repeats = true,
    };
    step->kernels->binary_u8((uint8_t *)step->y[0].data + at, &d,
                             (size_t)(n * ATTN_BLOCK));
}

static attn_status blocked_gate_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct gate_state *s = step->state;
    const int64_t blocks = step->x[0].dims[1];
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED_AFTER(work, 8 * ATTN_BLOCK * CHUNK))
            return ATTNRUN_E_CANCELLED;
        int64_t plane = task;
        const int64_t pixel = op_take(&plane, s->chunks) * CHUNK;
        const int64_t at = (plane * s->pixels + pixel) * ATTN_BLOCK;
        const int64_t gate = (s->shared ? plane % blocks : plane) * ATTN_BLOCK;
        const int64_t n = min64(s->pixels - pixel, CHUNK);
        if (step->in[0].dtype == ATTNRUN_U8) {
            gate_bytes(step, at, gate, n);
            continue;
        }
        step->kernels->blocked_gate_f32((float *)step->y[0].data + at,
                                        (const float *)step->x[0].data + at,
                                        (const float *)step->x[1].data + gate, (size_t)n);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_blocked_gate_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "BlockedGate",
    .since = 1,
    .state_bytes = sizeof(struct gate_state),
    .args_bytes = sizeof(struct gate_args),
    .attrs = gate_attrs,
    .inputs = "X:T gate:T",
    .outputs = "Y:T",
    .types = "T=f32,u8",
    .infer = blocked_gate_infer,
    .run = blocked_gate_run,
    .cost = "O(n)",
};
