/* exp_softmax.c - a softmax that is written out by its log of sums becomes Softmax, which
 * later passes look for (fuse_block_attention.c, softmax_operands.c):
 *
 *   Exp(S - ReduceLogSumExp(S)) over the last axis = Softmax(S)
 *
 * It applies where only a product reads the result and sums its rows, as in transformers'
 * Reformer. Other nodes may read the sums, too. It is exact but for the last bits of a
 * sum, with one exception: all scores of a row may be so far from 0 that floats cannot
 * hold the log of a number beside them (-1e9 in the place of each), or hold it to 1/256
 * only (-5e4). Then the weights of Softmax still sum to 1, while those that are written
 * out are 1 each, or are wrong by as much as the log is. */
#include "product.h"

/* Whether the only node that reads a value is a product which sums its last axis: rows with an
 * infinite score are NaN then, also where only one weight of them was. */
static bool sums_rows(const struct attn_graph *graph, int32_t value)
{
    const struct attn_node *user = attn_graph_only_user(graph, value);
    struct attn_product p;
    if (user == NULL || !attn_product_read(graph, user->out[0], &p))
        return false;
    for (int i = 0; i < p.n_in; i++)
        if (p.in[i].value == value &&
            !attn_labelled_has(&p.out, p.in[i].labels[p.in[i].n - 1]))
            return true;
    return false;
}

static attn_status try_exp(struct attn_graph *graph, struct attn_node *exp,
                           int32_t *applied)
{
    const struct attn_node *sub = attn_match_in(graph, exp, 0, "Sub");
    const struct attn_node *sum =
        sub ? attn_match_in(graph, sub, 1, "ReduceLogSumExp") : NULL;
    if (sum == NULL || sum->in[0] != sub->in[0] || !attn_match_reduces_last(graph, sum) ||
        !attn_match_is_f32(graph, sub->in[0]) || exp->pub.opset < 13 ||
        !attn_match_same_shape(graph, sub->in[0], exp->out[0]) ||
        !sums_rows(graph, exp->out[0]))
        return ATTNRUN_OK;
    const struct attn_attr axis = MATCH_INT("axis", -1);
    const int32_t scores = sub->in[0];
    struct attn_node *made;
    TRY(attn_match_make(graph, exp, "", "Softmax", 1, &scores, scores, 1, &axis, &made));
    attn_match_replace(graph, exp->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_exp_softmax = { .name = "exp_softmax",
                                                 .op_type = "Exp",
                                                 .try_node = try_exp };
