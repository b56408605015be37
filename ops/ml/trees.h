/* trees.h - decision trees in one form, for all operators that have them.
 *
 * Nodes are numbered over all trees. A branch compares a feature with `split`, or
 * searches it among members, and leads to node `yes` or `no`. A leaf has votes, each a
 * weight for a target, linked by `next`. Cost: the depth of a tree for each row. */
#ifndef ATTN_ML_TREES_H
#define ATTN_ML_TREES_H

#include "ml.h"

enum tree_mode {
    TREE_LEQ,
    TREE_LT,
    TREE_GTE,
    TREE_GT,
    TREE_EQ,
    TREE_NEQ,
    TREE_MEMBER,
    TREE_LEAF
};

struct tree_node {
    double split;
    int32_t feature, yes, no; /* leaf: yes is its first vote, or -1 */
    int32_t first_member, n_members;
    int8_t mode, missing_yes; /* missing_yes: NaN goes to `yes` */
};

/* The parts of a packed ensemble; all counts are at most TREES_LIMIT. */
enum { TREES_LIMIT = 1 << 26 };
struct trees {
    int64_t n_nodes, n_roots, n_votes, n_slots;
    struct tree_node *nodes;
    int32_t *roots;
    int32_t *next; /* of a vote: the next of the same leaf, or -1 */
    int32_t
        *slots; /* node by (tree, id): node + 1; room for the operators that need it */
};

/* Bytes of the parts for these counts; sets the pointers where `memory` is not NULL. */
int64_t op_trees_layout(struct trees *trees, void *memory);
/* The leaf that x reaches: features at element `first` on; -1 where the nodes are a
 * circle, one is missing (-1), or the call is to end. */
int64_t op_trees_leaf(const struct trees *trees, int64_t root, const attnrun_tensor *x,
                      int64_t first, const attnrun_tensor *members);

enum tree_sum { TREES_AVERAGE, TREES_SUM, TREES_MIN, TREES_MAX };
/* What a target starts from. */
double op_trees_start(int32_t sum, bool f64);
static inline double trees_add(int32_t sum, double total, double weight)
{
    return sum == TREES_MIN   ? (weight < total ? weight : total)
           : sum == TREES_MAX ? (weight > total ? weight : total)
                              : total + weight;
}

#endif
