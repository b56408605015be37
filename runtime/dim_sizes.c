/* dim_sizes.c - inputs whose dims have one symbol have one size.
 *
 * In: the main graph, whose inputs have types of the file, and the tensors that a plan is for.
 * Out: E_SHAPE where they disagree; see dim_sizes.h. Dims of inputs are constants or plain symbols
 * (attn_dim_trusted()), so comparing sizes is all. Cost: a store for each dim of an input, once
 * for each plan; where sizes must not be 0, the value of each symbol. */
#include "dim_sizes.h"

#include "dim_table.h"

/* A value that inputs do not say. Others may be below 0: n - 2 within max(n - 2, 0). */
#define NOT_KNOWN INT64_MIN

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

/* A dim of an input. */
struct place {
    int32_t input, axis;
};

/* The first dim of the inputs that has this symbol. At least one has it. */
static struct place first_place(const struct attn_graph *graph,
                                const attnrun_tensor *inputs, int32_t symbol)
{
    for (int32_t i = 0; i < graph->n_inputs; i++) {
        const attnrun_type *type = type_of(graph, i);
        for (int32_t d = 0; d < compared_rank(type, &inputs[i]); d++)
            if (attn_dims_plain_of(graph->model->dims, type->dims[d]) == symbol)
                return (struct place){ i, d };
    }
    return (struct place){ 0, 0 };
}

static attn_status fail_sizes(const struct attn_graph *graph,
                              const attnrun_tensor *inputs, int32_t symbol,
                              struct place here)
{
    const struct place first = first_place(graph, inputs, symbol);
    const char *const name = graph->values[graph->inputs[here.input]].name;
    attn_fail(
        ATTNRUN_E_SHAPE,
        "'%s' is %lld in input %d '%s' (dim %d), but %lld in input %d '%s' (dim %d)",
        graph->model->dims->symbols[symbol].text,
        (long long)inputs[first.input].dims[first.axis], first.input,
        attn_quote(graph->values[graph->inputs[first.input]].name), first.axis,
        (long long)inputs[here.input].dims[here.axis], here.input, attn_quote(name),
        here.axis);
    attn_fail_tensor(name);
    attn_hint("if the model means different sizes by one name, load it with "
              "--separate-dims (ATTNRUN_SEPARATE_DIMS)");
    return ATTNRUN_E_SHAPE;
}

/* The value of each symbol that inputs have; E_SHAPE where one has two. */
static attn_status read_sizes(const struct attn_graph *graph,
                              const attnrun_tensor *inputs, int64_t *values)
{
    for (int32_t i = 0; i < graph->n_inputs && !attn_stops_node(i); i++) {
        const attnrun_type *type = type_of(graph, i);
        for (int32_t d = 0; d < compared_rank(type, &inputs[i]); d++) {
            const int32_t s = attn_dims_plain_of(graph->model->dims, type->dims[d]);
            if (s < 0)
                continue;
            if (values[s] != NOT_KNOWN && values[s] != inputs[i].dims[d])
                return fail_sizes(graph, inputs, s, (struct place){ i, d });
            values[s] = inputs[i].dims[d];
        }
    }
    return attn_poll();
}

/* ---- sizes that are not 0 ---- */

static int64_t expression_value(const struct attn_dims *dims, const int64_t *values,
                                attnrun_dim dim)
{
    const struct dim_expression e = dim_expression_of(dims, dim);
    int64_t sum = e.constant;
    for (int32_t i = 0; i < e.n_terms; i++) {
        int64_t product = values[e.terms[i].symbol];
        if (product == NOT_KNOWN || !ck_mul(product, e.terms[i].k, &product) ||
            !ck_add(sum, product, &sum))
            return NOT_KNOWN;
    }
    return sum;
}

/* The value of a symbol that is made of others, whose values are there. */
static int64_t symbol_value(const struct attn_dims *dims, const int64_t *values,
                            const struct dim_symbol *symbol)
{
    if (symbol->kind == SYMBOL_PRODUCT) {
        int64_t product = 1;
        for (int32_t f = 0; f < symbol->n_factors; f++)
            if (values[symbol->factors[f]] == NOT_KNOWN ||
                !ck_mul(product, values[symbol->factors[f]], &product))
                return NOT_KNOWN;
        return product;
    }
    const int64_t a = expression_value(dims, values, symbol->a),
                  b = expression_value(dims, values, symbol->b);
    if (a == NOT_KNOWN || b == NOT_KNOWN)
        return NOT_KNOWN;
    switch (symbol->kind) {
    case SYMBOL_DIV:
        return b > 0 ? dim_floor_div(a, b) : NOT_KNOWN;
    case SYMBOL_MIN:
        return min64(a, b);
    case SYMBOL_MAX:
        return max64(a, b);
    case SYMBOL_NONZERO:
        return a != 0 || b == 0;
    default: /* SYMBOL_BROADCAST */
        return a == 1 ? b : a;
    }
}

/* `values`: those of plain symbols; the others are computed here. */
static attn_status check_nonzero(const struct attn_dims *dims, int64_t *values)
{
    char text[64];
    for (int64_t s = 0; s < dims->n_symbols; s++) {
        const struct dim_symbol *symbol = &dims->symbols[s];
        if (symbol->kind != SYMBOL_PLAIN)
            values[s] = symbol_value(dims, values, symbol);
        if (symbol->kind == SYMBOL_NONZERO && values[s] == 0) {
            attn_fail(ATTNRUN_E_SHAPE,
                      "the size %s is 0 for these inputs, but the model was simplified "
                      "for 1 or "
                      "more: 0 has another meaning in one of its Reshapes or broadcasts",
                      attn_dim_format(dims, symbol->a, text, sizeof text));
            attn_hint("give the model longer inputs: at least one of its blocks");
            return ATTNRUN_E_SHAPE;
        }
    }
    return attn_poll_work(8 * dims->n_symbols);
}

attn_status attn_inputs_agree(const struct attn_graph *graph, struct attn_memory *memory,
                              const attnrun_tensor *inputs)
{
    const struct attn_dims *dims = graph->model->dims;
    const bool nonzero = dims->n_nonzero > 0;
    const int64_t n = nonzero ? dims->n_symbols : count_symbols(graph, inputs);
    if (n == 0)
        return ATTNRUN_OK;
    const int64_t bytes = n * (int64_t)sizeof(int64_t);
    int64_t *values = attn_alloc(memory, ATTN_MEM_PLAN, bytes);
    if (values == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t s = 0; s < n; s++)
        values[s] = NOT_KNOWN;
    attn_status status = read_sizes(graph, inputs, values);
    if (status == ATTNRUN_OK && nonzero)
        status = check_nonzero(dims, values);
    attn_free(memory, ATTN_MEM_PLAN, values, bytes);
    return status;
}
