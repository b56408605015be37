/* fuse_linear_attention.c - attention by kernel features, written out by its associativity,
 * becomes LinearAttention of domain attnrun, which computes features and sums tile by tile:
 *
 *   Y = (f(Q) (f(K)' V)) / (f(Q) sum_j f(K_j) + epsilon)
 *
 * epsilon is 0 if the graph adds none. f is elu + 1, relu, or whatever the graph computes from Q
 * and K. These forms are recognised:
 *
 *   products            MatMul or Einsum
 *   quotient            Div, or a product with Reciprocal, also as the third operand of an Einsum
 *   sum over keys       ReduceSum
 *   its product, f(Q)   Einsum, MatMul, or ReduceSum of a Mul
 *
 * Axes come in any order, through Transposes (linear_roles.h). All dims must be provably equal:
 * nothing is broadcast.
 * Source of the mechanism: Katharopoulos 2020, arXiv:2006.16236. */
#include "linear_quotient.h"

enum { RANK = 4, ALONE = '1' }; /* the label of an axis that others have not */

struct linear_attention_match {
    struct attn_linear_roles r;
    double epsilon;
    const char
        *why; /* queries times the product of keys and values are no such quotient */
};

/* ---- sums over keys ---- */

/* Takes off an Unsqueeze that gives the axis of `label`; false where one gives another, or of
 * which that is not known. `label` 0: any one. */
static bool squeeze(const struct attn_graph *graph, struct attn_labelled *x, char label)
{
    double at;
    const struct attn_node *node = attn_graph_producer(graph, x->value);
    if (!node_is(node, "Unsqueeze"))
        return true;
    if (node->pub.n_in < 2 || !attn_value_scalar(graph, node->in[1], &at))
        return false;
    const int axis = (int)(at < 0 ? at + x->n : at);
    if (axis < 0 || axis >= x->n || (label != 0 && x->labels[axis] != label))
        return false;
    memmove(x->labels + axis, x->labels + axis + 1, (size_t)(x->n - axis - 1));
    x->n--;
    x->value = node->in[0];
    return true;
}

/* The same value with the same axes, through Transposes. */
static bool is_labelled(const struct attn_graph *graph, struct attn_labelled x,
                        const struct attn_labelled *wanted)
{
    attn_labelled_untranspose(graph, &x);
    return x.value == wanted->value && x.n == wanted->n &&
           memcmp(x.labels, wanted->labels, (size_t)x.n) == 0;
}

/* `x` is the sum over keys of f(K), without that axis or with one of 1 in its place, or, by
 * Unsqueeze, in any place: labels as those of K. */
static bool is_key_sum(const struct attn_graph *graph,
                       const struct linear_attention_match *found, struct attn_labelled x)
{
    int axis;
    if (!squeeze(graph, &x, 0))
        return false;
    const struct attn_node *node = attn_graph_producer(graph, x.value);
    if (!node_is(node, "ReduceSum") || !attn_match_is_f32_of(graph, node->in[0], RANK) ||
        !attn_match_axis(graph, node, &axis))
        return false;
    const bool keeps = attn_match_int(node, "keepdims", 1) != 0;
    if (x.n != (keeps ? RANK : RANK - 1))
        return false;
    struct attn_labelled k = { .value = node->in[0], .n = RANK };
    for (int i = 0, at = 0; i < RANK; i++) {
        k.labels[i] = i == axis ? found->r.key : x.labels[at];
        at += i != axis || keeps;
    }
    return is_labelled(graph, k, &found->r.k);
}

/* f(Q) by the sum over keys, as Einsum or MatMul: labels of the result are those of y but
 * v_dim, one of 1 may stand there. */
