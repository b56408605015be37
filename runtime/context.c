/* context.c - the context object: inputs bound, runs, outputs, plans as users see them.
 *
 * In: tensors of the caller. Out: tensors over the memory of the context,
 * until its next run. context_api.c has the calls themselves; frame.c runs the graph. */
#include <math.h>
#include <stdio.h>

#include "abi.h"
#include "context.h"
#include "maps.h"
#include "operand.h"
#include "own.h"
#include "state.h"

/* ---- life ---- */

/* What a value that runs show may show of the inputs' memory besides numbers, which are copied. */
void attn_context_note_shown(struct attnrun_context *context, const attnrun_type *type)
{
    bool tensor = type->kind == ATTNRUN_TENSOR;
    context->shows_elements = context->shows_elements || !tensor;
    context->shows_strings = context->shows_strings || !tensor || type->dtype == 0 ||
                             type->dtype == ATTNRUN_STRING;
}

/* Of the tensors that a run is given: inputs, and what is made of them. */
static int64_t bound_bytes(const struct attn_graph *graph)
{
    return ((int64_t)graph->n_inputs + attn_ragged_n(graph) + 1) *
           (int64_t)sizeof(attnrun_tensor);
}

static attn_status context_init(struct attnrun_context *context,
                                struct attn_memory *memory)
{
    struct attn_graph *graph = context->model->graph;
    context->n_inputs = graph->n_inputs;
    context->n_outputs = graph->n_outputs;
    context->inputs = attn_alloc_zeroed(
        memory, ATTN_MEM_PLAN, (graph->n_inputs + 1) * (int64_t)sizeof *context->inputs);
    context->bound = attn_alloc_zeroed(memory, ATTN_MEM_PLAN, bound_bytes(graph));
    context->outputs =
        attn_alloc_zeroed(memory, ATTN_MEM_PLAN,
                          (graph->n_outputs + 1) * (int64_t)sizeof *context->outputs);
    if (!context->inputs || !context->bound || !context->outputs)
        return ATTNRUN_E_MEMORY;
    TRY(attn_selection_create(memory, graph->n_outputs, &context->selection));
    TRY(attn_model_pack(context->model));
    for (int32_t i = 0; i < graph->n_outputs; i++)
        attn_context_note_shown(context, &graph->values[graph->outputs[i]].type);
    context->copies = (struct attn_heap){ .memory = memory, .kind = ATTN_MEM_HEAP };
    TRY(attn_frame_create(context->model->runtime, memory, graph, &context->control,
                          &context->frame));
    context->frame->selection = &context->selection;
    context->frame->outputs = context->outputs;
    return ATTNRUN_OK;
}

int64_t attn_context_own_bytes(const struct attn_graph *graph)
{
    return (int64_t)sizeof(struct attnrun_context) + 2 * ((int64_t)graph->n_outputs + 1) +
           ((int64_t)graph->n_inputs + graph->n_outputs + 2) *
               (int64_t)sizeof(attnrun_tensor) +
           bound_bytes(graph);
}

attnrun_status attnrun_context_create(attnrun_model *model, attnrun_context **context)
{
    attnrun_error before;
    if (model == NULL || context == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "model or context is NULL");
    attn_call_begin(&before);
    struct attn_memory *memory = attn_runtime_memory(model_of(model)->runtime);
    attnrun_context *made =
        attn_alloc_zeroed(memory, ATTN_MEM_PLAN, (int64_t)sizeof *made);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    made->model = model_of(model);
    attnrun_model_retain(model);
    attn_status status = context_init(made, memory);
    if (status != ATTNRUN_OK) {
        attnrun_context_destroy(made);
        return status;
    }
    *context = made;
    return attn_call_end(ATTNRUN_OK, &before);
}

void attnrun_context_destroy(attnrun_context *context)
{
    if (context == NULL)
        return;
    struct attn_model *model = context->model;
    struct attn_memory *memory = attn_runtime_memory(model->runtime);
    if (context->frame != NULL)
        attn_state_free(memory, context->frame->states);
    attn_heap_release(&context->copies, &context->owned);
    attn_frame_destroy(context->frame);
    attn_free(memory, ATTN_MEM_PLAN, context->inputs,
              (model->graph->n_inputs + 1) * (int64_t)sizeof *context->inputs);
    attn_free(memory, ATTN_MEM_PLAN, context->bound, bound_bytes(model->graph));
    attn_ragged_free(memory, &context->ragged);
    attn_free(memory, ATTN_MEM_PLAN, context->outputs,
              (model->graph->n_outputs + 1) * (int64_t)sizeof *context->outputs);
    attn_selection_free(memory, model->graph->n_outputs, &context->selection);
    attn_free(memory, ATTN_MEM_PLAN, context, (int64_t)sizeof *context);
    attnrun_model_release((attnrun_model *)model);
}

