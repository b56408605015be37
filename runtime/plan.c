/* plan.c - from a graph and input shapes to steps, lifetimes and arena blocks; see plan.h. */
#include "plan.h"

#include "align.h"
#include "dim_sizes.h"
#include "frame.h"
#include "infer.h"
#include "measured.h"
#include "operand.h"
#include "selection.h"

enum {
    PLAN_FOLD_ELEMENTS = 1024, /* small values are computed while planning */
    NODE_BYTES = 16384         /* about what a step costs here, for the polls */
};

struct planning {
    struct attn_frame *frame;
    struct attn_plan *plan;
    struct attn_graph *graph;
};

/* ---- inputs ---- */

bool attn_plan_is_readable(const attnrun_tensor *input)
{
    return input->kind != ATTNRUN_TENSOR ||
           (tensor_is_dense(input) && attn_tensor_is_aligned(input));
}

static int32_t input_value(const struct attn_frame *frame, int32_t index)
{
    int32_t formal = frame->graph->n_inputs;
    return index < formal ? frame->graph->inputs[index]
                          : frame->capture_ids[index - formal];
}

void attn_plan_copy_input(struct attn_plan *plan, int32_t input, int32_t value)
{
    plan->key[input].strides[0] = ATTN_KEY_COPIED;
    tensor_set_dense(&plan->values[value].tensor);
    plan->values[value].place = ATTN_PLACE_ARENA;
    plan->values[value].first = 0;
}

static attn_status plan_inputs(struct planning *planning, const attnrun_tensor *inputs)
{
    struct attn_plan *plan = planning->plan;
    for (int32_t i = 0; i < plan->n_key; i++) {
        int32_t id = input_value(planning->frame, i);
        struct attn_plan_value *value = &plan->values[id];
        plan->key[i] = inputs[i];
        plan->key[i].data = NULL;
        plan->input_copies[i] = -1;
        value->tensor = plan->key[i]; /* data is not looked at, that of maps neither */
        attn_tensor_to_type(&value->tensor, &value->type);
        value->type.key_dtype = planning->graph->values[id].type.key_dtype;
        value->place = ATTN_PLACE_INPUT;
        value->input = i;
        value->root = id;
        plan->key[i].strides[0] = ATTN_KEY_DENSE;
        plan->appends[i].axis = -1;
        if (inputs[i].kind == ATTNRUN_TENSOR)
            tensor_set_dense(&value->tensor);
        if (!attn_plan_is_readable(&inputs[i]))
            attn_plan_copy_input(plan, i, id);
    }
    return ATTNRUN_OK;
}

static void plan_constants(struct planning *planning)
{
    for (int64_t v = 0; v < planning->graph->n_values; v++) {
        const struct attn_value *from = &planning->graph->values[v];
        struct attn_plan_value *value = &planning->plan->values[v];
        value->last_use = value->producer = value->block = value->given = -1;
        value->root = (int32_t)v;
        if (from->data.data == NULL)
            continue;
        value->type = from->type;
        value->tensor = from->data;
        value->place = ATTN_PLACE_CONST;
    }
}

/* ---- steps ---- */

static void load_step(struct planning *planning, struct attn_step *step)
{
    for (int32_t i = 0; i < step->pub.n_in + step->node->n_captures; i++) {
        int32_t id = step->node->in[i];
        if (id < 0)
            continue;
        const struct attn_plan_value *value = &planning->plan->values[id];
        attn_step_in(step)[i] = value->type;
        attn_step_x(step)[i] = value->tensor;
        if (value->place != ATTN_PLACE_CONST || attn_step_is_replaced(step, i))
            attn_step_x(step)[i].data = NULL;
        step->known[i] = value->known;
        step->n_known[i] = value->n_known;
        if (!attn_type_is_concrete(&value->type))
            step->dynamic = true;
    }
}

static bool foldable(const struct attn_step *step)
{
    int64_t total = 0;
    if ((step->pub.node->op->flags &
         (ATTNRUN_OP_IMPURE | ATTNRUN_OP_GRAPHS | ATTNRUN_OP_DYNAMIC)) ||
        step->dynamic)
        return false;
    for (int32_t i = 0; i < step->pub.n_in; i++)
        if (step->node->in[i] >= 0 && step->pub.x[i].data == NULL &&
            !attn_step_is_replaced(step, i))
            return false;
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        const attnrun_type *type = &step->pub.out[i];
        if (type->kind == ATTNRUN_ABSENT)
            continue;
        int64_t count = attn_type_is_concrete(type) ? op_count(type, 0, type->rank) : -1;
        if (count < 0 || type->dtype == ATTNRUN_STRING)
            return false;
        total += count;
        if (total > PLAN_FOLD_ELEMENTS)
            return false;
    }
    return true;
}

