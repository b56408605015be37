/* op.h - what operator files include: the public contract (attnrun_op_def and step) with
 * the helpers that keep an operator file down to its formula.
 *
 * Life of a node: the loader fills attributes into the op's args struct and checks arity,
 * dtypes and kinds against the row; infer() is called with symbolic dims at load, and
 * with constant ones (step->concrete) for each new input shape; pack() once per model;
 * run() many times, from several workers, over disjoint ranges of the tasks of a phase. A
 * worker's result must not depend on how tasks are grouped into ranges. Operators never
 * allocate, start threads, print, or keep statics that change. */
#ifndef ATTN_OP_H
#define ATTN_OP_H

#include <string.h>

#include "dim.h"
#include "dtype.h"
#include "poll.h"
#include "status.h"
#include "tensor.h"

/* ---- attribute rows:  static const attnrun_attr_def softmax_attrs[] = {
 *          ATTR_INT(struct softmax_args, axis, -1), ATTR_END };  ---- */
#define ATTR_INT(args, member, value)                                                    \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_INT,                                                          \
      .offset = offsetof(args, member),                                                  \
      .int_default = (value) }
/* Of a few values: `allowed` is like "0..3" or "1 10 11 16". */
#define ATTR_CHOICE(args, member, allowed, value)                                        \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_INT,                                                          \
      .offset = offsetof(args, member),                                                  \
      .int_default = (value),                                                            \
      .text = (allowed) }
#define ATTR_FLAG(args, member, value) ATTR_CHOICE(args, member, "0..1", value)
/* Numbers of element types that hold fractions and are no smaller than f16. */
#define OP_REAL_DTYPES "1 10 11 16"
#define ATTR_INT_REQUIRED(args, member)                                                  \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_INT,                                                          \
      .offset = offsetof(args, member),                                                  \
      .flags = ATTNRUN_ATTR_REQUIRED }
#define ATTR_FLOAT(args, member, value)                                                  \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_FLOAT,                                                        \
      .offset = offsetof(args, member),                                                  \
      .float_default = (value) }
#define ATTR_STRING(args, member, value)                                                 \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_STRING,                                                       \
      .offset = offsetof(args, member),                                                  \
      .text = (value) }
#define ATTR_ENUM(args, member, words, value)                                            \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_ENUM,                                                         \
      .offset = offsetof(args, member),                                                  \
      .text = (words),                                                                   \
      .int_default = (value) }
#define ATTR_INTS(args, member)                                                          \
    { .name = #member, .kind = ATTNRUN_ATTR_INTS, .offset = offsetof(args, member) }
#define ATTR_INTS_REQUIRED(args, member)                                                 \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_INTS,                                                         \
      .offset = offsetof(args, member),                                                  \
      .flags = ATTNRUN_ATTR_REQUIRED }
#define ATTR_FLAGS(args, member)                                                         \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_INTS,                                                         \
      .offset = offsetof(args, member),                                                  \
      .text = "0..1" }
#define ATTR_FLAGS_REQUIRED(args, member)                                                \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_INTS,                                                         \
      .offset = offsetof(args, member),                                                  \
      .flags = ATTNRUN_ATTR_REQUIRED,                                                    \
      .text = "0..1" }
