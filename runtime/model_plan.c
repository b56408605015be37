/* model_plan.c - attnrun_model_plan(): the memory of a model, before anything of it is packed.
 *
 * In: a model and the shapes of its inputs. Out: the bytes that a first context and its first
 * run take, by what they are for, and the most that are held at once. Packing is measured
 * without being done; the plan is made by the code of contexts over an allocator that counts,
 * and given back. Other contexts are not disturbed.
 *
 *   held now ─┬─ context ─┬─ packed + working ─────────────┐ while weights are packed
 *             │           └─ packed + constants ─┬─ plan ──┤ while a plan is made
 *             │                                  └─ plan + arena + side heap ─┤ while it runs
 *             └──────────────────────────────────────────── total_bytes: the largest sum */
#include "abi.h"
#include "context.h"
#include "model.h"
#include "pack.h"
#include "state.h"

struct measuring {
    struct attn_model *model;
    const attnrun_tensor *inputs;
    struct attn_memory *memory; /* counts the frame and its plan */
    int64_t ragged_bytes;       /* of the lists of tokens */
    int64_t planning_bytes;     /* the most that is held while it is planned */
    const attnrun_state_pair *states;
    int64_t n_states;
    int64_t outgrown_bytes; /* of states that are moved: both memories are held then */
    attnrun_model_need need;
};

static int64_t scratch_of(const struct attn_plan *plan)
{
    int64_t max = 0;
    for (int32_t s = 0; s < plan->n_steps; s++) {
        const int64_t block = plan->steps[s]->scratch_block;
        if (block >= 0)
            max = max64(max, plan->blocks[block].bytes);
    }
    return max;
}

/* The plan knows the pairs; their memory is counted, and not taken. */
static attn_status add_states(struct measuring *m, struct attn_frame *frame)
{
    for (int64_t i = 0; i < m->n_states; i++)
        TRY(attn_state_add(m->memory, &frame->states, m->states[i].input,
                           m->states[i].output, 0));
    frame->states_version++;
    return ATTNRUN_OK;
}

/* A state that does not hold what the run makes becomes twice as large as that. */
static attn_status count_states(struct measuring *m, const struct attn_frame *frame,
                                const struct attn_plan *plan)
{
    m->need.states_bytes = m->outgrown_bytes = 0;
    for (int64_t i = 0; i < m->n_states; i++) {
        const int32_t id = frame->graph->outputs[m->states[i].output];
        const struct attn_plan_value *value = &plan->values[id];
        int64_t bytes = m->states[i].capacity_bytes;
        if (value->place == ATTN_PLACE_DYNAMIC || value->tensor.kind != ATTNRUN_TENSOR)
            m->need.n_unbounded_steps++;
        else if (bytes < tensor_bytes(&value->tensor)) {
            m->outgrown_bytes += max64(bytes, 1);
            bytes = 2 * tensor_bytes(&value->tensor);
        }
        if (!ck_add(m->need.states_bytes, bytes, &m->need.states_bytes))
            return attn_fail(ATTNRUN_E_MEMORY,
                             "the states need more than 2^63 - 1 bytes");
    }
    return ATTNRUN_OK;
}

/* A plan that holds for every mask, where the graph runs on the tokens of a batch. */
static attn_status plan_inputs(struct measuring *m, struct attn_frame *frame,
                               struct attn_plan **plan)
{
    struct attn_memory *memory = m->model->pool.memory;
    const int64_t n = frame->graph->n_inputs;
    const int64_t bytes = (n + ATTN_RAGGED_INPUTS) * (int64_t)sizeof(attnrun_tensor);
    if (frame->graph->ragged == NULL)
        return attn_frame_plan(frame, m->inputs, plan);
    attnrun_tensor *inputs = attn_alloc(memory, ATTN_MEM_PLAN, bytes);
    if (inputs == NULL)
        return ATTNRUN_E_MEMORY;
    memcpy(inputs, m->inputs, (size_t)n * sizeof *inputs);
    attn_status status = attn_ragged_bound(frame->graph, inputs);
    if (status == ATTNRUN_OK)
        status = attn_frame_plan(frame, inputs, plan);
    attn_free(memory, ATTN_MEM_PLAN, inputs, bytes);
    m->ragged_bytes = attn_ragged_bytes(frame->graph, m->inputs);
    return status;
}

static attn_status plan_frame(struct measuring *m, struct attn_frame *frame)
{
    struct attn_plan *plan;
    struct attn_memory_counts counts;
    TRY(add_states(m, frame));
    TRY(plan_inputs(m, frame, &plan));
    attn_memory_counts(m->memory, &counts);
    m->planning_bytes = (int64_t)counts.peak_bytes;
    m->need.context_bytes = (int64_t)counts.used_bytes;
    m->need.arena_bytes = max64(plan->arena_bytes, ATTN_ARENA_ALIGN);
    m->need.scratch_bytes = scratch_of(plan);
    m->need.side_heap_bytes = plan->heap_bytes;
    m->need.n_unbounded_steps = plan->n_unbounded;
    return count_states(m, frame, plan);
}

