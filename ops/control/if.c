/* if.c - If: runs one of two subgraphs, which have no inputs of their own, by a
 * condition.
 *
 * cond   one b8; outputs: those of the branch; both branches give the same types
 *
 * A branch whose shapes cannot be right (exporters leave such branches) or are over a limit
 * matters only when it is taken. Cost: that of the branch, and a copy of its outputs. Source:
 * ONNX If-1. */
#include "control.h"

struct if_args {
    int32_t then_branch, else_branch;
};
static const attnrun_attr_def if_attrs[] = { ATTR_GRAPH(struct if_args, then_branch),
                                             ATTR_GRAPH(struct if_args, else_branch),
                                             ATTR_END };

/* Types of a branch; ABSENT ones where its shapes do not fit, or are too large. */
static attn_status branch_types(attnrun_step *step, int graph, attnrun_type *types,
                                bool must_fit)
{
    attn_status status;
    memset(types, 0, (size_t)step->n_out * sizeof *types);
    status = op_graph_infer(step, graph, 0, NULL, step->n_out, types);
    if (!must_fit && (status == ATTNRUN_E_SHAPE || status == ATTNRUN_E_ATTR ||
                      status == ATTNRUN_E_RANGE || status == ATTNRUN_E_LIMIT)) {
        memset(types, 0, (size_t)step->n_out * sizeof *types);
        return ATTNRUN_OK;
    }
    return status;
}

static attn_status both_branches(attnrun_step *step, attnrun_type *types)
{
    const struct if_args *args = step->args;
    attnrun_type *others;
    TRY(op_types(step, step->n_out, &others));
    TRY(branch_types(step, args->then_branch, types, false));
    bool fits = step->n_out == 0 || types[0].kind != ATTNRUN_ABSENT;
    TRY(branch_types(step, args->else_branch, others, !fits));
    for (int i = 0; i < step->n_out; i++)
        TRY(op_type_merge(step, &types[i], &others[i], &types[i]));
    return ATTNRUN_OK;
}

static attn_status condition(const attnrun_step *step, bool *value)
{
    if (tensor_count(&step->x[0]) != 1)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected one element");
    *value = *(const uint8_t *)step->x[0].data != 0;
    return ATTNRUN_OK;
}

static attn_status if_infer(attnrun_step *step)
{
    const struct if_args *args = step->args;
    attnrun_type *types;
    bool taken = false;
    if (args->then_branch < 0 || args->else_branch < 0)
        return op_fail(step, ATTNRUN_E_ATTR, "a branch is missing");
    TRY(op_graph_check(step, args->then_branch, 0, step->n_out));
    TRY(op_graph_check(step, args->else_branch, 0, step->n_out));
    TRY(op_types(step, step->n_out, &types));
    if (op_known(step, 0)) {
        TRY(condition(step, &taken));
        TRY(branch_types(step, taken ? args->then_branch : args->else_branch, types,
                         true));
    } else {
        TRY(both_branches(step, types));
    }
    step->scratch_bytes = step->n_out * (int64_t)sizeof(attnrun_tensor);
    for (int i = 0; i < step->n_out; i++) {
        if (!op_has_out(step, i))
            continue;
        step->out[i] = types[i];
        if (types[i].dtype == ATTNRUN_STRING)
            op_value_forget(&step->out[i]); /* dynamic: its bytes need memory */
    }
    return ATTNRUN_OK;
}

static attn_status if_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct if_args *args = step->args;
    attnrun_tensor *outputs = work->scratch;
    bool taken = false;
    TRY(condition(step, &taken));
    TRY(op_graph_run(step, work, taken ? args->then_branch : args->else_branch, 0, NULL,
                     step->n_out, outputs));
    for (int i = 0; i < step->n_out; i++)
        TRY(op_value_out(step, i, &outputs[i]));
    return ATTNRUN_OK;
}

const attnrun_op_def op_if_1 = { OP_ROW,
                                 .flags = ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_GRAPHS,
                                 .name = "If",
                                 .since = 1,
                                 .inputs = "cond:b8",
                                 .outputs = "outputs:any*!",
                                 .args_bytes = sizeof(struct if_args),
                                 .attrs = if_attrs,
                                 .infer = if_infer,
                                 .run = if_run };
