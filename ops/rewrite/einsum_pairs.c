/* einsum_pairs.c - an Einsum in a form that is multiplied in tiles:
 *
 *   "nd,de,n->ne" (A, B, C)      becomes   "ne,n->ne" ("nd,de->ne" (A, B), C)
 *   "hkn,kvn->hvn" (A, B)        becomes   a MatMul of Transposes, with n in front
 *
 * Three operands: the first two whose product has no label that the result lacks are multiplied
 * first. Two operands: where the last label of the result is one that both have, so that rows and
 * columns do not lie side by side. It runs behind the passes that recognise attention. Products are
 * summed in another order. Zen 4: lambda-networks' LambdaLayer, 128 channels of 32 x 32, 20.2 ->
 * 10.1 ms; TaylorSeriesLinearAttn, 4,096 tokens of 512, 920 -> 75 ms. */
#include <stdio.h>

#include "product.h"

enum { EQUATION = 3 * PRODUCT_RANK + 8 };

/* Labels of the result that a or b has, in its order; false where the third operand is summed
 * over. */
static bool read_pair(const struct attn_product *p, const struct attn_labelled *a,
                      const struct attn_labelled *b, const struct attn_labelled *rest,
                      char labels[PRODUCT_RANK + 1])
{
    int n = 0;
    for (int i = 0; i < p->out.n; i++)
        if (attn_labelled_has(a, p->out.labels[i]) ||
            attn_labelled_has(b, p->out.labels[i]))
            labels[n++] = p->out.labels[i];
    labels[n] = 0;
    for (int i = 0; i < rest->n; i++)
        if (!attn_labelled_has(&p->out, rest->labels[i]))
            return false; /* the third one is summed over */
    return n > 0;
}

static attn_status add_einsum(struct attn_graph *graph, struct attn_node *before,
                              const char *const labels[3], const int32_t in[2],
                              int32_t like, struct attn_node **made)
{
    char *equation = attn_pool_alloc(&graph->model->pool, EQUATION);
    if (equation == NULL)
        return ATTNRUN_E_MEMORY;
    snprintf(equation, EQUATION, "%s,%s->%s", labels[0], labels[1], labels[2]);
    const struct attn_attr attr = MATCH_STRING("equation", equation);
    int32_t y = like;
    if (like >= 0)
        return attn_match_make(graph, before, "", "Einsum", 2, in, like, 1, &attr, made);
    TRY(attn_match_add(graph, before, "Einsum", 2, in, 1, &attr, &y));
    *made = attn_graph_producer(graph, y);
    return ATTNRUN_OK;
}

static attn_status split_three(struct attn_graph *graph, struct attn_node *einsum,
                               const struct attn_product *p, int32_t *applied)
{
    char both[PRODUCT_RANK + 1];
    int last = 2;
    while (last >= 0 && !read_pair(p, &p->in[(last + 1) % 3], &p->in[(last + 2) % 3],
                                   &p->in[last], both))
        last--;
    if (last < 0)
        return ATTNRUN_OK;
    const struct attn_labelled *a = &p->in[last == 0 ? 1 : 0],
                               *b = &p->in[last == 2 ? 1 : 2];
    const char *const first[3] = { a->labels, b->labels, both }, *const second[3] = {
        both, p->in[last].labels, p->out.labels
    };
    const int32_t in[2] = { a->value, b->value };
    struct attn_node *made;
    TRY(add_einsum(graph, einsum, first, in, -1, &made));
    const int32_t then[2] = { made->out[0], p->in[last].value };
    TRY(add_einsum(graph, einsum, second, then, einsum->out[0], &made));
    attn_match_replace(graph, einsum->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status try_einsum(struct attn_graph *graph, struct attn_node *einsum,
                              int32_t *applied)
{
    struct attn_product p;
    if (!attn_match_is_f32(graph, einsum->out[0]) || !attn_einsum_read(graph, einsum, &p))
        return ATTNRUN_OK;
    if (p.n_in == 3)
        return split_three(graph, einsum, &p, applied);
    const char last = p.out.n > 0 ? p.out.labels[p.out.n - 1] : 0;
    if (p.n_in != 2 || last == 0 || !attn_labelled_has(&p.in[0], last) ||
        !attn_labelled_has(&p.in[1], last))
        return ATTNRUN_OK;
    return attn_einsum_to_matmul(graph, einsum, applied);
}

const struct attn_pass attn_pass_einsum_pairs = { .name = "einsum_pairs",
                                                  .op_type = "Einsum",
                                                  .try_node = try_einsum };
