/* sequence_map.c - SequenceMap: runs a subgraph on the i-th elements of its sequences;
 * each iteration receives tensors whole. The results are sequences. Cost: that of the
 * body for each element, and a copy of its results. Source: ONNX SequenceMap-17. */
#include "control.h"

struct map_args {
    int32_t body;
};
static const attnrun_attr_def map_attrs[] = { ATTR_GRAPH(struct map_args, body),
                                              ATTR_END };

static attn_status map_infer(attnrun_step *step)
{
    const struct map_args *args = step->args;
    attnrun_type *inputs, *results;
    if (args->body < 0)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute body is missing");
    TRY(op_graph_check(step, args->body, step->n_in, step->n_out));
    TRY(op_types(step, step->n_in, &inputs));
    TRY(op_types(step, step->n_out, &results));
    for (int i = 0; i < step->n_in; i++) {
        inputs[i] = step->in[i];
        if (inputs[i].kind != ATTNRUN_SEQUENCE)
            continue;
        inputs[i].kind = ATTNRUN_TENSOR;
        op_value_forget(&inputs[i]);
    }
    TRY(op_graph_infer(step, args->body, step->n_in, inputs, step->n_out, results));
    for (int i = 0; i < step->n_out; i++) {
        if (results[i].kind != ATTNRUN_TENSOR && results[i].kind != ATTNRUN_ABSENT)
            return op_fail(
                step, ATTNRUN_E_UNSUPPORTED,
                "output %d would be a sequence of something other than tensors", i);
        TRY(op_value_unknown(step, i, ATTNRUN_SEQUENCE, results[i].dtype));
    }
    step->scratch_bytes = (int64_t)sizeof(attnrun_tensor) * (step->n_in + step->n_out);
    return ATTNRUN_OK;
}

static attn_status map_element(const attnrun_step *step, const attnrun_work *work,
                               int64_t k)
{
    const struct map_args *args = step->args;
    attnrun_tensor *inputs = work->scratch, *outputs = inputs + step->n_in;
    for (int i = 0; i < step->n_in; i++) {
        inputs[i] = step->x[i];
        if (step->x[i].kind == ATTNRUN_SEQUENCE)
            inputs[i] = ((const attnrun_tensor *)step->x[i].data)[k];
    }
    TRY(op_graph_run(step, work, args->body, step->n_in, inputs, step->n_out, outputs));
    for (int i = 0; i < step->n_out; i++)
        if (op_has_out(step, i)) {
            if (outputs[i].kind != ATTNRUN_TENSOR || outputs[i].dtype != step->y[i].dtype)
                return op_fail(step, ATTNRUN_E_DTYPE,
                               "output %d: element %lld is %s, expected a tensor of %s",
                               i, (long long)k, attn_tensor_format(&outputs[i]),
                               attnrun_dtype_name(step->y[i].dtype));
            TRY(op_heap_copy(step, i, &outputs[i],
                             (attnrun_tensor *)step->y[i].data + k));
        }
    return ATTNRUN_OK;
}

static attn_status map_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t n = step->x[0].dims[0];
    if (step->x[0].kind != ATTNRUN_SEQUENCE)
        return op_fail_input(step, 0, ATTNRUN_E_DTYPE, "expected a sequence");
    for (int i = 1; i < step->n_in; i++)
        if (step->x[i].kind == ATTNRUN_SEQUENCE && step->x[i].dims[0] != n)
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "input %d has %s, expected %lld as in input 0", i,
                           attn_plural(step->x[i].dims[0], "element"), (long long)n);
    for (int i = 0; i < step->n_out; i++)
        TRY(op_sequence(step, i, n));
    for (int64_t k = 0; k < n; k++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(map_element(step, work, k));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_sequence_map_17 = {
    OP_ROW,
    .flags = ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_GRAPHS,
    .name = "SequenceMap",
    .since = 17,
    .inputs = "input_sequence:any additional_inputs:any*!",
    .outputs = "out_sequence:any*!",
    .args_bytes = sizeof(struct map_args),
    .attrs = map_attrs,
    .infer = map_infer,
    .run = map_run
};