static attn_status plan_model(void *arg)
{
    struct measuring *m = arg;
    struct attn_control control;
    struct attn_frame *frame = NULL;
    attn_model_control(m->model, &control);
    struct attn_meter before = attn_poll_enter(&control);
    attn_status status = attn_frame_create(m->model->runtime, m->memory, m->model->graph,
                                           &control, &frame);
    if (status == ATTNRUN_OK)
        status = plan_frame(m, frame);
    if (frame != NULL)
        attn_state_free(m->memory, frame->states);
    attn_frame_destroy(frame);
    attn_poll_leave(before);
    return status;
}

static attn_status check_inputs(struct measuring *m)
{
    struct attnrun_context context = { .model = m->model };
    const int32_t n = m->model->graph->n_inputs;
    if (m->inputs == NULL && n > 0)
        return attn_fail(ATTNRUN_E_USAGE, "inputs is NULL");
    for (int32_t i = 0; i < n; i++)
        TRY(attn_context_check_input(&context, i, &m->inputs[i]));
    return ATTNRUN_OK;
}

static attn_status check_states(const struct measuring *m)
{
    if (m->n_states < 0 || (m->n_states > 0 && m->states == NULL))
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_plan_states: states is NULL");
    for (int64_t i = 0; i < m->n_states; i++) {
        TRY(attn_context_check_pair(m->model, m->states[i].input, m->states[i].output,
                                    m->states[i].capacity_bytes));
        for (int64_t k = 0; k < i; k++)
            if (m->states[k].input == m->states[i].input)
                return attn_fail(ATTNRUN_E_USAGE, "input %d is a state already",
                                 m->states[i].input);
    }
    return ATTNRUN_OK;
}

/* False where a sum is more than 2^63 - 1: a capacity is as large as the caller says. */
static bool add_up(struct measuring *m, int64_t working, int64_t own)
{
    attnrun_model_need *need = &m->need;
    int64_t kept, planning, running, packing, held;
    /* A context has its states before it makes a plan. */
    if (!ck_add(need->packed_bytes, need->constants_bytes, &kept) ||
        !ck_add(kept, need->states_bytes, &kept) ||
        !ck_add(kept, m->planning_bytes, &planning) ||
        !ck_add(kept, need->context_bytes, &running) ||
        !ck_add(running, need->arena_bytes, &running) ||
        !ck_add(running, need->side_heap_bytes, &running) ||
        !ck_add(running, m->outgrown_bytes, &running) ||
        !ck_add(need->packed_bytes, working, &packing) ||
        !ck_add(need->held_bytes, own, &held))
        return false;
    need->packing_bytes = working;
    need->context_bytes += own;
    return ck_add(held, max64(packing, max64(planning, running)), &need->total_bytes);
}

static attn_status measure(struct measuring *m, bool packed)
{
    static _Alignas(64) const char zeros[256];
    struct attn_pack_need pack = { .stand_in = zeros };
    struct attn_memory_counts counts;
    attn_memory_counts(m->model->pool.memory, &counts);
    m->need.held_bytes = (int64_t)counts.used_bytes;
    TRY(packed ? plan_model(m) : attn_pack_measure(m->model, &pack, plan_model, m));
    m->need.packed_bytes = pack.packed_bytes;
    m->need.constants_bytes = pack.aligned_bytes - pack.released_bytes;
    if (!add_up(m, pack.working_bytes,
                attn_context_own_bytes(m->model->graph) + m->ragged_bytes))
        return attn_fail(ATTNRUN_E_MEMORY, "the run needs more than 2^63 - 1 bytes");
    return ATTNRUN_OK;
}

attnrun_status attnrun_model_plan(attnrun_model *model, const attnrun_tensor *inputs,
                                  attnrun_model_need *need)
{
    return attnrun_model_plan_states(model, inputs, NULL, 0, need);
}

attnrun_status attnrun_model_plan_states(attnrun_model *model,
                                         const attnrun_tensor *inputs,
                                         const attnrun_state_pair *states,
                                         int64_t n_states, attnrun_model_need *need)
{
    attnrun_error before;
    if (model == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_plan: model is NULL");
    struct measuring m = {
        .model = model_of(model), .inputs = inputs, .states = states, .n_states = n_states
    };
    bool packed;
    TRY(attn_struct_check(need, sizeof *need, "attnrun_model_need"));
    TRY(check_inputs(&m));
    TRY(check_states(&m));
    attn_call_begin(&before);
    TRY(attn_model_lock(m.model, &packed));
    m.memory = attn_memory_apart(m.model->pool.memory);
    attn_status status = m.memory != NULL ? measure(&m, packed) : ATTNRUN_E_MEMORY;
    attn_memory_destroy(m.memory);
    attn_model_unlock(m.model);
    TRY(attn_call_end(status, &before));
    return attn_struct_write(need, &m.need, sizeof m.need, "attnrun_model_need");
}