void attn_context_trim(struct attnrun_context *context)
{
    attn_frame_trim(context->frame);
    attn_heap_release(&context->copies, &context->owned);
}

/* ---- inputs ---- */

static attn_status fail_input(const struct attnrun_context *context, int32_t index,
                              attn_status status, const attnrun_tensor *given)
{
    const struct attn_graph *graph = context->model->graph;
    const struct attn_value *value = &graph->values[graph->inputs[index]];
    attn_fail(status, "input %d '%s' is given as %s, but the model takes %s", index,
              attn_quote(value->name), attn_tensor_format(given),
              attn_type_format(context->model->dims, &value->type));
    attn_fail_tensor(value->name);
    return status;
}

attn_status attn_context_check_input(const struct attnrun_context *context, int32_t index,
                                     const attnrun_tensor *tensor)
{
    const struct attn_graph *graph = context->model->graph;
    const attnrun_type *type = &graph->values[graph->inputs[index]].type;
    TRY(attn_input_check_form(tensor, index, graph->values[graph->inputs[index]].name));
    if (!attn_value_may_be(type, tensor->kind, type->dtype))
        return fail_input(context, index, ATTNRUN_E_INPUT, tensor);
    if (!attn_value_may_be(type, tensor->kind, tensor->dtype))
        return fail_input(context, index, ATTNRUN_E_DTYPE, tensor);
    if (tensor->kind != ATTNRUN_TENSOR)
        return ATTNRUN_OK;
    if (type->rank >= 0 && type->rank != tensor->rank)
        return fail_input(context, index, ATTNRUN_E_SHAPE, tensor);
    for (int i = 0; i < type->rank; i++)
        if (dim_is_const(type->dims[i]) && type->dims[i].value != tensor->dims[i])
            return fail_input(context, index, ATTNRUN_E_SHAPE, tensor);
    return ATTNRUN_OK;
}

/* Elements of a sequence and what an optional holds are of the dtype that the model says;
 * *value then says it, too. */
static attn_status check_elements(const struct attnrun_context *context, int32_t index,
                                  attnrun_tensor *value)
{
    char what[160];
    const struct attn_graph *graph = context->model->graph;
    const struct attn_value *input = &graph->values[graph->inputs[index]];
    if (value->kind == ATTNRUN_TENSOR)
        return ATTNRUN_OK;
    snprintf(what, sizeof what, "input %d '%s'", index, attn_quote(input->name));
    if (input->type.dtype != ATTNRUN_UNDEFINED)
        value->dtype = input->type.dtype;
    attn_status status = attn_kind_is_map(value->kind)
                             ? attn_maps_check(value, input->type.key_dtype, what)
                             : attn_value_check_elements(value, what);
    if (status != ATTNRUN_OK)
        attn_fail_tensor(input->name);
    return status;
}

attn_status attn_context_set_input(struct attnrun_context *context, int32_t index,
                                   const attnrun_tensor *tensor)
{
    static int64_t nothing; /* of an empty tensor without memory */
    if (index < 0 || index >= context->n_inputs)
        return attn_fail(ATTNRUN_E_USAGE, "input %d is not in 0..%d", index,
                         context->n_inputs - 1);
    if (tensor == NULL) {
        context->inputs[index] = (attnrun_tensor){ .kind = ATTNRUN_ABSENT };
        return ATTNRUN_OK;
    }
    TRY(attn_context_check_input(context, index, tensor));
    attnrun_tensor value = *tensor;
    TRY(check_elements(context, index, &value));
    TRY(attn_value_check(&value, index));
    context->inputs[index] = value;
    if (tensor->kind == ATTNRUN_TENSOR && tensor->data == NULL)
        context->inputs[index].data = &nothing;
    return ATTNRUN_OK;
}

