/* mask_opcode.c - translates elementwise nodes into instructions of a mask program.
 *
 * In: a node and the types of its operands. Out: the opcode of mask_code.h, or -1 where a mask
 * program has no instruction with the same arithmetic: casts of floats to integers, Mod of floats
 * or by a number below 1, bitwise operators of integers, operators of opset 6 and before, which
 * broadcast in another way. Cost: one look through the table. */
#include "write_mask.h"

static const struct {
    const char *op_type;
    int64_t opcode;
    int32_t n_in;
} rows[] = {
    { "Neg", MASK_NEG, 1 },
    { "Abs", MASK_ABS, 1 },
    { "Not", MASK_NOT, 1 },
    { "Add", MASK_ADD, 2 },
    { "Sub", MASK_SUB, 2 },
    { "Mul", MASK_MUL, 2 },
    { "Min", MASK_MIN, 2 },
    { "Max", MASK_MAX, 2 },
    { "Mod", MASK_MOD, 2 },
    { "Less", MASK_LESS, 2 },
    { "LessOrEqual", MASK_LESS_EQUAL, 2 },
    { "Greater", MASK_GREATER, 2 },
    { "GreaterOrEqual", MASK_GREATER_EQUAL, 2 },
    { "Equal", MASK_EQUAL, 2 },
    { "And", MASK_AND, 2 },
    { "BitwiseAnd", MASK_AND, 2 },
    { "Or", MASK_OR, 2 },
    { "BitwiseOr", MASK_OR, 2 },
    { "Xor", MASK_XOR, 2 },
    { "Where", MASK_WHERE, 3 },
    { "Cast", MASK_CAST, 1 },
};

static int32_t dtype_of(const struct attn_graph *graph, int32_t value)
{
    return value >= 0 ? graph->values[value].type.dtype : 0;
}

int64_t attn_mask_opcode(const struct attn_graph *graph, const struct attn_node *node)
{
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        if (!node_is(node, rows[k].op_type) || node->pub.n_in != rows[k].n_in)
            continue;
        const int32_t from = dtype_of(graph, node->in[0]),
                      to = dtype_of(graph, node->out[0]);
        double divisor;
        const bool bits = rows[k].op_type[0] == 'B';
        if ((node->pub.opset < 7 && rows[k].n_in == 2) || (bits && to != ATTNRUN_BOOL) ||
            (rows[k].opcode == MASK_CAST && from == ATTNRUN_F32 &&
             (to == ATTNRUN_I32 || to == ATTNRUN_I64)) ||
            (rows[k].opcode == MASK_MOD &&
             (to == ATTNRUN_F32 || attn_match_int(node, "fmod", 0) != 0 ||
              !attn_value_scalar(graph, node->in[1], &divisor) || divisor < 1)))
            return -1;
        return rows[k].opcode;
    }
    return -1;
}
