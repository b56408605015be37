/* move.h - what the data-movement operators share: known values of small integer inputs,
 * indices counted from the end, and plain copies. */
#ifndef OP_MOVE_H
#define OP_MOVE_H

#include "strided_copy.h"

/* The args struct, or NULL for rows without attributes. */
static inline const void *op_move_args(const attnrun_step *step)
{
    return step->node->op->args_bytes > 0 ? step->args : NULL;
}
/* infer: element k of integer input `in`, constant or symbolic; false where not known. */
bool op_move_value(const attnrun_step *step, int in, int64_t k, attnrun_dim *value);
/* The same where it is only handed on: see op_peek_value(). */
bool op_move_peek(const attnrun_step *step, int in, int64_t k, attnrun_dim *value);
/* An element that is not known: not a symbol, since it may be -1 or 0 with a meaning. */
static inline attnrun_dim op_move_no_value(void) { return (attnrun_dim){ .expr = -1 }; }
/* infer: how many elements the input has, where that is a constant of at most 64; else
 * -1. */
int64_t op_move_n_values(const attnrun_step *step, int in);
/* infer: output 0 has the elements of input 0, whatever its shape, where they are
 * known. */
void op_move_values_along(attnrun_step *step);
/* Elements of a small list: `n` of them or fewer; -1 where the length is not known. */
int64_t op_move_list_length(const attnrun_step *step, int in);
/* Fails for types of less than a byte. */
attn_status op_move_need_bytes(const attnrun_step *step, int in);
/* Row-major strides in elements of constant dims. */
void op_move_strides(int rank, const int64_t *dims, int64_t *strides);
/* The constant dims of a type. */
void op_move_dims(const attnrun_type *type, int64_t *dims);
/* infer: output `out` has constant dims that memory can hold (the runtime refuses
 * others). */
bool op_move_planned(const attnrun_step *step, int out);
/* Every output of a step has an unknown shape of this rank (-1: unknown). */
attn_status op_move_unknown(attnrun_step *step, int out, int32_t dtype, int rank);
/* The dim that both are; fails where both are constants and differ. */
attn_status op_move_same(const attnrun_step *step, int in, int axis, attnrun_dim a,
                         attnrun_dim *both);
/* E_RANGE: element k of integer input `in` is not in [-limit, limit). */
attn_status op_move_fail_index(const attnrun_step *step, int in, int64_t k,
                               int64_t limit);
/* run: elements [begin, end) of integer input `in` are in [-limit, limit): E_RANGE
 * else. */
attn_status op_move_check_indices(const attnrun_step *step, int in, int64_t begin,
                                  int64_t end, int64_t limit);
/* Element k of an i32 or i64 tensor, wrapped into [0, limit). */
static inline int64_t op_move_index(const attnrun_tensor *t, int64_t k, int64_t limit)
{
    int64_t i; /* of a mapped file: perhaps not aligned */
    int32_t narrow;
    if (t->dtype == ATTNRUN_I32) {
        memcpy(&narrow, (const char *)t->data + k * 4, 4);
        i = narrow;
    } else {
        memcpy(&i, (const char *)t->data + k * 8, 8);
    }
    return i < 0 ? i + limit : i;
}
/* Writes n elements of `bytes` bytes with the pattern at `value`; polls where they are
 * many. */
void op_move_fill(void *to, int64_t n, const void *value, int64_t bytes);
/* Copies chunk [begin, end) of tasks of OP_MOVE_CHUNK bytes of a block of `bytes` bytes. */
void op_move_copy_chunks(void *to, const void *from, int64_t bytes, int64_t begin,
                         int64_t end);
/* The number of those tasks. */
int64_t op_move_chunks(int64_t bytes);
enum { OP_MOVE_CHUNK = 16384 };
/* States those tasks. */
void op_move_tasks(attnrun_step *step, int phase, int64_t bytes);
/* Nanoseconds of a row that is read from anywhere. */
static inline double op_move_ns(int64_t row_bytes) { return 2 + (double)row_bytes / 4; }
/* How many rows of so many bytes, at least 1, a task takes. */
static inline int64_t op_move_rows_per_task(int64_t row_bytes)
{
    return max64(1, min64(2048, OP_MOVE_CHUNK / row_bytes));
}

#endif