attn_status attn_context_set_output(struct attnrun_context *context, int32_t index,
                                    const attnrun_tensor *tensor)
{
    if (index < 0 || index >= context->n_outputs)
        return attn_fail(ATTNRUN_E_USAGE, "output %d does not exist", index);
    char what[64];
    snprintf(what, sizeof what, "output %d", index);
    if (tensor != NULL)
        TRY(attn_reserved_check((uint32_t)tensor->reserved, what));
    if (tensor != NULL &&
        (tensor->kind != ATTNRUN_TENSOR || !attn_value_well_formed(tensor) ||
         !tensor_is_dense(tensor) || tensor->dtype == ATTNRUN_STRING))
        return attn_fail(ATTNRUN_E_USAGE, "output %d: the tensor is not dense", index);
    if (tensor != NULL && tensor->data == NULL && tensor_count(tensor) > 0)
        return attn_fail(ATTNRUN_E_USAGE, "output %d: the tensor has no data", index);
    context->outputs[index] =
        tensor ? *tensor : (attnrun_tensor){ .kind = ATTNRUN_ABSENT };
    return ATTNRUN_OK;
}

static attn_status all_inputs_set(const struct attnrun_context *context)
{
    const struct attn_graph *graph = context->model->graph;
    for (int32_t i = 0; i < context->n_inputs; i++)
        if (context->bound[i].kind == ATTNRUN_ABSENT) {
            const struct attn_value *value = &graph->values[graph->inputs[i]];
            attn_fail(ATTNRUN_E_INPUT, "input %d '%s' (%s) is not given", i,
                      attn_quote(value->name),
                      attn_type_format(context->model->dims, &value->type));
            attn_fail_tensor(value->name);
            return ATTNRUN_E_INPUT;
        }
    return ATTNRUN_OK;
}

/* ---- states ---- */

attn_status attn_context_check_pair(const struct attn_model *model, int32_t input,
                                    int32_t output, int64_t capacity_bytes)
{
    const struct attn_graph *graph = model->graph;
    if (input < 0 || input >= graph->n_inputs || output < 0 ||
        output >= graph->n_outputs || capacity_bytes < 0)
        return attn_fail(ATTNRUN_E_USAGE, "there is no pair of input %d and output %d",
                         input, output);
    const attnrun_type *from = &graph->values[graph->outputs[output]].type;
    const attnrun_type *to = &graph->values[graph->inputs[input]].type;
    if (from->kind != to->kind || from->dtype != to->dtype ||
        (from->rank >= 0 && to->rank >= 0 && from->rank != to->rank))
        return attn_fail(ATTNRUN_E_USAGE,
                         "output %d is %s and cannot become input %d, which is %s",
                         output, attn_type_format(model->dims, from), input,
                         attn_type_format(model->dims, to));
    return ATTNRUN_OK;
}

attn_status attn_context_add_state(struct attnrun_context *context, int32_t input,
                                   int32_t output, int64_t capacity_bytes)
{
    TRY(attn_context_check_pair(context->model, input, output, capacity_bytes));
    for (const struct attn_state *s = context->frame->states; s != NULL; s = s->next)
        if (s->input == input)
            return attn_fail(ATTNRUN_E_USAGE, "input %d is a state already", input);
    TRY(attn_state_add(context->frame->memory, &context->frame->states, input, output,
                       capacity_bytes));
    context->frame->states_version++;
    return ATTNRUN_OK;
}

attn_status attn_context_truncate_state(struct attnrun_context *context, int32_t input,
                                        int64_t length)
{
    struct attn_state *s = context->frame->states;
    while (s != NULL && s->input != input)
        s = s->next;
    if (s == NULL || s->tensor.kind == ATTNRUN_ABSENT)
        return attn_fail(ATTNRUN_E_USAGE, "input %d is not a state, or is still empty",
                         input);
    if (s->axis < 0)
        return attn_fail(ATTNRUN_E_USAGE,
                         "no run has made state %d longer along one axis", input);
    if (length < 0 || length > s->tensor.dims[s->axis])
        return attn_fail(ATTNRUN_E_USAGE, "the length %lld is not in 0..%lld",
                         (long long)length, (long long)s->tensor.dims[s->axis]);
    if (dtype_bits(s->tensor.dtype) < 8 &&
        tensor_dims_product(&s->tensor, 0, s->axis) != 1)
        return attn_fail(ATTNRUN_E_USAGE, "elements of state %d share bytes", input);
    s->tensor.dims[s->axis] = length;
    return ATTNRUN_OK;
}

