/* dim_sizes.c - inputs whose dims have one symbol have one size.
 *
 * In: the main graph, whose inputs have types of the file, and the tensors that a plan is for.
 * Out: E_SHAPE where they disagree; see dim_sizes.h. Dims of inputs are constants or plain symbols
 * (attn_dim_trusted()), so comparing sizes is all. Cost: a store for each dim of an input, once
 * for each plan. */
#include "dim_sizes.h"

#include "dim_table.h"

/* The first dim that has a symbol. */
struct place {
    int32_t input; /* from 1; 0: none yet */
    int32_t axis;
};

static const attnrun_type *type_of(const struct attn_graph *graph, int32_t input)
{
    return &graph->values[graph->inputs[input]].type;
}

/* Whose dims are compared: tensors of the rank that the file declares. */
static int32_t compared_rank(const attnrun_type *type, const attnrun_tensor *input)
{
    return input->kind == ATTNRUN_TENSOR && type->rank == input->rank ? type->rank : 0;
}

static int64_t count_symbols(const struct attn_graph *graph, const attnrun_tensor *inputs)
{
    int64_t n = 0;
    for (int32_t i = 0; i < graph->n_inputs; i++) {
        const attnrun_type *type = type_of(graph, i);
        for (int32_t d = 0; d < compared_rank(type, &inputs[i]); d++)
            n = max64(n, attn_dims_plain_of(graph->model->dims, type->dims[d]) + 1);
    }
    return n;
}

static attn_status fail_sizes(const struct attn_graph *graph,
                              const attnrun_tensor *inputs, int32_t symbol,
                              struct place first, int32_t input, int32_t axis)
{
    const char *const name = graph->values[graph->inputs[input]].name;
    const int32_t other = first.input - 1;
    attn_fail(
        ATTNRUN_E_SHAPE,
        "'%s' is %lld in input %d '%s' (dim %d), but %lld in input %d '%s' (dim %d)",
        graph->model->dims->symbols[symbol].text,
        (long long)inputs[other].dims[first.axis], other,
        attn_quote(graph->values[graph->inputs[other]].name), first.axis,
        (long long)inputs[input].dims[axis], input, attn_quote(name), axis);
    attn_fail_tensor(name);
    attn_hint("if the model means different sizes by one name, load it with "
              "--separate-dims (ATTNRUN_SEPARATE_DIMS)");
    return ATTNRUN_E_SHAPE;
}

static attn_status compare_sizes(const struct attn_graph *graph,
                                 const attnrun_tensor *inputs, struct place *places)
{
    for (int32_t i = 0; i < graph->n_inputs && !attn_stops_node(i); i++) {
        const attnrun_type *type = type_of(graph, i);
        for (int32_t d = 0; d < compared_rank(type, &inputs[i]); d++) {
            const int32_t s = attn_dims_plain_of(graph->model->dims, type->dims[d]);
            if (s < 0)
                continue;
            if (places[s].input == 0)
                places[s] = (struct place){ i + 1, d };
            else if (inputs[places[s].input - 1].dims[places[s].axis] !=
                     inputs[i].dims[d])
                return fail_sizes(graph, inputs, s, places[s], i, d);
        }
    }
    return attn_poll();
}

attn_status attn_inputs_agree(const struct attn_graph *graph, struct attn_memory *memory,
                              const attnrun_tensor *inputs)
{
    const int64_t bytes = count_symbols(graph, inputs) * (int64_t)sizeof(struct place);
    if (bytes == 0)
        return ATTNRUN_OK;
    struct place *places = attn_alloc_zeroed(memory, ATTN_MEM_PLAN, bytes);
    if (places == NULL)
        return ATTNRUN_E_MEMORY;
    attn_status status = compare_sizes(graph, inputs, places);
    attn_free(memory, ATTN_MEM_PLAN, places, bytes);
    return status;
}
