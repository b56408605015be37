/* einsum_outer.c - an Einsum of two operands that sums nothing becomes Mul of the
 * operands, with axes of 1 where an operand lacks a label of the result. transformers'
 * BigBird makes masks of pairs with it ("blq,bhlk->bhlqk"). The nodes behind it can then
 * be one elementwise step with it. The labels of both operands must be in the order of
 * the result. The products are the same; only the sign of a zero may differ. */
#include "product.h"

/* The axes of the result that x lacks; -1: its labels are others, or in another order. */
static int missing_axes(const struct attn_labelled *x, const struct attn_labelled *out,
                        int64_t *axes)
{
    int n = 0, k = 0;
    for (int i = 0; i < out->n; i++)
        if (k < x->n && x->labels[k] == out->labels[i])
            k++;
        else
            axes[n++] = i;
    return k == x->n ? n : -1;
}

static attn_status add_axes(struct attn_graph *graph, struct attn_node *before,
                            const int64_t *axes, int n, int32_t *value)
{
    int32_t in[2] = { *value };
    if (n == 0)
        return ATTNRUN_OK;
    TRY(attn_match_ints(graph, n, axes, &in[1]));
    return attn_match_add(graph, before, "Unsqueeze", 2, in, 0, NULL, value);
}

static attn_status try_einsum(struct attn_graph *graph, struct attn_node *einsum,
                              int32_t *applied)
{
    struct attn_product p;
    int64_t axes[2][PRODUCT_RANK];
    int n[2];
    if (!attn_einsum_read(graph, einsum, &p) || p.n_in != 2)
        return ATTNRUN_OK;
    for (int side = 0; side < 2; side++) {
        n[side] = missing_axes(&p.in[side], &p.out, axes[side]);
        if (n[side] < 0)
            return ATTNRUN_OK;
    }
    int32_t in[2] = { p.in[0].value, p.in[1].value };
    struct attn_node *made;
    for (int side = 0; side < 2; side++)
        TRY(add_axes(graph, einsum, axes[side], n[side], &in[side]));
    TRY(attn_match_make(graph, einsum, "", "Mul", 2, in, einsum->out[0], 0, NULL, &made));
    attn_match_replace(graph, einsum->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_einsum_outer = { .name = "einsum_outer",
                                                  .op_type = "Einsum",
                                                  .try_node = try_einsum };
