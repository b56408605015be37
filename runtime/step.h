/* step.h - a step inside the runtime: the public step with what infer() stated beside it.
 * Used at load (symbolic dims), in plans (constant dims) and for dynamic-shape steps at
 * run, which are called `dynamic` here. */
#ifndef ATTN_STEP_H
#define ATTN_STEP_H

#include "graph.h"
#include "heap.h"

enum { ATTN_MAX_KNOWN = 64 }; /* elements of a small integer tensor that infer follows */

/* What infer() said about one output besides its type. */
struct attn_out_known {
    int32_t view_of;   /* input, or -1 */
    int32_t append_to; /* input that it is, with more along append_axis; or -1 */
    int32_t append_axis;
    uint64_t inplace; /* bit i: may be written over input i */
    int64_t view_offset;
    attnrun_dim *known; /* ATTN_MAX_KNOWN elements, or NULL; in the step's pool */
    int64_t n_known;
};

/* Scratch of a step while it runs: in the arena, or of a dynamic-shape step in the side heap. */
struct attn_step_scratch {
    int32_t n_workers; /* that it is for */
    int64_t stride;    /* bytes from one worker's scratch to the next */
    int64_t shared_bytes;
    char *each, *shared;
};

struct attn_step {
    attnrun_step pub; /* first */
    struct attn_node *node;
    struct attn_graph *graph;
    struct attn_dims *dims; /* NULL in plans */
    struct attn_pool *pool; /* where what infer knows goes; NULL at run: nowhere */
    struct attn_out_known *known_outputs;
    const attnrun_dim **known; /* per input: symbolic elements, or NULL */
    int64_t *n_known;
    struct attn_frame *frame; /* plans: for subgraphs and the side heap; else NULL */
    attnrun_type *types;      /* for op_types(): of the values of its subgraphs */
    int64_t n_types, types_taken;
    struct attn_heap *heap;       /* outputs of dynamic shape */
    struct attn_heap_list *lists; /* per output, where its shape is dynamic */
    int32_t index;                /* in the plan */
    bool dynamic;                 /* shapes are known only at run */
    bool waits;                   /* infer() asked for values that were not known */
    bool recheck; /* it did, and the outputs are planned: it is called again at run */
    bool is_view; /* nothing to run: the outputs are in place already */
    uint32_t appended; /* bit i: output i and its append_to share a buffer */
    bool overwrote;    /* in this run, something of append_to */
    struct attn_step_scratch own;
    int64_t scratch_block; /* in the plan; -1: none */
    uint64_t errors;       /* attn_error_count() before infer() */
    int64_t
        heap_bound; /* of what run() takes from the side heap, as stated; -1: nothing */
    int64_t flops;  /* of run(), as stated; -1: not */
    bool inferring; /* infer() is under way */
    int64_t inner_bytes; /* arenas and side heaps of its subgraphs; -1: not known */
};

/* An empty step for a node, in `pool`: arrays sized, types ABSENT. NULL on failure. */
struct attn_step *attn_step_create(struct attn_pool *pool, struct attn_graph *graph,
                                   struct attn_node *node,
                                   const struct attn_kernels *kernels);
/* Calls infer() and checks what it says: sizes in range, dtypes set, what it knows consistent.
 * E_MEMORY, whatever it says, where there was none for what it states: dims and known
 * values are stated by calls that return no status. */
attn_status attn_step_infer(struct attn_step *step);
/* E_MEMORY where the pools of what it knows and of its dims had none. */
attn_status attn_step_check_memory(const struct attn_step *step);
/* E_INTERNAL where infer() stated a number of tasks below 0. */
attn_status attn_step_check_tasks(const struct attn_step *step, int32_t phase);
/* Calls run(); a failure has a sentence and is a status. */
attn_status attn_step_run(const struct attn_step *step, const attnrun_work *work);
/* Allocates outputs (not those of dynamic shape, unless data is set already) and scratch from
 * `heap`, and runs the step on this thread. For folding; infer() must have been called with
 * concrete dims. Outputs stay in `lists`. */
attn_status attn_step_execute(struct attn_step *step, struct attn_heap *heap);
/* Every wanted output already is a view into its input: nothing to run. */
bool attn_step_is_view(const struct attn_step *step);
/* What an operator without run() does where its output cannot be a view. */
attn_status attn_step_copy_views(const struct attn_step *step);
/* E_LIMIT where its dims are too large. */
attn_status attn_tensor_check_size(const attnrun_tensor *tensor);
/* The dense tensor of a concrete type, without data. E_LIMIT where it is too large. */
attn_status attn_type_to_tensor(const attnrun_type *type, attnrun_tensor *tensor);
void attn_tensor_to_type(const attnrun_tensor *tensor, attnrun_type *type);
bool attn_type_is_concrete(const attnrun_type *type);

/* Input `in` is a constant of which the step reads the packed form: the constant may be gone. */
static inline bool attn_step_is_replaced(const struct attn_step *step, int32_t in)
{
    return in < 32 && (step->node->pack_replaces >> in & 1);
}

static inline struct attn_step *step_of(const attnrun_step *step)
{
    return (struct attn_step *)(uintptr_t)step;
}

/* The inputs, which operators only read: types and tensors. */
static inline attnrun_type *attn_step_in(struct attn_step *step)
{
    return (attnrun_type *)(uintptr_t)step->pub.in;
}
static inline attnrun_tensor *attn_step_x(struct attn_step *step)
{
    return (attnrun_tensor *)(uintptr_t)step->pub.x;
}

#endif
