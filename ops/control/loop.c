/* loop.c - Loop: for (i = 0; i < M && cond; i++) (cond, v…, s…) = body(i, cond, v…).
 *
 * M, cond   i64 and b8, optional: no bound, true. With M < 0 there is no iteration
 * v         values carried from iteration to iteration, tensors or sequences, of any
 *           shape in each
 * s         results stacked along a new first axis, which grow by doubling
 *
 * The step is a dynamic-shape step, because the number of iterations is known only at
 * run. Cost: that of the body in each iteration, and a copy of v and s; of a sequence to whose end
 * the body only appends, a copy of what it appends. Source: ONNX Loop-1, 11, 13, 16. */
#include "../../runtime/graph.h"
#include "control.h"

struct loop_args {
    int32_t body;
};
static const attnrun_attr_def loop_attrs[] = { ATTR_GRAPH(struct loop_args, body),
                                               ATTR_END };

/* Bookkeeping in scratch. */
struct loop {
    int n_carried, n_stacked;
    attnrun_tensor *inputs, *outputs; /* of the body */
    struct op_carry *carries;
    struct op_stack *stacks;
    int64_t
        *rooms; /* of sequences that are appended to: elements of memory; -1: of others */
};

static int carried(const attnrun_step *step)
{
    return step->n_in > 2 ? step->n_in - 2 : 0;
}

/* The iteration number and the condition are scalars. The bodies of some producers declare them as
 * one element of rank 1, and get them so. */
static int counter_rank(const attnrun_step *step, int input)
{
    const struct loop_args *args = step->args;
    return op_graph_input_rank(step, args->body, input) == 1;
}

/* What the body takes: carried values may change their shape, so only dtypes are told. */
static void body_inputs(const attnrun_step *step, attnrun_type *inputs)
{
    inputs[0] = (attnrun_type){ .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_I64 };
    inputs[1] = (attnrun_type){ .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_BOOL };
    for (int i = 0; i < 2; i++) {
        inputs[i].rank = counter_rank(step, i);
        inputs[i].dims[0] = dim_of(1);
    }
    for (int i = 0; i < carried(step); i++) {
        inputs[2 + i] = step->in[2 + i];
        op_value_forget(&inputs[2 + i]);
    }
}

static attn_status loop_out(attnrun_step *step, int i, const attnrun_type *result)
{
    attnrun_type *out = &step->out[i];
    if (i < carried(step)) {
        const attnrun_type *initial = &step->in[2 + i];
        bool other = initial->dtype == result->dtype &&
                     (initial->kind == ATTNRUN_OPTIONAL ||
                      initial->kind == ATTNRUN_OPTIONAL_SEQUENCE) &&
                     initial->kind != result->kind;
        *out = *result;
        if (other) /* an optional at first, then what it holds */
            op_value_forget(out);
        else
            TRY(op_type_merge(step, initial, result, out));
    } else {
        if (result->kind != ATTNRUN_TENSOR && result->kind != ATTNRUN_ABSENT)
            return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                           "output %d stacks values that are not tensors", i);
        *out = *result;
        out->rank =
            result->rank < 0 || result->rank >= ATTNRUN_MAX_RANK ? -1 : result->rank + 1;
        out->dims[0] = attnrun_dim_unknown(step);
        for (int d = 1; d < out->rank; d++)
            out->dims[d] = result->dims[d - 1];
    }
    if (step->concrete && i < carried(step))
        op_value_forget(out); /* dynamic: its heap is freed after each run */
    return ATTNRUN_OK;
}