/* Computes a small step now; *done is false where it fails, as it will when it is run. */
static attn_status fold_step(struct planning *planning, struct attn_step *step,
                             bool *done)
{
    struct attn_plan *plan = planning->plan;
    attn_status status = attn_measured_execute(planning->graph, step, &plan->heap);
    *done = status == ATTNRUN_OK;
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        int32_t id = step->node->out[i];
        attn_heap_move(&plan->folded, &step->lists[i]);
        if (*done && id >= 0) {
            plan->values[id].tensor = step->pub.y[i];
            plan->values[id].place = ATTN_PLACE_CONST;
        }
        step->pub.y[i].data = NULL;
    }
    return status == ATTNRUN_E_MEMORY || attn_is_stop(status) ? status : ATTNRUN_OK;
}

static void store_outputs(struct planning *planning, struct attn_step *step,
                          bool *all_known)
{
    struct attn_plan *plan = planning->plan;
    *all_known = true;
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        int32_t id = step->node->out[i];
        if (id < 0)
            continue;
        struct attn_plan_value *value = &plan->values[id];
        value->type = step->pub.out[i];
        value->known = step->known_outputs[i].known;
        value->n_known = step->known_outputs[i].n_known;
        if (attn_step_known_tensor(step, i, &plan->pool, &value->tensor))
            value->place = ATTN_PLACE_CONST;
        else
            *all_known = false;
    }
}

static attn_status add_step(struct planning *planning, struct attn_step *step)
{
    struct attn_plan *plan = planning->plan;
    step->index = plan->n_steps;
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        int32_t id = step->node->out[i];
        if (id < 0 || plan->values[id].place == ATTN_PLACE_CONST)
            continue;
        struct attn_plan_value *value = &plan->values[id];
        value->producer = step->index;
        value->place = ATTN_PLACE_DYNAMIC;
        if (attn_type_is_concrete(&value->type)) {
            TRY(attn_type_to_tensor(&value->type, &value->tensor));
            TRY(op_check_growth(&step->pub, i, tensor_bytes(&value->tensor)));
            value->place = ATTN_PLACE_ARENA;
            value->first = step->index;
        }
        step->dynamic = step->dynamic || value->place == ATTN_PLACE_DYNAMIC;
    }
    plan->n_dynamic += step->dynamic;
    step->recheck = step->waits && !step->dynamic;
    plan->has_dynamic |=
        step->dynamic || (step->node->pub.op->flags & ATTNRUN_OP_DYNAMIC) != 0;
    plan->steps[plan->n_steps++] = step;
    return ATTNRUN_OK;
}

static attn_status plan_node(struct planning *planning, struct attn_node *node)
{
    bool done;
    TRY(attn_poll_work(NODE_BYTES));
    struct attn_step *step = attn_step_create(&planning->plan->pool, planning->graph,
                                              node, planning->frame->kernels);
    if (step == NULL)
        return ATTNRUN_E_MEMORY;
    step->frame = planning->frame;
    load_step(planning, step);
    TRY(attn_step_check_inputs(step));
    TRY(attn_step_infer(step));
    for (int32_t i = 0; i < step->pub.n_out; i++)
        TRY(attn_step_check_output(step, i, step->pub.out[i].kind,
                                   step->pub.out[i].dtype));
    store_outputs(planning, step, &done);
    TRY(attn_step_check_memory(step));
    if (!done && foldable(step))
        TRY(fold_step(planning, step, &done));
    return done ? ATTNRUN_OK : add_step(planning, step);
}

/* ---- lifetimes ---- */

static void note_uses(struct planning *planning)
{
    struct attn_plan *plan = planning->plan;
    for (int32_t s = 0; s < plan->n_steps && !attn_stops_node(s); s++) {
        const struct attn_node *node = plan->steps[s]->node;
        for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
            if (node->in[i] >= 0) {
                struct attn_plan_value *value = &plan->values[node->in[i]];
                value->last_use = s;
                if (i >= node->pub.n_in || i >= 32 ||
                    !(node->pub.op->strided_in >> i & 1))
                    value->read_dense = true;
            }
    }
    for (int32_t i = 0; i < planning->graph->n_outputs; i++) {
        struct attn_plan_value *value = &plan->values[planning->graph->outputs[i]];
        if (plan->modes[i] == ATTN_OUTPUT_SKIPPED)
            continue;
        value->last_use = plan->n_steps;
        value->keep = true;
    }
    attn_selection_keep(planning->frame, plan);
}

