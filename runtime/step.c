/* step.c - making, inferring and executing single steps; see step.h.
 *
 * In: a node, and the types, constants and known elements of its inputs. Out: what infer()
 * states of the outputs, checked against the limits of the library; at load and while
 * planning also the outputs themselves, computed on the thread of the caller. */
#include "step.h"

#include "dim_table.h"
#include "file_limits.h"
#include "maps.h"
#include "poll.h"
#include "range.h"

/* As many as a tensor may have elements: more would run for ever. */
#define MAX_TASKS (INT64_C(1) << 46)

/* Types that infer() may need at once: of all that the node and its subgraphs take and give,
 * and of the outputs once more. */
static int64_t count_types(const struct attn_node *node)
{
    int64_t n = 0;
    for (int32_t g = 0; g < node->n_graphs; g++)
        n += node->graphs[g]->n_inputs + node->graphs[g]->n_outputs;
    return node->n_graphs > 0 ? n + node->pub.n_in + 2 * (int64_t)node->pub.n_out : 0;
}

struct attn_step *attn_step_create(struct attn_pool *pool, struct attn_graph *graph,
                                   struct attn_node *node,
                                   const struct attn_kernels *kernels)
{
    int64_t n_in = node->pub.n_in + node->n_captures, n_out = node->pub.n_out;
    struct attn_step *step = attn_pool_alloc(pool, (int64_t)sizeof *step);
    attnrun_type *types =
        attn_pool_alloc(pool, (n_in + n_out) * (int64_t)sizeof(attnrun_type));
    attnrun_tensor *tensors =
        attn_pool_alloc(pool, (n_in + n_out) * (int64_t)sizeof(attnrun_tensor));
    struct attn_out_known *known_outputs =
        attn_pool_alloc(pool, n_out * (int64_t)sizeof *known_outputs);
    const attnrun_dim **known = attn_pool_alloc(pool, n_in * (int64_t)sizeof *known);
    int64_t *n_known = attn_pool_alloc(pool, n_in * (int64_t)sizeof *n_known);
    struct attn_heap_list *lists = attn_pool_alloc(pool, n_out * (int64_t)sizeof *lists);
    void *state = attn_pool_alloc(pool, node->pub.op->state_bytes);
    const int64_t n_types = count_types(node);
    attnrun_type *inner = attn_pool_alloc(pool, n_types * (int64_t)sizeof *inner);
    if (pool->failed != 0)
        return NULL;
    step->pub = (attnrun_step){ .node = &node->pub,
                                .args = node->pub.args,
                                .kernels = kernels,
                                .n_in = node->pub.n_in,
                                .n_out = node->pub.n_out,
                                .in = types,
                                .out = types + n_in,
                                .x = tensors,
                                .y = tensors + n_in,
                                .state = state,
                                .internal = step,
                                .precision = graph->model->precision };
    step->node = node;
    step->graph = graph;
    step->pool = pool;
    step->known_outputs = known_outputs;
    step->known = known;
    step->n_known = n_known;
    step->lists = lists;
    step->types = inner;
    step->n_types = n_types;
    step->scratch_block = -1;
    return step;
}

bool attn_type_is_concrete(const attnrun_type *type)
{
    if (type->kind != ATTNRUN_TENSOR || type->rank < 0)
        return false;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i].expr != 0)
            return false;
    return true;
}

attn_status attn_tensor_check_size(const attnrun_tensor *tensor)
{
    if (attn_tensor_can_exist(tensor))
        return ATTNRUN_OK;
    return attn_fail_limit(ATTN_LIMIT_ELEMENTS, "a tensor %s has more than 2^46 elements",
                           attn_tensor_format(tensor));
}

attn_status attn_type_to_tensor(const attnrun_type *type, attnrun_tensor *tensor)
{
    attnrun_tensor t = { .kind = type->kind, .dtype = type->dtype, .rank = type->rank };
    for (int i = 0; i < type->rank; i++)
        t.dims[i] = type->dims[i].value;
    TRY(attn_tensor_check_size(&t));
    tensor_set_dense(&t);
    *tensor = t;
    return ATTNRUN_OK;
}

void attn_tensor_to_type(const attnrun_tensor *tensor, attnrun_type *type)
{
    memset(type, 0, sizeof *type);
    type->kind = tensor->kind;
    type->dtype = tensor->dtype;
    type->rank = tensor->rank;
    if (tensor->kind != ATTNRUN_TENSOR) {
        type->rank = -1;
        if (attn_kind_is_map(tensor->kind))
            type->key_dtype = attn_maps_key_dtype(tensor);
        return;
    }
    for (int i = 0; i < tensor->rank; i++)
        type->dims[i] = dim_of(tensor->dims[i]);
}

