/* write_mask.h - writes the mask program of a FusedAttention
 * (attention/core/mask_program.h) from the nodes that make its mask. */
#ifndef ATTN_REWRITE_WRITE_MASK_H
#define ATTN_REWRITE_WRITE_MASK_H

#include "../attention/core/mask_code.h"
#include "match.h"

/* score where(all of keep, score, fill) + all of add, or `fill` without what is added
 * where it is `filled_last`; where there are several fills and nothing is added, where(keep[0],
 * where(keep[1], … score …, fills[1]), fills[0]). Values of the graph, which are broadcast to the
 * scores; -1: absent. */
enum { MASK_KEEPS = 4, MASK_ADDS = 3 };
struct attn_mask_source {
    int32_t keep[MASK_KEEPS], add[MASK_ADDS];
    float fill;
    float fills[MASK_KEEPS];
    bool many_fills;
    bool drops[MASK_KEEPS]; /* `keep` is where the score does not stay */
    bool filled_last;
    bool causal;                 /* and only keys up to the query's own position */
    attnrun_dim dims[MASK_AXES]; /* blocks (1: none), batch, heads, queries, keys */
    const int8_t *axes;          /* of the scores, `rank` of them: which one each is */
    int32_t rank;
};
/* Scores (batch, blocks, heads, queries, keys), and those of one block without that axis. */
extern const int8_t attn_mask_axes_of_blocks[MASK_AXES], attn_mask_axes_of_heads[4];

struct attn_mask_written {
    int32_t leaves[MASK_MAX_LEAVES], n_leaves;
    int64_t code[MASK_MAX_CODE * MASK_WORDS], mask[MASK_CONSTANTS],
        axes[MASK_MAX_LEAVES * MASK_AXES];
    int32_t n_code;
    bool fits;    /* the dims of `source` are proved to be those of the masked scores */
    bool trivial; /* nothing but one tensor of all pairs that is added */
};

/* *done: false where the nodes do not fit into a program. */
attn_status attn_mask_write(const struct attn_graph *graph,
                            const struct attn_mask_source *source,
                            struct attn_mask_written *written, bool *done);
/* Writes the attributes of a program; their numbers are stored in the model's memory. */
enum { MASK_ATTRS = 3 };
attn_status attn_mask_attrs(struct attn_graph *graph,
                            const struct attn_mask_written *written,
                            struct attn_attr *attrs);

/* An operand, until all leaves are known: the result of instruction operand - MASK_RESULT. This
 * numbers the results behind the leaves. */
enum { MASK_RESULT = 1 << 20 };
void attn_mask_place_results(struct attn_mask_written *written);

/* Puts the leaves behind the three operands in `in`, and returns the number of inputs. */
enum { MASK_LEAF = 7 }; /* input of FusedAttention */
int32_t attn_mask_inputs(const struct attn_mask_written *written, int32_t *in);

/* The opcode of an elementwise node; -1: it has none. */
int64_t attn_mask_opcode(const struct attn_graph *graph, const struct attn_node *node);

/* mask_positions.c: a Range of integers that counts up by one; and a value of one dim above 1 that
 * is made of such a Range with `n` elements, by instructions with single numbers. */
bool attn_mask_is_range(const struct attn_graph *graph, const struct attn_node *node);
bool attn_mask_is_positions(const struct attn_graph *graph, int32_t value, attnrun_dim n);

/* Which axis of the mask each axis of the input is, of a node that moves axes and whose output has
 * `axes`; false where the node does more. */
bool attn_mask_moved_axes(const struct attn_graph *graph, const struct attn_node *node,
                          const int8_t *axes, int8_t *moved);

/* A constant matrix that is a band: element `inside` where first <= column - row <= last,
 * else element `outside` (numbers of elements). */
struct attn_mask_band {
    int64_t rows, columns, first, last, inside, outside;
    bool open_first, open_last; /* without bound */
};
/* Examines the whole matrix. *found: it is a band. */
attn_status attn_mask_find_band(const attnrun_tensor *x, int64_t rows, int64_t columns,
                                struct attn_mask_band *band, bool *found);

#endif