static bool is_weight_sum(const struct attn_graph *graph,
                          const struct linear_attention_match *found,
                          struct attn_labelled x)
{
    struct attn_product p;
    const struct attn_node *node = attn_graph_producer(graph, x.value);
    if (node_is(node, "ReduceSum")) { /* of f(Q) times the sum, over dim */
        int axis;
        struct attn_node *times = attn_match_in(graph, node, 0, "Mul");
        if (times == NULL || !attn_match_axis(graph, node, &axis) ||
            attn_match_int(node, "keepdims", 1) == 0 || x.n != RANK ||
            !attn_match_is_f32_of(graph, times->out[0], RANK))
            return false;
        for (int side = 0; side < 2; side++) {
            struct attn_labelled q = { .value = times->in[side], .n = RANK },
                                 sum = { .value = times->in[1 - side], .n = RANK };
            for (int i = 0; i < RANK; i++) {
                q.labels[i] = i == axis ? found->r.dim : x.labels[i];
                sum.labels[i] =
                    q.labels[i] == found->r.query ? found->r.key : q.labels[i];
            }
            if (attn_match_is_f32_of(graph, q.value, RANK) &&
                attn_match_is_f32_of(graph, sum.value, RANK) &&
                is_labelled(graph, q, &found->r.q))
                return is_key_sum(graph, found, sum);
        }
        return false;
    }
    if (!attn_product_read(graph, x.value, &p) || p.n_in != 2 || p.out.n != x.n)
        return false;
    /* The product's own labels become those of f(Q). */
    char to[26] = { 0 };
    struct attn_labelled q = p.in[0], sum = p.in[1];
    attn_labelled_untranspose(graph, &q);
    attn_labelled_untranspose(graph, &sum);
    if (q.value != found->r.q.value || q.n != RANK)
        return false;
    for (int i = 0; i < RANK; i++)
        to[q.labels[i] - 'a'] = found->r.q.labels[i];
    for (int i = 0; i < sum.n; i++)
        sum.labels[i] = to[sum.labels[i] - 'a'] ? to[sum.labels[i] - 'a'] : ALONE;
    for (int i = 0; i < p.out.n; i++) {
        const char label = to[p.out.labels[i] - 'a'];
        if (label == found->r.dim || (label != 0 && label != x.labels[i]) ||
            (label == 0 && x.labels[i] != found->r.v_dim))
            return false;
    }
    return is_key_sum(graph, found, sum);
}

/* d, d + epsilon, or what it divides by as a factor, whose labels are those of y without v_dim,
 * or with one of 1 there. */
static bool read_denominator(const struct attn_graph *graph,
                             struct linear_attention_match *found, struct attn_labelled x,
                             bool factor)
{
    int32_t other;
    if (!squeeze(graph, &x, found->r.v_dim))
        return false;
    const struct attn_node *node = attn_graph_producer(graph, x.value);
    if (factor && !node_is(node, "Reciprocal"))
        return false;
    if (factor)
        x.value = node->in[0];
    if (!squeeze(graph, &x, found->r.v_dim))
        return false;
    node = attn_graph_producer(graph, x.value);
    found->epsilon = 0;
    if (node_is(node, "Add") &&
        attn_match_scalar(graph, node, true, &found->epsilon, &other)) {
        if (!(found->epsilon >= 0) || !attn_match_is_f32_of(graph, other, x.n))
            return false;
        x.value = other;
    }
    return is_weight_sum(graph, found, x);
}

/* ---- the whole ---- */

static bool read_quotient(const struct attn_graph *graph, const struct attn_product *p,
                          int q, int kv, struct attn_labelled denominator, bool factor,
                          void *arg)
{
    struct linear_attention_match *found = arg;
    if (!attn_linear_roles_read(graph, p, q, kv, &found->r) || found->r.q.n != RANK)
        return false;
    found->why = "its divisor is not the product of the queries and the sum of the keys";
    const char needed[] = { found->r.batch, found->r.head, found->r.query };
    const bool apart = denominator.n == RANK - 1; /* its labels are its own */
    for (int i = 0; apart && i < 3; i++)
        if (!attn_labelled_has(&denominator, needed[i]))
            return false;
    return (apart ? !attn_labelled_has(&denominator, found->r.dim) &&
                        !attn_labelled_has(&denominator, found->r.v_dim)
                  : denominator.n == RANK) &&
           read_denominator(graph, found, denominator, factor);
}

static attn_status try_linear_attention(struct attn_graph *graph, struct attn_node *node,
                                        int32_t *applied)
{
    struct linear_attention_match found = { .epsilon = 0 };
    if (!attn_match_is_f32_of(graph, node->out[0], RANK))
        return ATTNRUN_OK;
    if (!attn_quotient_read(graph, node, read_quotient, &found))
        return found.why != NULL
                   ? attn_graph_note(graph, node, "linear_attention", found.why)
                   : ATTNRUN_OK;
    return attn_linear_replace_quotient(graph, node, "linear_attention", &found.r,
                                        found.epsilon, applied);
}

const struct attn_pass attn_pass_linear_attention = { .name = "linear_attention",
                                                      .try_node = try_linear_attention };