static attn_status loop_infer(attnrun_step *step)
{
    const struct loop_args *args = step->args;
    attnrun_type *inputs, *results;
    int n = carried(step);
    if (args->body < 0)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute body is missing");
    TRY(op_graph_check(step, args->body, n + 2, step->n_out + 1));
    if (step->n_out < n)
        return op_fail(step, ATTNRUN_E_MODEL,
                       "it has %s, expected at least %d, one for each carried value",
                       attn_plural(step->n_out, "output"), n);
    TRY(op_types(step, n + 2, &inputs));
    TRY(op_types(step, step->n_out + 1, &results));
    body_inputs(step, inputs);
    TRY(op_graph_infer(step, args->body, n + 2, inputs, step->n_out + 1, results));
    for (int i = 0; i < step->n_out; i++)
        if (op_has_out(step, i))
            TRY(loop_out(step, i, &results[i + 1]));
    step->scratch_bytes = (int64_t)sizeof(attnrun_tensor) * (n + 2 + step->n_out + 1) +
                          (int64_t)(sizeof(struct op_carry) + sizeof(int64_t)) * n +
                          (int64_t)sizeof(struct op_stack) * step->n_out;
    return ATTNRUN_OK;
}

/* ---- sequences that grow ---- */

/* All that the body does with carried value i is to append a tensor to it: then it need not see
 * what is there already. */
static bool body_appends(const attnrun_step *step, int i)
{
    const struct attn_node *node = (const void *)step->node;
    const struct loop_args *args = step->args;
    const struct attn_graph *body = node->graphs[args->body];
    const int32_t in = body->inputs[2 + i], out = body->outputs[1 + i];
    const struct attn_node *last = attn_graph_producer(body, out);
    return step->x[2 + i].kind == ATTNRUN_SEQUENCE && last != NULL && last->built_in &&
           strcmp(last->pub.op_type, "SequenceInsert") == 0 && last->in[0] == in &&
           (last->pub.n_in < 3 || last->in[2] < 0) && body->values[in].n_uses == 1 &&
           body->values[out].n_uses == 1;
}

/* More room for the list, which has the initial elements at first. */
static attn_status grow_list(const attnrun_step *step, int out, struct op_carry *carry,
                             int64_t *room)
{
    const int64_t n = carry->now.dims[0], size = (int64_t)sizeof(attnrun_tensor);
    const attnrun_tensor *items = carry->now.data;
    attnrun_tensor *grown = NULL;
    int64_t bytes;
    if (n < INT64_MAX / 4 && ck_mul(2 * (n + 1), size, &bytes))
        grown = op_heap(step, out, bytes);
    if (grown == NULL)
        return ATTNRUN_E_MEMORY;
    if (*room > 0)
        TRY(attn_poll_copy(grown, items, n * size));
    for (int64_t k = 0; k < n && *room == 0; k++)
        TRY(op_heap_copy(step, out, &items[k], &grown[k]));
    carry->now.data = grown;
    *room = 2 * (n + 1);
    return ATTNRUN_OK;
}

/* Adds what the body has appended to a sequence of nothing. */
static attn_status append(const attnrun_step *step, int out, struct op_carry *carry,
                          int64_t *room, const attnrun_tensor *made)
{
    if (carry->now.dims[0] >= *room)
        TRY(grow_list(step, out, carry, room));
    carry->now.dtype = made->dtype;
    return op_heap_copy(step, out, made->data,
                        (attnrun_tensor *)carry->now.data + carry->now.dims[0]++);
}

/* ---- run ---- */

static void loop_lay_out(const attnrun_step *step, const attnrun_work *work,
                         struct loop *loop)
{
    loop->n_carried = carried(step);
    loop->n_stacked = step->n_out - loop->n_carried;
    memset(work->scratch, 0, (size_t)step->scratch_bytes);
    loop->inputs = work->scratch;
    loop->outputs = loop->inputs + loop->n_carried + 2;
    loop->carries = (struct op_carry *)(void *)(loop->outputs + step->n_out + 1);
    loop->stacks = (struct op_stack *)(void *)(loop->carries + loop->n_carried);
    loop->rooms = (int64_t *)(void *)(loop->stacks + step->n_out);
    for (int i = 0; i < loop->n_carried; i++) {
        loop->carries[i].now = step->x[2 + i];
        loop->rooms[i] = body_appends(step, i) ? 0 : -1;
    }
}