/* Strings, sequences and optionals as they are now; those that an output may show belong
 * to the context until its next run. */
static attn_status own_inputs(struct attnrun_context *context)
{
    struct attn_frame *frame = context->frame;
    for (int32_t i = 0; i < context->n_inputs; i++)
        if (attn_value_is_deep(&context->bound[i]))
            TRY(attn_value_check(&context->bound[i], i));
    attn_frame_forget(frame); /* its outputs may show what is released here */
    attn_heap_release(&context->copies, &context->owned);
    for (int32_t i = 0; i < context->n_inputs; i++) {
        attnrun_tensor *bound = &context->bound[i];
        bool tensor = bound->kind == ATTNRUN_TENSOR;
        if (attn_value_is_deep(bound) &&
            (tensor ? context->shows_strings : context->shows_elements))
            TRY(attn_value_own(&context->copies, &context->owned, bound, bound));
    }
    return ATTNRUN_OK;
}

/* What the run before left becomes this run's input. */
static attn_status load_inputs(struct attnrun_context *context)
{
    if (context->n_inputs > 0)
        memcpy(context->bound, context->inputs,
               (size_t)context->n_inputs * sizeof *context->bound);
    for (const struct attn_state *s = context->frame->states; s != NULL; s = s->next)
        if (s->tensor.kind != ATTNRUN_ABSENT) {
            TRY(attn_context_check_input(context, s->input, &s->tensor));
            context->bound[s->input] = s->tensor;
        }
    TRY(all_inputs_set(context));
    return own_inputs(context);
}

/* ---- runs ---- */

static const char *output_name(const struct attnrun_context *context, int32_t index)
{
    const struct attn_graph *graph = context->model->graph;
    return graph->values[graph->outputs[index]].name;
}

/* False, too, where a poll ends the call. */
static bool dense_finite(const void *data, int32_t dtype, int64_t n)
{
    const attnrun_tensor t = { .dtype = dtype, .data = (void *)(uintptr_t)data };
    const float *x = data;
    for (int64_t i = 0; i < n; i++)
        if (!(dtype == ATTNRUN_F32 ? isfinite(x[i]) : isfinite(tensor_get_real(&t, i))) ||
            attn_stops(i))
            return false;
    return true;
}

/* A complex number is two reals. */
static bool tensor_finite(const attnrun_tensor *t)
{
    const uint32_t reals = ATTN_DT_FLOAT | ATTN_DT(F8E4M3FN) | ATTN_DT(F8E4M3FNUZ) |
                           ATTN_DT(F8E5M2) | ATTN_DT(F8E5M2FNUZ) | ATTN_DT(F8E8M0);
    const bool complex = dtype_in(t->dtype, ATTN_DT(C64) | ATTN_DT(C128));
    if (t->kind != ATTNRUN_TENSOR || !(complex || dtype_in(t->dtype, reals)))
        return true;
    const int32_t dtype = t->dtype == ATTNRUN_C64    ? ATTNRUN_F32
                          : t->dtype == ATTNRUN_C128 ? ATTNRUN_F64
                                                     : t->dtype;
    const int from = attn_tensor_dense_from(t);
    const int64_t n = tensor_dims_product(t, 0, from);
    const int64_t each = tensor_dims_product(t, from, t->rank) * (complex ? 2 : 1);
    bool finite = true;
    for (int64_t k = 0; k < n && finite; k++)
        finite = attn_poll_work(each) == ATTNRUN_OK &&
                 dense_finite(attn_tensor_at(t, from, k), dtype, each);
    return finite;
}

/* All tensors that a value has: of sequences, in optionals, and the values of maps. */
static bool all_finite(const attnrun_tensor *value)
{
    while (value->kind == ATTNRUN_OPTIONAL || value->kind == ATTNRUN_OPTIONAL_SEQUENCE) {
        if (value->data == NULL)
            return true;
        value = value->data;
    }
    const bool list =
        value->kind == ATTNRUN_SEQUENCE || value->kind == ATTNRUN_MAP_SEQUENCE;
    const attnrun_tensor *items = list ? value->data : value;
    bool finite = true;
    for (int64_t i = 0; i < (list ? value->dims[0] : 1) && finite; i++) {
        const attnrun_tensor *t = &items[i];
        if (t->kind == ATTNRUN_MAP && t->data != NULL)
            t = (const attnrun_tensor *)t->data + 1;
        finite = tensor_finite(t);
    }
    return finite;
}

