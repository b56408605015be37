/* trees.c - follows rows through decision trees. trees.h has the interface. */
#include "trees.h"

#include <float.h>
#include <math.h>

enum { VISIT_BYTES = 32 }; /* of a node and of its feature */

static char *trees_take(char **at, int64_t bytes)
{
    char *part = *at;
    *at += round_up(bytes, 8);
    return part;
}

int64_t op_trees_layout(struct trees *trees, void *memory)
{
    char base = 0, *start = memory != NULL ? memory : &base, *at = start;
    const int64_t word = (int64_t)sizeof(int32_t);
    int64_t total = round_up(trees->n_nodes * (int64_t)sizeof(struct tree_node), 8) +
                    round_up(trees->n_roots * word, 8) +
                    round_up(trees->n_votes * word, 8) + trees->n_slots * word;
    if (memory == NULL)
        return total;
    trees->nodes =
        (void *)trees_take(&at, trees->n_nodes * (int64_t)sizeof(struct tree_node));
    trees->roots = (void *)trees_take(&at, trees->n_roots * word);
    trees->next = (void *)trees_take(&at, trees->n_votes * word);
    trees->slots = (void *)at;
    return total;
}

static bool is_member(const struct tree_node *node, const attnrun_tensor *members,
                      double x)
{
    const int64_t bytes = node->n_members * (int64_t)sizeof(float);
    (void)attn_poll_work(bytes); /* op_trees_leaf() sees it */
    for (int32_t k = 0; k < node->n_members; k++)
        if (tensor_get_real(members, node->first_member + k) == x)
            return true;
    return false;
}

static bool goes_yes(const struct tree_node *node, const attnrun_tensor *members,
                     double x)
{
    if (isnan(x) && node->missing_yes)
        return true;
    switch (node->mode) {
    case TREE_LEQ:
        return x <= node->split;
    case TREE_LT:
        return x < node->split;
    case TREE_GTE:
        return x >= node->split;
    case TREE_GT:
        return x > node->split;
    case TREE_EQ:
        return x == node->split;
    case TREE_NEQ:
        return x != node->split;
    default:
        return is_member(node, members, x);
    }
}

int64_t op_trees_leaf(const struct trees *trees, int64_t root, const attnrun_tensor *x,
                      int64_t first, const attnrun_tensor *members)
{
    int64_t at = root, visit = 0;
    for (; at >= 0 && trees->nodes[at].mode != TREE_LEAF; visit++) {
        if (visit > trees->n_nodes || attn_stops(visit))
            return -1;
        const struct tree_node *node = &trees->nodes[at];
        double value = tensor_get_real(x, first + node->feature);
        at = goes_yes(node, members, value) ? node->yes : node->no;
    }
    return attn_poll_work(visit * VISIT_BYTES) == ATTNRUN_OK ? at : -1;
}

double op_trees_start(int32_t sum, bool f64)
{
    double max = f64 ? DBL_MAX : (double)FLT_MAX;
    return sum == TREES_MIN ? max : sum == TREES_MAX ? -max : 0;
}