#define ATTR_FLOATS(args, member)                                                        \
    { .name = #member, .kind = ATTNRUN_ATTR_FLOATS, .offset = offsetof(args, member) }
#define ATTR_STRINGS(args, member)                                                       \
    { .name = #member, .kind = ATTNRUN_ATTR_STRINGS, .offset = offsetof(args, member) }
#define ATTR_TENSOR(args, member)                                                        \
    { .name = #member, .kind = ATTNRUN_ATTR_TENSOR, .offset = offsetof(args, member) }
#define ATTR_GRAPH(args, member)                                                         \
    { .name = #member, .kind = ATTNRUN_ATTR_GRAPH, .offset = offsetof(args, member) }
#define ATTR_TYPE(args, member)                                                          \
    { .name = #member, .kind = ATTNRUN_ATTR_TYPE, .offset = offsetof(args, member) }
#define ATTR_IGNORED(attribute) { .name = (attribute), .kind = ATTNRUN_ATTR_IGNORED }
#define ATTR_END                { .name = NULL, .kind = ATTNRUN_ATTR_END }

/* Every row starts with this: const attnrun_op_def op_softmax_13 = { OP_ROW, .name = … }; those of
 * other domains with OP_ROW_OF("attnrun"). */
#define OP_ROW_OF(domain_) .struct_size = sizeof(attnrun_op_def), .domain = (domain_)
#define OP_ROW             OP_ROW_OF("")

/* An absent integer attribute where no value of its own can say so. */
#define OP_INT_ABSENT INT64_MIN

/* ---- errors ---- */
attn_status op_fail(const attnrun_step *step, attn_status status, const char *format, ...)
    ATTN_PRINTF(3, 4);
/* "input 1 'k' is f32[2,511], expected <text>": names the input by the row and the model.
 */
attn_status op_fail_input(const attnrun_step *step, int in, attn_status status,
                          const char *format, ...) ATTN_PRINTF(4, 5);

/* E_LIMIT "<what> would be over <limit>; the inputs are Q f32[2,3], K f32[4,3]": a size that is
 * made of the sizes of inputs. */
attn_status op_fail_size(const attnrun_step *step, const char *what, const char *limit);
/* The same of scratch memory or of tasks, which 64 bits count. */
attn_status op_fail_scratch(const attnrun_step *step);

/* E_SHAPE "<what>: input 0 A 'a' is f32[2,3], 3 in dim 1; input 1 B 'b' is f32[4,5], 4 in dim 0":
 * two dims that are known and do not fit each other. */
struct op_dim {
    int in, axis;
};
attn_status op_fail_dims(const attnrun_step *step, const char *what, struct op_dim a,
                         struct op_dim b);

/* ---- what is there ---- */
static inline bool op_has_in(const attnrun_step *step, int in)
{
    return in < step->n_in && step->in[in].kind != ATTNRUN_ABSENT;
}
/* At run: the elements of an input, NULL where it is absent. */
static inline const void *op_in_data(const attnrun_step *step, int in)
{
    return op_has_in(step, in) ? step->x[in].data : NULL;
}
/* An output that somebody reads; run() skips the others (their y has data NULL). */
static inline bool op_has_out(const attnrun_step *step, int out)
{
    return out < step->n_out && step->out[out].kind != ATTNRUN_ABSENT;
}
static inline bool op_rank_known(const attnrun_step *step, int in)
{
    return step->in[in].rank >= 0;
}
/* infer: the contents of input `in` are known (constant, or computed for this shape). */
static inline bool op_known(const attnrun_step *step, int in)
{
    return in < step->n_in && step->x[in].data != NULL;
}
/* Its packed form has taken the place of constant input `in`, whose data is NULL. */
bool op_is_replaced(const attnrun_step *step, int in);

/* ---- infer: shapes. The rank helpers fail with a sentence that names the input. ---- */
/* Wraps a negative axis: 0 <= *wrapped < rank (rank itself too where `one_past`). */
attn_status op_axis(const attnrun_step *step, int64_t axis, int rank, bool one_past,
                    int *wrapped);
/* The same for an axis of a list: fails where *seen, a bit an axis, has it already. */
attn_status op_axis_once(const attnrun_step *step, int64_t axis, int rank, uint32_t *seen,
                         int *wrapped);
attn_status op_need_rank(const attnrun_step *step, int in, int rank);
attn_status op_need_rank_between(const attnrun_step *step, int in, int min, int max);
/* Fails where the dims are constants and differ. */
attn_status op_need_dim(const attnrun_step *step, int in, int axis, attnrun_dim expected,
                        const char *what);
/* Fails unless input `in`, where given, has one dim, which is n (`what`). */
attn_status op_need_vector(const attnrun_step *step, int in, attnrun_dim n,
                           const char *what);
/* A table of loops by dtype has one for input `in`; E_UNSUPPORTED else. Where the dtype
 * is not known yet, that is seen later. */
attn_status op_need_loop(const attnrun_step *step, int in, bool there);
/* Sets output `out`: a tensor of `dtype`. rank -1 where unknown (dims NULL). */
attn_status op_out(attnrun_step *step, int out, int32_t dtype, int rank,
                   const attnrun_dim *dims);
/* Output `out` has the dtype and dims of input `in`. */
attn_status op_out_like(attnrun_step *step, int out, int in);
/* Numpy broadcasting of inputs first..first+n-1 (absent ones left out). *rank -1:
 * unknown. */
attn_status op_broadcast(const attnrun_step *step, int first, int n, int *rank,
                         attnrun_dim *dims);
/* One dim of numpy broadcasting; an invalid dim where constants do not fit. */
attnrun_dim op_broadcast_dim(const attnrun_step *step, attnrun_dim a, attnrun_dim b);
/* attnrun_step_value() for an element that infer() only hands on to whoever reads the
 * output: nothing is wrong where it is not known. */
bool op_peek_value(const attnrun_step *step, int in, int64_t k, attnrun_dim *value);
/* The whole of a small integer input (i32, i64, rank <= 1) as constants; *known false
 * where it is not known yet; fails where it has more than `max` elements or a wrong
 * dtype. */
attn_status op_ints(const attnrun_step *step, int in, int64_t *values, int max, int *n,
                    bool *known);
/* The same with symbolic elements. */
attn_status op_dims(const attnrun_step *step, int in, attnrun_dim *values, int max,
                    int *n, bool *known);
/* Product of dims from..to-1 of an input. */
attnrun_dim op_dims_product(const attnrun_step *step, const attnrun_dim *d, int from,
                            int to);
/* The size of two parts that are joined: see attn_dim_join(). */
attnrun_dim op_dim_join(const attnrun_step *step, attnrun_dim a, attnrun_dim b);
/* a / b where b is known to divide a: 2*S*B / B = 2*S. */
attnrun_dim op_dim_div_exact(const attnrun_step *step, attnrun_dim a, attnrun_dim b);
/* Whether inputs of the graph say what a dim is. */
bool op_dim_is_given(const attnrun_step *step, attnrun_dim dim);
/* See attn_dims_assume_nonzero(); false in graphs within others, which a run may leave out. */
bool op_dim_assume_nonzero(const attnrun_step *step, attnrun_dim size, attnrun_dim other);
/* A text of a file is this word: it may hold a NUL. Absent: it is no word. */
bool op_text_is(attnrun_string text, const char *word);
/* The constant dims of a type; only where step->concrete. -1 elements: overflow. */
int64_t op_count(const attnrun_type *type, int from, int to);

/* ---- infer: work ---- */
/* n tasks of about `cost` nanoseconds each in `phase`; phases must be stated in order. */
void op_tasks(attnrun_step *step, int phase, int64_t n, int64_t cost);
/* n units of about `ns` nanoseconds each, in tasks of `each` (at least 1) units. */
void op_unit_tasks(attnrun_step *step, int phase, int64_t n, int64_t each, double ns);

/* attnrun_step_flops() of a number that may be large; in run() it does nothing. */
void op_flops(const attnrun_step *step, double flops);

/* check_packed() of what run() reads as numbers alone, all of which it can take: no offset, no
 * size and no index is among them. */
attn_status op_packed_is_data(const attnrun_pack *pack, int64_t bytes,
                              const void *packed);

/* OpenBLAS is allowed: the ISA is not lowered, and no budget or address-space limit is
 * set (it maps 128 MiB and spins for ever where that fails). */
bool op_may_use_blas(const attnrun_step *step);

/* ---- run ---- */
/* The run is to end: return ATTNRUN_E_CANCELLED, whatever the reason. Reads the flag and,
 * where there is a deadline, the clock: once for each row or tile, not for each element.
 */
#define OP_CANCELLED(work) ((void)(work), attn_poll() != ATTNRUN_OK)
/* OP_CANCELLED for short pieces of work, after `bytes` of it (ten operations are a byte).
 */
#define OP_CANCELLED_AFTER(work, bytes)                                                  \
    ((void)(work), attn_poll_work(bytes) != ATTNRUN_OK)

/* These bytes of an input, whose buffer its output has (attnrun_step_append()), are about to be
 * overwritten: a run that fails loses the state that they are of. Bytes of 0 hold nothing. */
void op_overwrite(const attnrun_step *step, const void *at, int64_t bytes);

/* Elementwise helper: the range of elements of a task when n elements are cut into tasks
 * of OP_CHUNK elements: op_unit_tasks(step, 0, n, OP_CHUNK, …), then for each task t of the
 * range elements [t * OP_CHUNK, min(n, (t + 1) * OP_CHUNK)). */
#define OP_CHUNK 4096
static inline int64_t op_chunks(int64_t n) { return n / OP_CHUNK + (n % OP_CHUNK != 0); }

/* ---- subgraphs (ATTNRUN_OP_GRAPHS) ----
 * infer: types of subgraph `graph` given the types of its formal inputs (captures are
 * known); `outputs` has room for its outputs. */
attn_status op_graph_infer(attnrun_step *step, int graph, int n_inputs,
                           const attnrun_type *inputs, int n_outputs,
                           attnrun_type *outputs);
/* Room for n types until this infer() returns; in all not more than the inputs and outputs of
 * node and subgraphs. Subgraphs nest: types are not for the stack. */
attn_status op_types(const attnrun_step *step, int n, attnrun_type **types);
int op_graph_n_inputs(const attnrun_step *step, int graph);
int op_graph_n_outputs(const attnrun_step *step, int graph);
/* What the last inference said, or else the file; -1: nothing. */
int op_graph_input_rank(const attnrun_step *step, int graph, int input);
/* What the file says, for a subgraph that does not run; 0: nothing. It may not be true. */
int op_graph_declared_rank(const attnrun_step *step, int graph, int output);
/* run: computes subgraph `graph`. The outputs are views into memory of the frame, valid
 * until the next op_graph_run() of the same step and graph; copy what must live longer.
 */
attn_status op_graph_run(const attnrun_step *step, const attnrun_work *work, int graph,
                         int n_inputs, const attnrun_tensor *inputs, int n_outputs,
                         attnrun_tensor *outputs);

/* ---- limits ---- */
/* E_LIMIT where `bytes` of an output, or -1: of scratch memory, are more than the step may make of
 * its inputs: growth.c. */
attn_status op_check_growth(const attnrun_step *step, int32_t out, int64_t bytes);
/* E_LIMIT where a Loop or Scan may take no iteration after those that are done. */
attn_status op_check_iterations(const attnrun_step *step, int64_t done);

/* ---- run of operators with dynamic shapes ---- */
/* What each block costs besides its bytes, for attnrun_step_heap_bound(); of one block
 * for each output the runtime knows. */
enum { OP_HEAP_BLOCK = 64 };
/* Memory of the output's lifetime, for elements of sequences and for strings; NULL with
 * the error recorded. */
void *op_heap(const attnrun_step *step, int out, int64_t bytes);
/* There a deep copy of a tensor, sequence, map or optional; and of the characters of a tensor of
 * strings, which stays where it is. */
attn_status op_heap_copy(const attnrun_step *step, int out, const attnrun_tensor *from,
                         attnrun_tensor *to);
attn_status op_heap_strings(const attnrun_step *step, int out, attnrun_tensor *tensor);
/* op_heap_release() gives back the memory of the output that was taken before op_heap_mark(). */
const void *op_heap_mark(const attnrun_step *step, int out);
void op_heap_release(const attnrun_step *step, int out, const void *mark);
/* Makes output `out` a sequence of n tensors, all absent at first; step->y[out].data is
 * the array to fill. Elements come from op_heap_tensor(). */
attn_status op_sequence(const attnrun_step *step, int out, int64_t n);
attn_status op_heap_tensor(const attnrun_step *step, int out, int32_t dtype, int rank,
                           const int64_t *dims, attnrun_tensor *tensor);

#endif