/* What was not written in place is copied once all outputs are as they should be. */
static attn_status give_outputs(struct attnrun_context *context, bool validate)
{
    attnrun_tensor made;
    const uint8_t *modes = context->frame->current->modes;
    for (int32_t i = 0; i < context->n_outputs; i++) {
        if (modes[i] == ATTN_OUTPUT_SKIPPED)
            continue;
        TRY(attn_frame_output(context->frame, i, &made));
        if (validate && !all_finite(&made)) {
            TRY(attn_poll()); /* or the check was left before its end */
            return attn_fail(ATTNRUN_E_NONFINITE, "output %d '%s' is not finite", i,
                             attn_quote(output_name(context, i)));
        }
        TRY(attn_selection_check_output(context->model->graph, i, &made,
                                        &context->outputs[i]));
    }
    for (int32_t i = 0; i < context->n_outputs; i++) {
        if (modes[i] == ATTN_OUTPUT_SKIPPED || context->outputs[i].kind == ATTNRUN_ABSENT)
            continue;
        TRY(attn_frame_output(context->frame, i, &made));
        if (made.data != context->outputs[i].data)
            TRY(attn_tensor_copy_polled(&context->outputs[i], &made));
    }
    return ATTNRUN_OK;
}

/* The outputs of a run that fails here are none of a successful one. */
static attn_status finish_run(struct attnrun_context *context, bool validate)
{
    attn_status status = give_outputs(context, validate);
    if (status == ATTNRUN_OK)
        status = attn_context_keep_states(context);
    if (status != ATTNRUN_OK)
        attn_frame_forget(context->frame);
    return status;
}

/* What was cancelled before is over: a cancel that came too late ends no other call. */
static void start_control(struct attnrun_context *context, int64_t timeout_us)
{
    __atomic_store_n(&context->control.stop, ATTN_GO, __ATOMIC_RELAXED);
    attn_control_start(&context->control, timeout_us);
}

static attn_status start_clock(struct attnrun_context *context,
                               const attnrun_run_options *options)
{
    context->options = (attnrun_run_options){ .struct_size = sizeof context->options };
    context->control.options = &context->options;
    if (options != NULL)
        TRY(attn_struct_read(options, &context->options, sizeof context->options,
                             "attnrun_run_options"));
    TRY(attn_reserved_check((uint32_t)context->options.reserved, "attnrun_run_options"));
    if (context->options.timeout_us < 0)
        return attn_fail(ATTNRUN_E_USAGE,
                         "the timeout is %lld microseconds, expected 0 (none) or more",
                         (long long)context->options.timeout_us);
    bool own = context->options.timeout_us > 0;
    start_control(context, own ? context->options.timeout_us : context->timeout_us);
    return ATTNRUN_OK;
}

static attn_status prepare(struct attnrun_context *context, bool whole,
                           struct attn_plan **plan)
{
    TRY(attn_ragged_read(context->model->graph, context->frame->memory, whole,
                         &context->ragged, context->bound));
    attn_selection_set(context->frame, context->bound);
    TRY(attn_frame_prepare(context->frame, context->bound, plan));
    return attn_selection_check(context->frame, *plan);
}

attn_status attn_context_run(struct attnrun_context *context,
                             const attnrun_run_options *options)
{
    struct attn_plan *plan = NULL;
    TRY(start_clock(context, options));
    struct attn_meter before = attn_poll_enter(&context->control);
    attn_status status = load_inputs(context);
    /* A run that changes states cannot be made again: it has all tokens at once. */
    const bool may_fail = attn_ragged_can_be_whole(context->model->graph),
               whole = context->options.all_tokens != 0 ||
                       (may_fail && context->frame->states != NULL);
    if (status == ATTNRUN_OK)
        status = prepare(context, whole, &plan);
    if (status == ATTNRUN_OK)
        status = attn_context_extend_states(context, plan);
    if (status == ATTNRUN_OK)
        status = attn_frame_run_plan(context->frame, plan, context->bound);
    if (status == ATTNRUN_E_RANGE && may_fail && !whole) {
        status = prepare(context, true, &plan);
        if (status == ATTNRUN_OK)
            status = attn_frame_run_plan(context->frame, plan, context->bound);
    }
    if (status == ATTNRUN_OK)
        status = finish_run(context, context->options.validate != 0);
    if (plan != NULL)
        attn_context_end_states(context, plan, status != ATTNRUN_OK);
    attn_poll_leave(before);
    context->control.options = NULL;
    return status;
}

