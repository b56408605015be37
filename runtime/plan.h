/* plan.h - a plan: the steps of a graph for given input shapes, and where every value lives.
 *
 *   graph    x ──Reshape──▶ r ──MatMul(w)──▶ m ──Relu──▶ y        (y is the graph's output)
 *
 *   values   id  place        root  offset   lives (first … last step)
 *            x   INPUT        -     0        memory of the caller
 *            r   INPUT        -     0        a view: the bytes of x under other dims
 *            w   CONST        -     -        memory of the model
 *            m   ARENA        m     0        1 … 3: its block holds y, too
 *            y   ARENA        m     0        written in place over m, kept until the next run
 *
 *   steps    [0] Reshape (is_view: nothing to run)  [1] MatMul  [2] Relu
 *
 *   blocks   one for each root, for the scratch of each step, and for the copies of inputs
 *            and outputs; those whose lives overlap do not overlap in the arena:
 *
 *            offset ▲
 *                   │           ┌───────────┐
 *                   │           │ scratch   │
 *                   │           ├───────────┴──────────────────
 *                   │           │ m                    then y
 *                 0 └───────────┴──────────────────────────────▶ step
 *                        0            1           2       3 = until the next run
 *
 *   patches  the data pointers of step operands: (tensor, arena or input, offset). Binding a
 *            plan to an arena and to inputs sets them; nothing else changes between runs.
 *
 * An output that the caller has given memory for (attnrun_set_output) has no block: its root, a
 * plain tensor that a step makes and that nothing else shows, is in that memory. An output that
 * was not chosen (attnrun_choose_outputs) has no place, nor have the nodes that only it needs.
 *
 * A value whose shape depends on data has the place DYNAMIC: its memory is in the side heap of
 * the frame and is known at run (dynamic_shape.c). A value of few elements that is known
 * while planning becomes a CONST and leaves no step. An input that is not dense or not aligned
 * is copied into the arena first; an output that is a constant or an input is copied at the end.
 *
 * In: a graph whose types are inferred; kind, dtype and dims of each input. Order: constants
 * and inputs get their places; each node is inferred with constant dims and becomes a constant
 * or a step; uses give lifetimes; outputs become views, go over an input, or get a block;
 * offsets.c places blocks; patches are listed. Cost: O(nodes + operands), besides what infer()
 * and the placement of blocks cost. */
#ifndef ATTN_PLAN_H
#define ATTN_PLAN_H

#include "offsets.h"
#include "step.h"

enum attn_place {
    ATTN_PLACE_NONE,  /* nobody reads it */
    ATTN_PLACE_CONST, /* data is set for good */
    ATTN_PLACE_INPUT, /* in the caller's memory */
    ATTN_PLACE_ARENA,
    ATTN_PLACE_DYNAMIC /* side heap, known at run */
};

/* What a plan expects of an input's strides. */
enum attn_key_strides { ATTN_KEY_DENSE, ATTN_KEY_COPIED, ATTN_KEY_ANY };

struct attn_plan_value {
    attnrun_type type;
    attnrun_tensor tensor; /* dims; data for CONST, and DYNAMIC while alive */
    const attnrun_dim *known;
    int64_t n_known;
    enum attn_place place;
    int32_t input;       /* INPUT: which */
    int32_t root;        /* ARENA: the value whose block it is in */
    int64_t offset;      /* bytes from the root's, or the input's, start */
    int32_t first, last; /* of a root: steps; n_steps: until the next run */
    int32_t last_use;    /* step that reads it last; -1 none */
    int32_t producer;    /* step; -1 */
    int32_t block;       /* of a root */
    int32_t given;   /* root: the output in whose memory of the caller it is; -1: none */
    bool keep;       /* root: lives until the next run (graph output) */
    bool read_dense; /* by a step that takes no strides */
    bool in_state;   /* INPUT: its strides are those of the state */
    bool shown;      /* root: an output or a watched value lies in its block … */
    bool shared;     /* … and another one, too */
};

/* What a state makes of an input of the plan. */
struct attn_append {
    int32_t axis;   /* the run writes behind it along this axis; -1: it does not */
    int32_t output; /* value that has the input and what is behind it */
};

/* A data pointer to set when the arena or an input moves. */
struct attn_patch {
    attnrun_tensor *tensor;
    int64_t offset;
    int32_t input, output; /* of the caller; -1: another place */
    bool strided;          /* takes the input's strides, too */
};

struct attn_plan {
    struct attn_pool pool;
    struct attn_graph *graph;
    attnrun_tensor *key; /* dtype, dims per input; strides[0] is an attn_key_strides */
    int32_t n_key;
    struct attn_plan_value *values;
    struct attn_step **steps;
    int32_t n_steps, n_dynamic;
    struct attn_block *blocks;
    int64_t n_blocks;
    struct attn_patch *patches;
    int64_t n_patches, n_moving; /* those of the caller's memory come first */
    int64_t arena_bytes, lower_bound;
    int64_t heap_bytes; /* most that a run takes from the side heap, as far as is known */
    int32_t n_unbounded; /* steps for which that is not known */
    int32_t peak_step;
    int32_t
        *copies; /* per graph output: block to copy a constant or an input into, or -1 */
    int32_t *input_copies;       /* per input: block for the dense copy, or -1 */
    struct attn_append *appends; /* per input */
    int32_t states_version;      /* of the frame's states */
    uint8_t *modes;              /* per graph output: an attn_output_mode */
    int32_t n_watched;           /* values of the frame's selection that it keeps */
    struct attn_heap heap;       /* values computed while planning */
    struct attn_heap_list folded;
    char *bound_arena; /* the arena that the patches were made for */
    uint64_t last_used;
    bool has_dynamic;
};

struct attn_frame;

/* Plans `frame`'s graph for these inputs (dims and dtypes; data is not looked at). */
attn_status attn_plan_create(struct attn_frame *frame, const attnrun_tensor *inputs,
                             int32_t n_inputs, struct attn_plan **plan);
void attn_plan_destroy(struct attn_plan *plan, struct attn_memory *memory);
/* Input `input` is read from a dense copy in the arena. */
void attn_plan_copy_input(struct attn_plan *plan, int32_t input, int32_t value);
/* Read where it is: dense, and at an address that its elements can have. */
bool attn_plan_is_readable(const attnrun_tensor *input);
/* Decides which of the frame's states this plan appends in place. */
attn_status attn_plan_append_states(struct attn_frame *frame, struct attn_plan *plan,
                                    const attnrun_tensor *inputs);
/* Sets heap_bytes and n_unbounded. */
void attn_plan_bound_heap(const struct attn_frame *frame, struct attn_plan *plan);
bool attn_plan_fits(const struct attn_frame *frame, const struct attn_plan *plan,
                    const attnrun_tensor *inputs);
/* Lists the data pointers that attn_plan_bind() sets, and finds steps with nothing to run. */
attn_status attn_plan_make_patches(struct attn_plan *plan);
/* Sets data pointers for this arena, these inputs, and the outputs that are given. */
void attn_plan_bind(struct attn_plan *plan, char *arena, const attnrun_tensor *inputs,
                    const attnrun_tensor *outputs);

#endif