/* One output as infer() left it. */
static attn_status check_out(struct attn_step *step, int out)
{
    attnrun_type *type = &step->pub.out[out];
    if (type->kind == ATTNRUN_ABSENT)
        return ATTNRUN_OK;
    if (type->dtype <= 0 || type->dtype >= ATTNRUN_DTYPE_COUNT)
        return op_fail(&step->pub, ATTNRUN_E_DTYPE, "output %d has no element type", out);
    if (type->rank > ATTNRUN_MAX_RANK)
        return op_fail(&step->pub, ATTNRUN_E_UNSUPPORTED,
                       "output %d has rank %d, expected at most %d", out, type->rank,
                       ATTNRUN_MAX_RANK);
    if (type->kind != ATTNRUN_TENSOR)
        return ATTNRUN_OK;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i].reserved != 0)
            return op_fail(&step->pub, ATTNRUN_E_INTERNAL,
                           "infer() set the member 'reserved' of dim %d of output %d to "
                           "%d, expected 0",
                           i, out, type->dims[i].reserved);
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++) {
        attnrun_dim d = type->dims[i];
        if (!dim_is_of(step->dims, d))
            return op_fail(&step->pub, ATTNRUN_E_INTERNAL,
                           "infer() set dim %d of output %d to a dim of another model", i,
                           out);
        if (d.expr == ATTN_DIM_INVALID ||
            (d.expr == 0 && (d.value < 0 || d.value > ATTN_MAX_DIM)))
            return op_fail(&step->pub,
                           d.expr == 0 && d.value < 0 ? ATTNRUN_E_SHAPE : ATTNRUN_E_LIMIT,
                           "output %d would be %s: dim %d is negative or too large "
                           "(limit 'dim')",
                           out, attn_type_format(step->dims, type), i);
    }
    for (int i = 0; i < type->rank; i++) /* as attn_tensor_can_exist() */
        if (type->dims[i].expr == 0 && type->dims[i].value > 0 &&
            (!ck_mul(count, type->dims[i].value, &count) || count > ATTN_MAX_ELEMENTS))
            return op_fail(&step->pub, ATTNRUN_E_LIMIT,
                           "output %d would be %s: more elements than fit into memory "
                           "(limit 'elements')",
                           out, attn_type_format(step->dims, type));
    return ATTNRUN_OK;
}

/* An output that shows a part of an input lies within it; one that does not is computed. */
static attn_status check_view(const struct attn_step *step, int32_t out)
{
    const attnrun_step *pub = &step->pub;
    const attnrun_type *type = &pub->out[out];
    const int32_t in = step->known_outputs[out].view_of;
    attnrun_tensor from, to;
    if (type->kind != ATTNRUN_TENSOR || !attn_type_is_concrete(type))
        return ATTNRUN_OK;
    if (in < 0 && pub->node->op->run == NULL && pub->node->op->expand == NULL)
        return op_fail(pub, ATTNRUN_E_INTERNAL,
                       "its row has no run(), and output %d is not a view of an input",
                       out);
    if (in >= 0 && (step->node->in[in] < 0 ||
                    (type->dtype == ATTNRUN_STRING && pub->in[in].dtype > 0 &&
                     pub->in[in].dtype != ATTNRUN_STRING)))
        return op_fail(pub, ATTNRUN_E_INTERNAL, "output %d cannot be a view of input %d",
                       out, in);
    if (in < 0 || pub->in[in].kind != ATTNRUN_TENSOR ||
        !attn_type_is_concrete(&pub->in[in]))
        return ATTNRUN_OK;
    TRY(attn_type_to_tensor(type, &to));
    TRY(attn_type_to_tensor(&pub->in[in], &from));
    const int64_t offset = step->known_outputs[out].view_offset;
    if (offset < 0 || offset > tensor_bytes(&from) ||
        tensor_bytes(&to) > tensor_bytes(&from) - offset)
        return op_fail(pub, ATTNRUN_E_INTERNAL,
                       "output %d is a view of %s from byte %lld on, but there are only "
                       "%lld in input %d",
                       out, attn_plural(tensor_bytes(&to), "byte"), (long long)offset,
                       (long long)tensor_bytes(&from), in);
    return ATTNRUN_OK;
}

attn_status attn_step_check_memory(const struct attn_step *step)
{
    bool failed = step->pool != NULL && step->pool->failed != 0;
    if (!failed && !(step->dims && step->graph->model->pool.failed != 0))
        return ATTNRUN_OK;
    if (attn_error_is_of(ATTNRUN_E_MEMORY, step->errors))
        return ATTNRUN_E_MEMORY;
    return attn_fail_node(ATTNRUN_E_MEMORY, &step->node->pub,
                          "there is no memory for its shapes");
}

