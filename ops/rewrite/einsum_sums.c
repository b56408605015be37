/* einsum_sums.c - an Einsum of two operands sums the labels that only one operand has before the
 * product, and not for each element of the other operand:
 *
 *   "bnd,bmd->bn" (Q, K)   becomes   "bnd,bd->bn" (Q, ReduceSum(K))
 *
 * taylor-series-linear-attention writes the divisor of linear attention so. A sum of products
 * becomes a sum and a product, in another order. */
#include <stdio.h>

#include "product.h"

/* The axes of x whose labels neither the other operand nor the result has; *rest: the others. */
static int own_axes(const struct attn_labelled *x, const struct attn_labelled *other,
                    const struct attn_labelled *out, int64_t *axes,
                    struct attn_labelled *rest)
{
    int n = 0;
    *rest = (struct attn_labelled){ .value = x->value };
    for (int a = 0; a < x->n; a++)
        if (attn_labelled_has(other, x->labels[a]) ||
            attn_labelled_has(out, x->labels[a]))
            rest->labels[rest->n++] = x->labels[a];
        else
            axes[n++] = a;
    return n;
}

static attn_status add_sum(struct attn_graph *graph, struct attn_node *before,
                           const int64_t *axes, int n, int32_t *value)
{
    const struct attn_attr keep = MATCH_INT("keepdims", 0);
    int32_t in[2] = { *value };
    TRY(attn_match_ints(graph, n, axes, &in[1]));
    return attn_match_add(graph, before, "ReduceSum", 2, in, 1, &keep, value);
}

static attn_status try_einsum(struct attn_graph *graph, struct attn_node *einsum,
                              int32_t *applied)
{
    struct attn_product p;
    struct attn_labelled rest[2];
    int64_t axes[2][PRODUCT_RANK];
    int n[2];
    if (!attn_match_is_f32(graph, einsum->out[0]) ||
        !attn_einsum_read(graph, einsum, &p) || p.n_in != 2)
        return ATTNRUN_OK;
    for (int side = 0; side < 2; side++)
        n[side] = own_axes(&p.in[side], &p.in[1 - side], &p.out, axes[side], &rest[side]);
    if (n[0] + n[1] == 0 || rest[0].n == 0 || rest[1].n == 0)
        return ATTNRUN_OK;
    char *equation = attn_pool_alloc(&graph->model->pool, 3 * PRODUCT_RANK + 8);
    if (equation == NULL)
        return ATTNRUN_E_MEMORY;
    snprintf(equation, 3 * PRODUCT_RANK + 8, "%s,%s->%s", rest[0].labels, rest[1].labels,
             p.out.labels);
    const struct attn_attr attr = MATCH_STRING("equation", equation);
    int32_t in[2] = { p.in[0].value, p.in[1].value };
    struct attn_node *made;
    for (int side = 0; side < 2; side++)
        if (n[side] > 0)
            TRY(add_sum(graph, einsum, axes[side], n[side], &in[side]));
    TRY(attn_match_make(graph, einsum, "", "Einsum", 2, in, einsum->out[0], 1, &attr,
                        &made));
    attn_match_replace(graph, einsum->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_einsum_sums = { .name = "einsum_sums",
                                                 .op_type = "Einsum",
                                                 .try_node = try_einsum };