static void extend(struct attn_plan *plan, int32_t root,
                   const struct attn_plan_value *value, int32_t step)
{
    struct attn_plan_value *owner = &plan->values[root];
    int32_t last = value->last_use > step ? value->last_use : step;
    if (last > owner->last)
        owner->last = last;
    owner->keep = owner->keep || value->keep;
}

/* Output `out` of a step as a view of its input, where that is possible. */
static bool place_view(struct planning *planning, struct attn_step *step, int32_t out)
{
    struct attn_plan *plan = planning->plan;
    int32_t in = step->known_outputs[out].view_of;
    struct attn_plan_value *value = &plan->values[step->node->out[out]];
    if (in < 0 || step->dynamic || step->node->in[in] < 0)
        return false;
    const struct attn_plan_value *from = &plan->values[step->node->in[in]];
    int64_t offset = step->known_outputs[out].view_offset;
    if (dtype_bits(value->tensor.dtype) < 8 &&
        (offset != 0 || tensor_count(&value->tensor) != tensor_count(&from->tensor)))
        return false; /* its last byte may hold elements that are not its own */
    const int64_t align = attn_dtype_align(value->tensor.dtype);
    if (offset % align != 0 ||
        (from->place != ATTN_PLACE_ARENA && align > attn_dtype_align(from->tensor.dtype)))
        return false; /* operators receive aligned data */
    if (value->keep && from->place != ATTN_PLACE_ARENA)
        return false; /* an output has memory of its own */
    if (from->place == ATTN_PLACE_CONST) {
        value->place = ATTN_PLACE_CONST;
        value->tensor.data = (char *)from->tensor.data + offset;
        return true;
    }
    if (from->place != ATTN_PLACE_INPUT && from->place != ATTN_PLACE_ARENA)
        return false;
    value->place = from->place;
    value->input = from->input;
    value->root = from->root;
    value->offset = from->offset + offset;
    if (value->place == ATTN_PLACE_ARENA)
        extend(plan, value->root, value, step->index);
    return true;
}

static bool is_in_block(const struct attn_plan *plan, int32_t id, int32_t root)
{
    return id >= 0 && plan->values[id].place == ATTN_PLACE_ARENA &&
           plan->values[id].root == root;
}

/* No other input of the step reads the same block, and no output shows it: ScatterND(x, i, x) and
 * x @ w + x would overwrite elements of x that they read later. */
static bool alone_in_block(const struct attn_plan *plan, const struct attn_step *step,
                           int32_t in)
{
    int32_t root = plan->values[step->node->in[in]].root;
    for (int32_t i = 0; i < step->pub.n_in; i++)
        if (i != in && is_in_block(plan, step->node->in[i], root))
            return false;
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        const int32_t shown = step->known_outputs[i].view_of;
        if (shown >= 0 && step->node->out[i] >= 0 &&
            is_in_block(plan, step->node->in[shown], root))
            return false;
    }
    return true;
}

static bool place_inplace(struct planning *planning, struct attn_step *step, int32_t out)
{
    struct attn_plan *plan = planning->plan;
    int32_t id = step->node->out[out];
    struct attn_plan_value *value = &plan->values[id];
    for (int32_t in = 0; !step->dynamic && in < step->pub.n_in && in < 64; in++) {
        int32_t from_id = step->node->in[in];
        if (!(step->known_outputs[out].inplace >> in & 1) || from_id < 0)
            continue;
        const struct attn_plan_value *from = &plan->values[from_id];
        if (from->place != ATTN_PLACE_ARENA)
            continue;
        const struct attn_plan_value *root = &plan->values[from->root];
        if (root->last != step->index || root->keep || !alone_in_block(plan, step, in) ||
            tensor_bytes(&from->tensor) != tensor_bytes(&value->tensor))
            continue;
        value->root = from->root;
        value->offset = from->offset;
        extend(plan, value->root, value, step->index);
        return true;
    }
    return false;
}