/* Whether all that it makes are tensors without an element: there is nothing to run. */
static bool makes_nothing(const attnrun_step *pub)
{
    bool empty = (pub->node->op->flags & (ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_GRAPHS)) == 0;
    for (int i = 0; i < pub->n_out && empty; i++) {
        const attnrun_type *type = &pub->out[i];
        bool zero = type->kind == ATTNRUN_ABSENT;
        for (int d = 0; attn_type_is_concrete(type) && d < type->rank; d++)
            zero = zero || type->dims[d].value == 0;
        empty = zero;
    }
    return empty;
}

attn_status attn_step_infer(struct attn_step *step)
{
    attnrun_step *pub = &step->pub;
    for (int i = 0; i < pub->n_out; i++) {
        step->known_outputs[i] =
            (struct attn_out_known){ .view_of = -1, .append_to = -1 };
        if (step->node->out[i] >= 0)
            pub->out[i] = (attnrun_type){ .kind = ATTNRUN_TENSOR, .rank = -1 };
    }
    step->types_taken = 0;
    pub->n_phases = 1;
    pub->phases[0] = (attnrun_phase){ .n_tasks = 1, .task_cost = 0 };
    pub->scratch_bytes = pub->shared_bytes = 0;
    pub->concrete = 1; /* as all is at run, where there is no pool */
    step->waits = false;
    step->heap_bound = step->flops = -1;
    step->inner_bytes = 0;
    for (int i = 0; step->pool != NULL && i < pub->n_in + step->node->n_captures; i++)
        if (pub->in[i].kind != ATTNRUN_ABSENT && !attn_type_is_concrete(&pub->in[i]))
            pub->concrete = 0;
    if (step->node->pub.op->state_bytes > 0)
        memset(pub->state, 0, step->node->pub.op->state_bytes);
    step->errors = attn_error_count();
    step->inferring = true;
    attn_status status = pub->node->op->infer(pub);
    step->inferring = false;
    TRY(attn_step_check_memory(step));
    TRY(attn_fail_quietly(status, step->errors, pub->node, "infer"));
    if (pub->reserved != 0)
        return op_fail(pub, ATTNRUN_E_INTERNAL,
                       "infer() set the member 'reserved' of the step to %d, expected 0",
                       pub->reserved);
    for (int i = 0; i < pub->n_out; i++)
        TRY(check_out(step, i));
    for (int i = 0; i < pub->n_out; i++)
        TRY(check_view(step, i));
    if (pub->n_phases < 1 || pub->n_phases > ATTNRUN_MAX_PHASES)
        return op_fail(pub, ATTNRUN_E_INTERNAL, "infer() set %s, expected 1 to %d",
                       attn_plural(pub->n_phases, "phase"), ATTNRUN_MAX_PHASES);
    if (pub->scratch_bytes < 0 || pub->shared_bytes < 0)
        return op_fail(pub, ATTNRUN_E_MEMORY, "the size of its scratch memory overflows");
    if (makes_nothing(pub)) {
        pub->n_phases = 1;
        pub->phases[0].n_tasks = pub->scratch_bytes = pub->shared_bytes = 0;
    }
    return ATTNRUN_OK;
}

bool attn_step_is_view(const struct attn_step *step)
{
    const attnrun_step *pub = &step->pub;
    for (int i = 0; i < pub->n_out; i++) {
        int32_t in = step->known_outputs[i].view_of;
        if (pub->y[i].data == NULL || pub->out[i].kind == ATTNRUN_ABSENT)
            continue;
        if (in < 0 || (char *)pub->x[in].data + step->known_outputs[i].view_offset !=
                          pub->y[i].data)
            return false;
    }
    return true;
}

attn_status attn_step_copy_views(const struct attn_step *step)
{
    for (int i = 0; i < step->pub.n_out; i++) {
        attnrun_tensor *y = &step->pub.y[i];
        int32_t in = step->known_outputs[i].view_of;
        int64_t bytes = y->data ? tensor_bytes(y) : 0;
        if (in < 0 && bytes > 0)
            return op_fail(&step->pub, ATTNRUN_E_INTERNAL, "no formula has replaced it");
        if (bytes > 0)
            memmove(y->data,
                    (char *)step->pub.x[in].data + step->known_outputs[i].view_offset,
                    (size_t)bytes);
    }
    return ATTNRUN_OK;
}

