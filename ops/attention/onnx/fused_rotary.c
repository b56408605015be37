/* fused_rotary.c - FusedRotary: Y = x cosine + (-x2, x1) sine, where x1 and x2 are the
 * halves of x's last dim. Rewrite passes write it for a decomposed rotary embedding.
 *
 * x             f32 (batch, heads, tokens, dim); by_token: (batch, tokens, heads, dim)
 * cosine, sine  f32 (batch or 1, 1, tokens or 1, dim), where leading dims may be absent.
 *               Their two halves may differ, as those of a file may
 * Y             (batch, heads, tokens, dim)
 *
 * Domain attnrun.fused: exporters never write it. Cost: one pass over x. Source: Su 2021,
 * arXiv:2104.09864. */
#include "../../../runtime/op.h"
#include "../../tile.h"

struct fused_rotary_args {
    int64_t by_token;
};
static const attnrun_attr_def fused_rotary_attrs[] = {
    ATTR_FLAG(struct fused_rotary_args, by_token, 0),
    ATTR_END,
};

enum { X, COSINE, SINE, TASK_ELEMENTS = 32768 };

struct fused_rotary_state {
    int64_t batch, heads, tokens, half;
    int64_t x_head, x_token;              /* elements */
    int64_t batch_step[3], token_step[3]; /* of COSINE, SINE */
    int64_t tokens_per_task, blocks;
};

/* Plans the elements from one sample and one token to the next. */
static attn_status plan_angles(const attnrun_step *step, int in,
                               struct fused_rotary_state *s)
{
    const attnrun_type *t = &step->in[in];
    const int64_t want[4] = { s->batch, 1, s->tokens, 2 * s->half };
    int64_t stride = 1, strides[4] = { 0, 0, 0, 0 };
    TRY(op_need_rank_between(step, in, 1, 4));
    for (int i = t->rank - 1, at = 3; i >= 0; i--, at--) {
        int64_t dim = t->dims[i].value;
        if (dim != want[at] && (dim != 1 || at == 3))
            return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                                 "expected 1 or %lld in dim %d", (long long)want[at], i);
        strides[at] = dim == 1 ? 0 : stride;
        stride *= dim;
    }
    s->batch_step[in] = strides[0];
    s->token_step[in] = strides[2];
    return ATTNRUN_OK;
}

static attn_status fused_rotary_infer(attnrun_step *step)
{
    const struct fused_rotary_args *args = step->args;
    struct fused_rotary_state *s = step->state;
    const bool by_token = args->by_token != 0;
    const attnrun_type *x = &step->in[X];
    TRY(op_need_rank(step, X, 4));
    attnrun_dim y[4] = { x->dims[0], x->dims[by_token ? 2 : 1], x->dims[by_token ? 1 : 2],
                         x->dims[3] };
    TRY(op_out(step, 0, ATTNRUN_F32, x->rank < 0 ? -1 : 4, y));
    if (!step->concrete)
        return ATTNRUN_OK;
    if (y[3].value % 2 != 0)
        return op_fail_input(step, X, ATTNRUN_E_SHAPE, "expected an even last dim");
    if (op_count(&step->out[0], 0, 4) == 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    s->batch = y[0].value;
    s->heads = y[1].value;
    s->tokens = y[2].value;
    s->half = y[3].value / 2;
    s->x_head = by_token ? 2 * s->half : s->tokens * 2 * s->half;
    s->x_token = by_token ? s->heads * 2 * s->half : 2 * s->half;
    TRY(plan_angles(step, COSINE, s));
    TRY(plan_angles(step, SINE, s));
    s->tokens_per_task = TASK_ELEMENTS / (2 * s->half);
    s->tokens_per_task = s->tokens_per_task < 1           ? 1
                         : s->tokens_per_task > s->tokens ? s->tokens
                                                          : s->tokens_per_task;
    s->blocks = ceil_div(s->tokens, s->tokens_per_task);
    op_tasks(step, 0, s->batch * s->heads * s->blocks, s->tokens_per_task * s->half * 2);
    return ATTNRUN_OK;
}

static void rotate(float *restrict y, const float *restrict x, const float *restrict c,
                   const float *restrict s, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        y[i] = a * c[i] - b * s[i];
        y[i + half] = b * c[i + half] + a * s[i + half];
    }
}

static attn_status fused_rotary_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct fused_rotary_state *s = step->state;
    const int64_t dim = 2 * s->half;
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct op_task at = op_task_at(task, s->heads, s->blocks);
        const int64_t first = at.block * s->tokens_per_task, head = at.head, b = at.b;
        int64_t end = first + s->tokens_per_task;
        end = end < s->tokens ? end : s->tokens;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const float *x = (const float *)step->x[X].data + b * s->heads * s->tokens * dim +
                         head * s->x_head;
        float *y = (float *)step->y[0].data + (b * s->heads + head) * s->tokens * dim;
        const float *c = (const float *)step->x[COSINE].data + b * s->batch_step[COSINE];
        const float *sine = (const float *)step->x[SINE].data + b * s->batch_step[SINE];
        for (int64_t i = first; i < end; i++)
            rotate(y + i * dim, x + i * s->x_token, c + i * s->token_step[COSINE],
                   sine + i * s->token_step[SINE], s->half);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_fused_rotary_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "FusedRotary",
    .since = 1,
    .inputs = "x:T cosine:T sine:T",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct fused_rotary_args),
    .state_bytes = sizeof(struct fused_rotary_state),
    .attrs = fused_rotary_attrs,
    .infer = fused_rotary_infer,
    .run = fused_rotary_run,
    .cost = "O(n d)",
};