static void place_outputs(struct planning *planning, struct attn_step *step)
{
    struct attn_plan *plan = planning->plan;
    uint64_t taken = 0;
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        int32_t id = step->node->out[i];
        if (id < 0 || plan->values[id].place != ATTN_PLACE_ARENA)
            continue;
        struct attn_plan_value *value = &plan->values[id];
        if (place_view(planning, step, i))
            continue;
        if (taken == 0 && place_inplace(planning, step, i)) {
            taken = 1; /* one output over one input: others would have to be checked */
            continue;
        }
        extend(plan, id, value, step->index);
    }
}

static void place_values(struct planning *planning)
{
    struct attn_plan *plan = planning->plan;
    for (int64_t v = 0; v < planning->graph->n_values; v++) {
        plan->values[v].last = plan->values[v].first;
        if (plan->values[v].place == ATTN_PLACE_ARENA && plan->values[v].producer < 0)
            extend(plan, (int32_t)v, &plan->values[v],
                   0); /* the dense copy of an input */
    }
    for (int32_t s = 0; s < plan->n_steps && !attn_stops_node(s); s++)
        place_outputs(planning, plan->steps[s]);
    attn_selection_place(planning->frame, plan);
}

/* ---- blocks ---- */

static attn_status add_block(struct attn_plan *plan, int64_t bytes, int32_t first,
                             int32_t last, int32_t value)
{
    struct attn_block *block = &plan->blocks[plan->n_blocks];
    *block = (struct attn_block){ .first = first, .last = last, .value = value };
    if (!ck_align(bytes, ATTN_ARENA_ALIGN, &block->bytes))
        return attn_fail(ATTNRUN_E_MEMORY, "a block of the arena overflows");
    plan->n_blocks++;
    return ATTNRUN_OK;
}

static attn_status add_scratch(struct planning *planning, struct attn_step *step)
{
    int64_t stride, shared, bytes;
    /* Any worker may take a task, however few there are. */
    step->own.n_workers =
        attn_step_is_alone(step) ? 1 : attn_threads_count(planning->frame->threads);
    if (!ck_align(step->pub.scratch_bytes, ATTN_ARENA_ALIGN, &stride) ||
        !ck_align(step->pub.shared_bytes, ATTN_ARENA_ALIGN, &shared) ||
        !ck_mul(stride, step->own.n_workers, &bytes) || !ck_add(bytes, shared, &bytes))
        return op_fail(&step->pub, ATTNRUN_E_MEMORY,
                       "the size of its scratch memory overflows");
    TRY(op_check_growth(&step->pub, -1, bytes));
    step->own.stride = stride;
    step->own.shared_bytes = shared;
    if (bytes == 0 || step->dynamic)
        return ATTNRUN_OK;
    step->scratch_block = planning->plan->n_blocks;
    return add_block(planning->plan, bytes, step->index, step->index, -1);
}

static attn_status make_blocks(struct planning *planning)
{
    struct attn_plan *plan = planning->plan;
    int64_t max = planning->graph->n_values + plan->n_steps + planning->graph->n_outputs;
    plan->blocks =
        attn_pool_alloc(&plan->pool, (max + 1) * (int64_t)sizeof *plan->blocks);
    plan->copies = attn_pool_alloc(&plan->pool, (planning->graph->n_outputs + 1) *
                                                    (int64_t)sizeof *plan->copies);
    if (!plan->blocks || !plan->copies)
        return ATTNRUN_E_MEMORY;
    for (int64_t v = 0; v < planning->graph->n_values; v++) {
        struct attn_plan_value *value = &plan->values[v];
        if (value->place != ATTN_PLACE_ARENA || value->root != v || value->given >= 0)
            continue;
        value->block = (int32_t)plan->n_blocks;
        if (value->producer < 0)
            plan->input_copies[value->input] = value->block;
        TRY(add_block(plan, tensor_bytes(&value->tensor), value->first,
                      value->keep ? plan->n_steps : value->last, (int32_t)v));
    }
    for (int32_t i = 0; i < planning->graph->n_outputs; i++) {
        const struct attn_plan_value *value = &plan->values[planning->graph->outputs[i]];
        plan->copies[i] = -1;
        if (value->type.kind != ATTNRUN_TENSOR || value->in_state ||
            plan->modes[i] == ATTN_OUTPUT_SKIPPED ||
            (value->place != ATTN_PLACE_CONST && value->place != ATTN_PLACE_INPUT))
            continue;
        plan->copies[i] = (int32_t)plan->n_blocks;
        TRY(add_block(plan, tensor_bytes(&value->tensor), plan->n_steps, plan->n_steps,
                      planning->graph->outputs[i]));
    }
    for (int32_t s = 0; s < plan->n_steps; s++)
        TRY(add_scratch(planning, plan->steps[s]));
    return attn_pack_offsets(planning->frame->planning, plan->blocks, plan->n_blocks,
                             plan->n_steps + 1, &plan->arena_bytes, &plan->lower_bound,
                             &plan->peak_step);
}

