/* mask_program.h - the mask of an attention as a small program over queries and keys, in
 * place of a tensor of all pairs. rewrite/write_mask.c writes it from the nodes that
 * would have made the tensor. masked.c asks it, tile by tile, which keys are seen.
 *
 * Attributes of FusedAttention:
 *
 *   code   MASK_WORDS numbers an instruction: opcode, operand, operand, operand
 *   mask   MASK_CONSTANTS numbers: see enum attn_mask_fact
 *   axes   MASK_AXES numbers a leaf: its axis along blocks, batch, heads, queries and keys;
 *          -1 where it has none
 *
 * An operand is a leaf (an input of the node, from 0 on) or the result of an earlier
 * instruction (its number continues behind the leaves). A number has the type of its
 * operand, which is b8, i32, i64 or f32, and the arithmetic of the ONNX operator of that
 * name. The mask is
 *
 *   score  where(keep, score, fill) + add          keep, add: operands, or absent
 *
 *   plan:  attn_mask_plan(), tables of attn_mask_table_bytes()
 *   run:   attn_mask_summarize() for each leaf, once; then
 *          attn_mask_look(): what is proved of all pairs of a tile at once
 *          attn_mask_rows(): a tile, element by element
 *
 * What attn_mask_look() returns holds for every pair of the tile. It follows lines (the
 * position of a query or a key), intervals and bands through the program, and takes the
 * values of leaves from summaries of all their elements. Where it can prove nothing it
 * returns ATTN_MASK_SOME. */
#ifndef ATTN_MASK_PROGRAM_H
#define ATTN_MASK_PROGRAM_H

#include "../../../runtime/op.h"
#include "mask_code.h"

/* One leaf in a plan. */
struct attn_mask_leaf {
    int64_t stride[MASK_AXES]; /* elements; 0: broadcast */
    int32_t dtype;
    int32_t axis; /* MASK_QUERY or MASK_KEY where it goes along that alone, else
                             * MASK_AXES (a number) or -1 (both: nothing is summarized) */
    bool pairs;   /* it has both, which one entry bounds (axis MASK_AXES) */
    int64_t windows, batches, heads; /* that it tells apart */
    int64_t blocks, entries;         /* of 64 elements along the axis; of all levels */
    int64_t table;                   /* first entry */
};

struct attn_mask_program {
    const int64_t *code;
    int32_t n_code, n_leaves, n; /* n: operands */
    int32_t keep, add;           /* -1: absent */
    float fill;
    bool soft; /* what is not seen may be a finite number */
    int64_t queries, keys;
    int64_t entries; /* of the tables of all leaves */
    int32_t dtype[MASK_MAX_LEAVES + MASK_MAX_CODE];
    bool by_query[MASK_MAX_LEAVES + MASK_MAX_CODE];
    struct attn_mask_leaf leaf[MASK_MAX_LEAVES];
};

/* A summary of the elements of a block of a leaf: bounds, and whether element t of it is
 * base + step t. */
struct attn_mask_entry {
    double low, high;
    int64_t base, step;
    bool line, nan;
};

enum { ATTN_MASK_BLOCK = 64 };

/* sizes: blocks, batch, heads, queries, keys. `first`: the input that is leaf 0. */
attn_status attn_mask_plan(const attnrun_step *step, int first, attnrun_ints code,
                           attnrun_ints known_outputs, attnrun_ints axes,
                           const int64_t *sizes, struct attn_mask_program *program);
int64_t attn_mask_table_bytes(const struct attn_mask_program *program);
/* Fills in the entries of one leaf. */
attn_status attn_mask_summarize(const struct attn_mask_program *program, int32_t leaf,
                                const attnrun_tensor *x, struct attn_mask_entry *table);

/* The place of a question about the mask: block w of sample b and head h. x: the
 * leaves. */
struct attn_mask_place {
    const struct attn_kernels *kernels;
    const struct attn_mask_program *program;
    const attnrun_tensor *x;
    const struct attn_mask_entry *table;
    int64_t b, h, w;
};
/* Queries and keys first … end - 1. The queries are within one block of 64. The keys are
 * a whole level: their number is a power of two times 64, and `from` is a multiple of
 * it. */
struct attn_mask_tile {
    int64_t query, query_end, key, key_end;
};
enum attn_mask_form {
    ATTN_MASK_ALL_SEEN,
    ATTN_MASK_NONE_SEEN,
    ATTN_MASK_BAND, /* seen where first <= key - query <= last */
    ATTN_MASK_SOME
};
struct attn_mask_seen {
    enum attn_mask_form form;
    int64_t first, last;
    double
        soft; /* no key that is not seen gets more than this; -INFINITY: they all get -inf */
};
struct attn_mask_seen attn_mask_look(const struct attn_mask_place *place,
                                     const struct attn_mask_tile *tile);

/* The bytes of scratch that attn_mask_rows() needs. */
int64_t attn_mask_row_bytes(const struct attn_mask_program *program);
/* Applies the mask to the scores of a tile whose keys are within one block of 64;
 * row_step floats lie between the scores of two queries. With `literally` every pair is
 * computed, even where attn_mask_look() proved something. */
void attn_mask_rows(const struct attn_mask_place *place,
                    const struct attn_mask_tile *tile, bool literally, void *memory,
                    float *scores, int64_t row_step);

/* The number of operands of an instruction. */
static inline int32_t attn_mask_operands(int64_t opcode)
{
    return opcode < MASK_NEG ? 0 : opcode < MASK_ADD ? 1 : opcode == MASK_WHERE ? 3 : 2;
}

#endif
