/* shape_source.c - the shape of an inner tensor is read off the inputs of the graph, where its dims
 * are provably theirs, or numbers:
 *
 *   Shape(X) = Concat(Gather(Shape(input), axis), number, …)
 *
 * Exporters make masks of the shape of scores, which fused attention does not have
 * (fuse_attention.c): nothing but what computes with X reads it then. Exact. */
#include "match.h"

enum { MAX_INPUTS = 1024 }; /* of the graph: each Shape looks at all of them */

/* The input of the graph that has this dim, and *axis of it; -1: none has. */
static int32_t source_of(const struct attn_graph *graph, attnrun_dim dim, int64_t *axis)
{
    for (int32_t i = 0; i < graph->n_inputs; i++) {
        const attnrun_type *t = &graph->values[graph->inputs[i]].type;
        if (t->kind != ATTNRUN_TENSOR)
            continue;
        for (int32_t k = 0; k < t->rank; k++)
            if (dim_equal(t->dims[k], dim)) {
                *axis = k;
                return graph->inputs[i];
            }
    }
    return -1;
}

/* One element of the shape, i64[1]. */
static attn_status add_element(struct attn_graph *graph, struct attn_node *shape,
                               attnrun_dim dim, int32_t *value)
{
    int64_t axis = dim.value;
    int32_t in[2] = { -1, -1 };
    const int32_t source = dim_is_const(dim) ? -1 : source_of(graph, dim, &axis);
    TRY(attn_match_ints(graph, 1, &axis, value));
    if (source < 0)
        return ATTNRUN_OK;
    in[1] = *value;
    TRY(attn_match_add(graph, shape, "Shape", 1, &source, 0, NULL, &in[0]));
    return attn_match_add(graph, shape, "Gather", 2, in, 0, NULL, value);
}

static attn_status try_shape_source(struct attn_graph *graph, struct attn_node *shape,
                                    int32_t *applied)
{
    static const struct attn_attr first = MATCH_INT("axis", 0);
    const struct attn_value *x = &graph->values[shape->in[0]],
                            *y = &graph->values[shape->out[0]];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int32_t elements[ATTNRUN_MAX_RANK];
    int64_t axis;
    struct attn_node *made;
    const int32_t n = (int32_t)y->n_known;
    if (graph->outer != NULL || graph->n_inputs > MAX_INPUTS || x->producer < 0 ||
        x->n_uses < 2 || y->known == NULL || n < 1 || n > ATTNRUN_MAX_RANK ||
        y->type.rank != 1)
        return ATTNRUN_OK;
    for (int32_t k = 0; k < n; k++) {
        dims[k] = y->known[k];
        if (!dim_is_const(dims[k]) && source_of(graph, dims[k], &axis) < 0)
            return ATTNRUN_OK;
    }
    for (int32_t k = 0; k < n; k++)
        TRY(add_element(graph, shape, dims[k], &elements[k]));
    TRY(attn_match_make(graph, shape, "", "Concat", n, elements, shape->out[0], 1, &first,
                        &made));
    attn_match_replace(graph, shape->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_shape_source = { .name = "shape_source",
                                                  .op_type = "Shape",
                                                  .try_node = try_shape_source };
