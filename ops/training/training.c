/* training.c - groups of tensors of an optimizer; see training.h. */
#include "training.h"

enum { RATE, COUNT, FIRST };

static attn_status one_element(const attnrun_step *step, int in)
{
    const attnrun_type *type = &step->in[in];
    if (step->concrete && op_count(type, 0, type->rank) != 1)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected one element");
    return ATTNRUN_OK;
}

/* Input `in` has the dims and dtype of `like`. */
static attn_status same_type(const attnrun_step *step, int in, int like)
{
    const attnrun_type *type = &step->in[in], *first = &step->in[like];
    if (type->dtype != first->dtype)
        return op_fail_input(step, in, ATTNRUN_E_DTYPE, "expected %s as in input %d",
                             attnrun_dtype_name(first->dtype), like);
    if (type->rank < 0 || first->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, first->rank));
    for (int d = 0; d < first->rank; d++)
        TRY(op_need_dim(step, in, d, first->dims[d], "the dim of what it belongs to"));
    return ATTNRUN_OK;
}

attn_status op_training_infer(attnrun_step *step, int in_kinds, int out_kinds,
                              const int *like)
{
    struct training_state *state = step->state;
    int n = (step->n_in - FIRST) / in_kinds;
    int64_t tasks = 0;
    if (n < 1 || n * in_kinds != step->n_in - FIRST || step->n_out > n * out_kinds)
        return op_fail(step, ATTNRUN_E_MODEL,
                       "%d inputs and %d outputs, expected 2 and %d per tensor, and %d",
                       step->n_in, step->n_out, in_kinds, out_kinds);
    TRY(one_element(step, RATE));
    TRY(one_element(step, COUNT));
    for (int i = 0; i < n; i++) {
        for (int kind = 0; kind < in_kinds; kind++) {
            if (!op_has_in(step, FIRST + kind * n + i))
                return op_fail(step, ATTNRUN_E_INPUT, "input %d is missing",
                               FIRST + kind * n + i);
            TRY(same_type(step, FIRST + kind * n + i, FIRST + i));
        }
        const attnrun_type *x = &step->in[FIRST + i];
        int64_t count = step->concrete ? op_count(x, 0, x->rank) : 0;
        if (count < 0 || !ck_add(tasks, op_chunks(count), &tasks))
            return op_fail(step, ATTNRUN_E_LIMIT, "the tensors are too large");
    }
    for (int out = 0; out < step->n_out; out++)
        if (op_has_out(step, out))
            TRY(op_out_like(step, out, FIRST + like[out / n] * n + out % n));
    state->n = n;
    op_tasks(step, 0, tasks, OP_CHUNK * 5);
    return ATTNRUN_OK;
}

/* The tensor that a task works on: *task becomes its chunk in it. */
static int64_t tensor_of(const attnrun_step *step, int64_t *task)
{
    int64_t i = 0, chunks;
    while ((chunks = op_chunks(tensor_count(&step->x[FIRST + i]))) <= *task) {
        *task -= chunks;
        i++;
    }
    return i;
}

attn_status op_training_run(const attnrun_step *step, const attnrun_work *work,
                            int in_kinds, int out_kinds, training_update *update)
{
    const struct training_state *state = step->state;
    struct training_span span = { .t = *(const int64_t *)step->x[COUNT].data,
                                  .r = training_get(&step->x[RATE], 0) };
    attnrun_tensor none = { .kind = ATTNRUN_ABSENT };
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t chunk = task, i = tensor_of(step, &chunk);
        int64_t count = tensor_count(&step->x[FIRST + i]);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        span.begin = chunk * OP_CHUNK;
        span.end = count - span.begin < OP_CHUNK ? count : span.begin + OP_CHUNK;
        for (int kind = 0; kind < in_kinds; kind++)
            span.in[kind] = &step->x[FIRST + kind * state->n + i];
        for (int kind = 0; kind < out_kinds; kind++) {
            int64_t out = kind * state->n + i;
            span.out[kind] = out < step->n_out ? &step->y[out] : &none;
        }
        update(step->args, &span);
    }
    return ATTNRUN_OK;
}