/* ---- plans ---- */

static attn_status give_plan_info(const struct attnrun_context *context,
                                  const struct attn_plan *plan, attnrun_plan_info *info)
{
    const struct attn_model *model = context->model;
    attnrun_plan_info filled = {
        .n_steps = plan->n_steps,
        .n_blocks = (int32_t)plan->n_blocks,
        .n_dynamic_steps = plan->n_dynamic,
        .peak_step = plan->peak_step,
        .arena_bytes = plan->arena_bytes,
        .lower_bound_bytes = plan->lower_bound,
        .side_heap_bytes = plan->heap_bytes,
        .n_unbounded_steps = plan->n_unbounded,
        .weights_bytes = model->weights_bytes,
        .packed_bytes = model->packed_bytes,
        .folded_bytes = model->folded_bytes,
        .peak_node = "",
        .peak_op = "",
    };
    if (plan->peak_step < plan->n_steps) {
        filled.peak_node = plan->steps[plan->peak_step]->pub.node->name;
        filled.peak_op = plan->steps[plan->peak_step]->pub.node->op_type;
    }
    return attn_struct_write(info, &filled, sizeof filled, "attnrun_plan_info");
}

attn_status attn_context_plan(struct attnrun_context *context,
                              const attnrun_tensor *inputs, attnrun_plan_info *info)
{
    struct attn_plan *plan;
    if (inputs == NULL && context->n_inputs > 0)
        return attn_fail(ATTNRUN_E_USAGE, "inputs is NULL");
    if (info != NULL)
        TRY(attn_struct_check(info, sizeof *info, "attnrun_plan_info"));
    for (int32_t i = 0; i < context->n_inputs; i++)
        TRY(attn_context_check_input(context, i, &inputs[i]));
    start_control(context, context->timeout_us);
    struct attn_meter before = attn_poll_enter(&context->control);
    if (context->n_inputs > 0)
        memcpy(context->bound, inputs, (size_t)context->n_inputs * sizeof *inputs);
    attn_selection_set(context->frame, context->bound);
    attn_status status = attn_ragged_bound(context->model->graph, context->bound);
    if (status == ATTNRUN_OK)
        status = attn_frame_plan(context->frame, context->bound, &plan);
    attn_poll_leave(before);
    TRY(status);
    context->frame->shown = plan;
    return info ? give_plan_info(context, plan, info) : ATTNRUN_OK;
}

attn_status attn_context_reserve(struct attnrun_context *context,
                                 const attnrun_tensor *inputs)
{
    const struct attn_graph *graph = context->model->graph;
    TRY(attn_context_plan(context, inputs, NULL));
    TRY(attn_ragged_reserve(graph, context->frame->memory, &context->ragged,
                            context->bound));
    if (context->frame->states != NULL || graph->ragged != NULL) {
        struct attn_meter before = attn_poll_enter(&context->control);
        const attn_status status =
            attn_frame_rehearse(context->frame, context->bound); /* of the plan */
        attn_poll_leave(before);
        TRY(status);
    }
    TRY(attn_frame_reserve(context->frame, context->frame->shown));
    if (context->frame->states == NULL)
        return ATTNRUN_OK;
    attn_frame_forget(context->frame); /* outputs may show the memory of a state */
    return attn_context_reserve_states(context, context->frame->shown);
}

attn_status attn_context_memory(struct attnrun_context *context,
                                attnrun_memory_info *info)
{
    const struct attn_frame *frame = context->frame;
    attnrun_memory_info filled = { .arena_bytes = attn_frame_arena_bytes(frame),
                                   .side_heap_bytes = frame->control->heap.peak_bytes };
    if (frame->current != NULL)
        filled.arena_used_bytes = frame->current->arena_bytes;
    for (int i = 0; i < ATTN_MAX_PLANS; i++)
        filled.n_plans += frame->plans[i] != NULL;
    return attn_struct_write(info, &filled, sizeof filled, "attnrun_memory_info");
}