/* ---- the whole ---- */

static attn_status plan_graph(struct planning *planning, const attnrun_tensor *inputs)
{
    const bool *needed;
    if (planning->graph->outer == NULL)
        TRY(attn_inputs_agree(planning->graph, planning->frame->planning, inputs));
    TRY(attn_selection_read(planning->frame, planning->plan, &needed));
    plan_constants(planning);
    TRY(plan_inputs(planning, inputs));
    for (int64_t n = 0; n < planning->graph->n_nodes; n++)
        if (attn_selection_needs(needed, planning->graph->nodes[n]))
            TRY(plan_node(planning, planning->graph->nodes[n]));
    note_uses(planning);
    TRY(attn_poll());
    TRY(attn_plan_append_states(planning->frame, planning->plan, inputs));
    place_values(planning);
    TRY(attn_poll());
    TRY(make_blocks(planning));
    attn_plan_bound_heap(planning->frame, planning->plan);
    return attn_plan_make_patches(planning->plan);
}

attn_status attn_plan_create(struct attn_frame *frame, const attnrun_tensor *inputs,
                             int32_t n_inputs, struct attn_plan **plan)
{
    struct attn_graph *graph = frame->graph;
    struct attn_plan *made =
        attn_alloc_zeroed(frame->planning, ATTN_MEM_PLAN, (int64_t)sizeof *made);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    attn_pool_init(&made->pool, frame->planning, ATTN_MEM_PLAN);
    made->heap = (struct attn_heap){ .memory = frame->planning, .kind = ATTN_MEM_PLAN };
    made->graph = graph;
    made->n_key = n_inputs;
    made->key = attn_pool_alloc(&made->pool, (n_inputs + 1) * (int64_t)sizeof *made->key);
    made->input_copies = attn_pool_alloc(
        &made->pool, (n_inputs + 1) * (int64_t)sizeof *made->input_copies);
    made->appends =
        attn_pool_alloc(&made->pool, (n_inputs + 1) * (int64_t)sizeof *made->appends);
    made->states_version = frame->states_version;
    made->values = attn_pool_alloc(&made->pool,
                                   (graph->n_values + 1) * (int64_t)sizeof *made->values);
    made->steps =
        attn_pool_alloc(&made->pool, (graph->n_nodes + 1) * (int64_t)sizeof *made->steps);
    struct planning planning = { .frame = frame, .plan = made, .graph = graph };
    attn_status status = ATTNRUN_E_MEMORY;
    if (made->key && made->values && made->steps && made->input_copies && made->appends)
        status = plan_graph(&planning, inputs);
    if (status != ATTNRUN_OK) {
        attn_plan_destroy(made, frame->planning);
        return status;
    }
    *plan = made;
    return ATTNRUN_OK;
}

void attn_plan_destroy(struct attn_plan *plan, struct attn_memory *memory)
{
    if (plan == NULL)
        return;
    attn_heap_release(&plan->heap, &plan->folded);
    attn_pool_free(&plan->pool);
    attn_free(memory, ATTN_MEM_PLAN, plan, (int64_t)sizeof *plan);
}

bool attn_plan_fits(const struct attn_frame *frame, const struct attn_plan *plan,
                    const attnrun_tensor *inputs)
{
    if (plan->states_version != frame->states_version ||
        !attn_selection_fits(frame, plan))
        return false;
    for (int32_t i = 0; i < plan->n_key; i++) {
        const attnrun_tensor *a = &plan->key[i], *b = &inputs[i];
        if (a->kind != b->kind || a->dtype != b->dtype)
            return false;
        if (a->kind != ATTNRUN_TENSOR)
            continue;
        if (a->rank != b->rank ||
            memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) != 0 ||
            (a->strides[0] != ATTN_KEY_ANY &&
             (a->strides[0] == ATTN_KEY_DENSE) != attn_plan_is_readable(b)))
            return false;
    }
    return true;
}