attn_status attn_step_check_tasks(const struct attn_step *step, int32_t phase)
{
    const int64_t n = step->pub.phases[phase].n_tasks;
    if (n >= 0 && n <= MAX_TASKS)
        return ATTNRUN_OK;
    return op_fail(&step->pub, ATTNRUN_E_INTERNAL,
                   "infer() set %s in phase %d, expected 0 to 2^46",
                   attn_plural(n, "task"), phase);
}

attn_status attn_step_run(const struct attn_step *step, const attnrun_work *work)
{
    const uint64_t errors = attn_error_count();
    const attnrun_node *node = step->pub.node;
    const struct attn_range *range = work->internal;
    attn_status status =
        attn_fail_quietly(node->op->run(&step->pub, work), errors, node, "run");
    return attn_poll_reason(attn_poll_check(range->control, status));
}

static attn_status run_phases(struct attn_step *step, void *scratch, void *shared)
{
    struct attn_control never = { .stop = ATTN_GO };
    struct attn_control *control = attn_meter.control ? attn_meter.control : &never;
    struct attn_range range = { control, false };
    if (step->pub.node->op->run == NULL)
        return attn_step_copy_views(step);
    for (int32_t phase = 0; phase < step->pub.n_phases; phase++) {
        TRY(attn_step_check_tasks(step, phase));
        attnrun_work work = { .phase = phase,
                              .end = step->pub.phases[phase].n_tasks,
                              .scratch = scratch,
                              .shared = shared,
                              .cancel = &control->stop,
                              .internal = &range };
        if (work.end > 0)
            TRY(attn_step_run(step, &work));
    }
    return ATTNRUN_OK;
}

attn_status attn_step_execute(struct attn_step *step, struct attn_heap *heap)
{
    attnrun_step *pub = &step->pub;
    bool dynamic = (pub->node->op->flags & (ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_GRAPHS)) != 0;
    step->heap = heap;
    for (int i = 0; i < pub->n_out; i++) {
        if (pub->out[i].kind == ATTNRUN_ABSENT || pub->y[i].data != NULL)
            continue;
        const struct attn_out_known *known_outputs = &step->known_outputs[i];
        if (!attn_type_is_concrete(&pub->out[i])) {
            if (!dynamic)
                return op_fail(pub, ATTNRUN_E_INTERNAL, "output %d has no known shape",
                               i);
            continue;
        }
        TRY(attn_type_to_tensor(&pub->out[i], &pub->y[i]));
        if (known_outputs->view_of >= 0 && !step->dynamic &&
            pub->x[known_outputs->view_of].data != NULL) {
            pub->y[i].data =
                (char *)pub->x[known_outputs->view_of].data + known_outputs->view_offset;
            continue;
        }
        pub->y[i].data = attn_heap_alloc(heap, &step->lists[i], tensor_bytes(&pub->y[i]));
        if (pub->y[i].data == NULL)
            return ATTNRUN_E_MEMORY;
    }
    if (!dynamic && attn_step_is_view(step))
        return ATTNRUN_OK;
    struct attn_heap_list temporary = { NULL };
    void *scratch = NULL, *shared = NULL;
    attn_status status = ATTNRUN_E_MEMORY;
    scratch = attn_heap_alloc(heap, &temporary, pub->scratch_bytes);
    if (scratch != NULL)
        shared = attn_heap_alloc(heap, &temporary, pub->shared_bytes);
    if (shared != NULL)
        status = run_phases(step, scratch, shared);
    attn_heap_release(heap, &temporary);
    for (int i = 0; status == ATTNRUN_OK && i < pub->n_out; i++)
        if (pub->out[i].kind == ATTNRUN_TENSOR && step->known_outputs[i].view_of < 0)
            attn_tensor_clear_padding(&pub->y[i]);
    return status;
}

/* ---- dims of a step, for operators (op.h) ---- */

attnrun_dim op_dim_join(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    return attn_dim_join(step_of(step)->dims, a, b);
}

attnrun_dim op_dim_div_exact(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    return attn_dim_div_exact(step_of(step)->dims, a, b);
}

bool op_dim_is_given(const attnrun_step *step, attnrun_dim dim)
{
    return attn_dim_is_given(step_of(step)->dims, dim);
}

bool op_dim_assume_nonzero(const attnrun_step *step, attnrun_dim size, attnrun_dim other)
{
    return step_of(step)->graph->outer == NULL &&
           attn_dims_assume_nonzero(step_of(step)->dims, size, other);
}

attnrun_dim op_dims_product(const attnrun_step *step, const attnrun_dim *d, int from,
                            int to)
{
    return attn_dims_product(step_of(step)->dims, d, from, to);
}
