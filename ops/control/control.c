/* control.c - values between iterations of a subgraph. control.h has the interface. */
#include "control.h"

/* Values that are copied deeply; others have two buffers. */
static bool carry_is_deep(const attnrun_tensor *value)
{
    return value->kind != ATTNRUN_TENSOR || value->dtype == ATTNRUN_STRING;
}

attn_status op_carry_set(const attnrun_step *step, int out, struct op_carry *carry,
                         const attnrun_tensor *from)
{
    carry->mark = op_heap_mark(step, out);
    if (carry_is_deep(from))
        return op_heap_copy(step, out, from, &carry->now);
    if (from->data == carry->now.data && carry->now.data != NULL &&
        tensor_is_dense(from)) {
        carry->now = *from;
        return ATTNRUN_OK;
    }
    int32_t next = 1 - carry->last;
    int64_t bytes = tensor_bytes(from);
    if (bytes < 0)
        return op_fail(step, ATTNRUN_E_MEMORY, "a carried value overflows");
    if (carry->buffer[next] == NULL || carry->bytes[next] < bytes) {
        int64_t room = carry->bytes[next] * 2 > bytes ? carry->bytes[next] * 2 : bytes;
        carry->buffer[next] = op_heap(step, out, room);
        if (carry->buffer[next] == NULL)
            return ATTNRUN_E_MEMORY;
        carry->bytes[next] = room;
    }
    attnrun_tensor to = *from;
    tensor_set_dense(&to);
    to.data = carry->buffer[next];
    tensor_copy(&to, from);
    carry->now = to;
    carry->last = next;
    return ATTNRUN_OK;
}

void op_carry_release(const attnrun_step *step, int out, struct op_carry *carry)
{
    if (!carry_is_deep(&carry->now))
        return;
    op_heap_release(step, out, carry->mark);
    memset(carry->buffer, 0, sizeof carry->buffer); /* of a tensor that it was before */
}

static attn_status check_item(const attnrun_step *step, int out,
                              const struct op_stack *stack, const attnrun_tensor *from)
{
    if (from->kind != ATTNRUN_TENSOR || from->rank >= ATTNRUN_MAX_RANK ||
        dtype_bits(from->dtype) < 8)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "output %d stacks values that are not tensors of rank < %d with "
                       "elements of whole bytes",
                       out, ATTNRUN_MAX_RANK);
    bool same = stack->n == 0 ||
                (from->dtype == stack->item.dtype && from->rank == stack->item.rank &&
                 memcmp(from->dims, stack->item.dims, (size_t)from->rank * 8) == 0);
    if (same)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_SHAPE,
                   "output %d: iteration %lld gives a shape or type that differs from "
                   "that of iteration 0",
                   out, (long long)stack->n);
}

enum { FIRST_ITERATIONS = 16, EXPECTED_BYTES = 16 << 20 };

attn_status op_stack_push(const attnrun_step *step, int out, struct op_stack *stack,
                          const attnrun_tensor *from, int64_t expected)
{
    TRY(check_item(step, out, stack, from));
    int64_t bytes = tensor_bytes(from), room = 0;
    stack->item = *from;
    tensor_set_dense(&stack->item);
    if (stack->n == stack->capacity) {
        int64_t iterations = stack->capacity > 0 ? stack->capacity * 2 : FIRST_ITERATIONS;
        if (stack->capacity == 0 && expected > 0 && ck_mul(expected, bytes, &room) &&
            room <= EXPECTED_BYTES)
            iterations = expected;
        if (!ck_mul(iterations, bytes, &room))
            return op_fail(step, ATTNRUN_E_MEMORY, "output %d overflows", out);
        TRY(op_check_growth(step, out, room));
        char *grown = op_heap(step, out, room);
        if (grown == NULL)
            return ATTNRUN_E_MEMORY;
        if (stack->n > 0)
            memcpy(grown, stack->data, (size_t)(stack->n * bytes));
        stack->data = grown;
        stack->capacity = iterations;
    }
    stack->item.data = stack->data + stack->n++ * bytes;
    tensor_copy(&stack->item, from);
    return from->dtype == ATTNRUN_STRING ? op_heap_strings(step, out, &stack->item)
                                         : ATTNRUN_OK;
}

attn_status op_empty_out(const attnrun_step *step, int out, int graph, int result,
                         int more)
{
    const attnrun_type *type = &step->out[out];
    const int declared = more + op_graph_declared_rank(step, graph, result);
    int64_t dims[ATTNRUN_MAX_RANK] = { 0 };
    int rank = type->rank;
    for (int i = 0; i < rank; i++)
        dims[i] = dim_is_const(type->dims[i]) ? type->dims[i].value : 0;
    if (rank < 0)
        rank = declared <= ATTNRUN_MAX_RANK ? declared : more;
    return attnrun_step_alloc(step, out, type->dtype, rank, dims);
}

attn_status op_stack_finish(const attnrun_step *step, int out, struct op_stack *stack,
                            int graph, int result)
{
    int64_t dims[ATTNRUN_MAX_RANK];
    attnrun_tensor made;
    if (!op_has_out(step, out))
        return ATTNRUN_OK;
    if (stack->n == 0)
        return op_empty_out(step, out, graph, result, 1);
    dims[0] = stack->n;
    memcpy(dims + 1, stack->item.dims, (size_t)stack->item.rank * 8);
    TRY(attnrun_tensor_make(stack->item.dtype, stack->item.rank + 1, dims, stack->data,
                            &made));
    if (step->y[out].data == NULL) {
        step->y[out] = made;
        return ATTNRUN_OK;
    }
    TRY(attnrun_step_alloc(step, out, made.dtype, made.rank, made.dims));
    tensor_copy(&step->y[out], &made);
    return ATTNRUN_OK;
}

attn_status op_type_merge(attnrun_step *step, const attnrun_type *a,
                          const attnrun_type *b, attnrun_type *merged)
{
    const attnrun_type *known = a->kind == ATTNRUN_ABSENT || a->dtype == 0 ? b : a;
    if (known == b || b->kind == ATTNRUN_ABSENT || b->dtype == 0) {
        *merged = *known; /* one of them is not known at all */
        op_value_forget(merged);
        return ATTNRUN_OK;
    }
    if (a->kind != b->kind || a->dtype != b->dtype || a->key_dtype != b->key_dtype)
        return op_fail(step, ATTNRUN_E_DTYPE,
                       "its subgraphs give %s and %s for one output",
                       attnrun_dtype_name(a->dtype), attnrun_dtype_name(b->dtype));
    *merged = *a;
    if (a->rank != b->rank || a->rank < 0) {
        op_value_forget(merged);
        return ATTNRUN_OK;
    }
    for (int i = 0; i < a->rank; i++)
        if (!dim_equal(a->dims[i], b->dims[i]))
            merged->dims[i] = attnrun_dim_unknown(step);
    return ATTNRUN_OK;
}

attn_status op_graph_check(const attnrun_step *step, int graph, int n_inputs,
                           int n_outputs)
{
    int inputs = op_graph_n_inputs(step, graph),
        outputs = op_graph_n_outputs(step, graph);
    if (inputs != n_inputs || outputs != n_outputs)
        return op_fail(step, ATTNRUN_E_MODEL,
                       "its subgraph has %s and %s, expected %d and %d",
                       attn_plural(inputs, "input"), attn_plural(outputs, "output"),
                       n_inputs, n_outputs);
    return ATTNRUN_OK;
}