static attn_status loop_iteration(const attnrun_step *step, const attnrun_work *work,
                                  struct loop *loop, int64_t iterations, bool *go)
{
    const struct loop_args *args = step->args;
    for (int i = 0; i < loop->n_carried; i++) {
        loop->inputs[2 + i] = loop->carries[i].now;
        if (loop->rooms[i] >= 0)
            loop->inputs[2 + i].dims[0] = 0;
    }
    TRY(op_graph_run(step, work, args->body, loop->n_carried + 2, loop->inputs,
                     step->n_out + 1, loop->outputs));
    if (loop->outputs[0].kind != ATTNRUN_TENSOR ||
        loop->outputs[0].dtype != ATTNRUN_BOOL || tensor_count(&loop->outputs[0]) != 1)
        return op_fail(step, ATTNRUN_E_MODEL,
                       "the condition that its body gives is %s, expected b8[]",
                       attn_tensor_format(&loop->outputs[0]));
    *go = *(const uint8_t *)loop->outputs[0].data != 0;
    for (int i = 0; i < loop->n_carried; i++)
        if (loop->rooms[i] >= 0)
            TRY(append(step, i, &loop->carries[i], &loop->rooms[i],
                       &loop->outputs[1 + i]));
        else
            TRY(op_carry_set(step, i, &loop->carries[i], &loop->outputs[1 + i]));
    for (int i = loop->n_carried; i < step->n_out; i++)
        if (op_has_out(step, i))
            TRY(op_stack_push(step, i, &loop->stacks[i - loop->n_carried],
                              &loop->outputs[1 + i], iterations));
    for (int i = 0; i < loop->n_carried; i++)
        if (loop->rooms[i] < 0)
            op_carry_release(step, i, &loop->carries[i]);
    return ATTNRUN_OK;
}

static attn_status loop_finish(const attnrun_step *step, struct loop *loop)
{
    const struct loop_args *args = step->args;
    for (int i = 0; i < loop->n_carried; i++) {
        const attnrun_tensor *now = &loop->carries[i].now;
        bool ours = now->data != NULL &&
                    (now->data == loop->carries[i].buffer[0] ||
                     now->data == loop->carries[i].buffer[1] || loop->rooms[i] > 0);
        if (op_has_out(step, i) && ours && step->y[i].data == NULL)
            step->y[i] = *now; /* its memory is the output's already */
        else
            TRY(op_value_out(step, i, now));
    }
    for (int i = loop->n_carried; i < step->n_out; i++)
        TRY(op_stack_finish(step, i, &loop->stacks[i - loop->n_carried], args->body,
                            i + 1));
    return ATTNRUN_OK;
}

static attn_status loop_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t max = INT64_MAX, iteration = 0;
    bool go = true;
    struct loop loop;
    for (int i = 0; i < 2; i++)
        if (op_has_in(step, i) && tensor_count(&step->x[i]) != 1)
            return op_fail_input(step, i, ATTNRUN_E_SHAPE, "expected one element");
    if (op_has_in(step, 0))
        max = tensor_get_int(&step->x[0], 0);
    if (op_has_in(step, 1))
        go = *(const uint8_t *)step->x[1].data != 0;
    loop_lay_out(step, work, &loop);
    uint8_t cond = 1;
    const int64_t one = 1;
    TRY(attnrun_tensor_make(ATTNRUN_I64, counter_rank(step, 0), &one, &iteration,
                            &loop.inputs[0]));
    TRY(attnrun_tensor_make(ATTNRUN_BOOL, counter_rank(step, 1), &one, &cond,
                            &loop.inputs[1]));
    for (; iteration < max && go; iteration++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(op_check_iterations(step, iteration));
        TRY(loop_iteration(step, work, &loop, max == INT64_MAX ? 0 : max, &go));
    }
    return loop_finish(step, &loop);
}

const attnrun_op_def op_loop_1 = { OP_ROW,
                                   .flags = ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_GRAPHS,
                                   .name = "Loop",
                                   .since = 1,
                                   .inputs = "M:i64? cond:b8? v_initial:any*!",
                                   .outputs = "v_final_and_scan_outputs:any*!",
                                   .args_bytes = sizeof(struct loop_args),
                                   .attrs = loop_attrs,
                                   .infer = loop_infer,
                                   .run = loop_run };
