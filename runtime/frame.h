/* frame.h - a graph being run: plans by shape, an arena, a side heap, and frames of the
 * subgraphs below. A context is a frame of the main graph. */
#ifndef ATTN_FRAME_H
#define ATTN_FRAME_H

#include "plan.h"
#include "poll.h"
#include "threads.h"

enum { ATTN_MAX_PLANS = 16 };

struct attn_frame {
    struct attn_graph *graph;
    struct attn_frame *outer;
    const struct attn_node *node; /* of the outer graph, for a subgraph's frame */
    int32_t graph_index;
    struct attn_frame *children, *next;
    struct attn_frame **of_nodes,
        *sibling; /* the first child of each node; NULL: of none */
    attnrun_runtime *runtime;
    struct attn_memory *memory;
    struct attn_threads *threads;
    const struct attn_kernels *kernels;
    struct attn_control *control;     /* of the context: all its frames share it */
    struct attn_state *states;        /* of the main graph; the context's */
    int32_t states_version;           /* counts changes to them: plans depend on them */
    struct attn_selection *selection; /* of the main graph; else NULL: all outputs */
    const attnrun_tensor *outputs;    /* of the main graph: the caller's memory */
    struct attn_plan *plans[ATTN_MAX_PLANS];
    int32_t max_plans;            /* that are kept */
    struct attn_plan *current;    /* of the last successful run */
    struct attn_plan *shown;      /* of the last run or attnrun_plan() */
    uint64_t clock;               /* for the least recently used plan */
    struct attn_memory *planning; /* a keeper: what plans are made in */
    char *arena;
    int64_t arena_bytes;
    bool arena_given; /* it is the caller's */
    struct attn_heap heap;
    int32_t
        *capture_ids; /* subgraphs: capture values, in the order of inputs; main graph:
                             * those of ragged.h */
    int32_t *capture_slots; /* where each is among the outer node's x */
    int32_t n_captures;
    attnrun_tensor *call; /* subgraphs: formal inputs and captures of a call */
    bool busy;            /* a subgraph that runs itself is refused */
    struct attn_profiling *profiling; /* of the run under way; or NULL */
};

attn_status attn_frame_create(attnrun_runtime *runtime, struct attn_memory *memory,
                              struct attn_graph *graph, struct attn_control *control,
                              struct attn_frame **frame);
void attn_frame_destroy(struct attn_frame *frame);
/* Number of inputs that plans of this frame take: formal ones and captures. */
int32_t attn_frame_n_inputs(const struct attn_frame *frame);
/* The plan for these inputs, made where it is new. */
attn_status attn_frame_plan(struct attn_frame *frame, const attnrun_tensor *inputs,
                            struct attn_plan **plan);
/* Plans once more where later shapes will take the place of the plan that is shown: what that
 * takes is then there. */
attn_status attn_frame_rehearse(struct attn_frame *frame, const attnrun_tensor *inputs);
/* The arena is the caller's `bytes` bytes at `memory` from now on; NULL: of the allocator, made
 * when it is needed. Outputs are gone. */
void attn_frame_set_arena(struct attn_frame *frame, void *memory, int64_t bytes);
/* Makes the arena at least as large as the plan needs. */
attn_status attn_frame_reserve(struct attn_frame *frame, const struct attn_plan *plan);
/* A run begins: the outputs of the one before are gone. */
void attn_frame_forget(struct attn_frame *frame);
/* Plans where needed, and makes the arena large enough. The outputs of the run before are
 * gone. */
attn_status attn_frame_prepare(struct attn_frame *frame, const attnrun_tensor *inputs,
                               struct attn_plan **plan);
/* Runs a plan that was prepared for these inputs. Outputs: attn_frame_output(), until the
 * next run. */
attn_status attn_frame_run_plan(struct attn_frame *frame, struct attn_plan *plan,
                                const attnrun_tensor *inputs);
/* Both. */
attn_status attn_frame_run(struct attn_frame *frame, const attnrun_tensor *inputs);
attn_status attn_frame_output(const struct attn_frame *frame, int32_t index,
                              attnrun_tensor *tensor);
/* Of this frame and those below. */
int64_t attn_frame_arena_bytes(const struct attn_frame *frame);
/* Gives back plans, arena and heap, here and in the frames below. */
void attn_frame_trim(struct attn_frame *frame);
/* Bit p: phase p of the step is shared among threads, where there are any. */
uint32_t attn_step_shared_phases(const struct attn_step *step);
/* The frame keeps n plans from now on, those used last. */
void attn_frame_keep_plans(struct attn_frame *frame, int32_t n);
/* All phases of the step are run by the caller's thread, as worker 0. */
bool attn_step_is_alone(const struct attn_step *step);
/* Runs a step whose outputs have a place in the arena; infers it again where it has to.
 */
attn_status attn_frame_run_planned(struct attn_frame *frame, struct attn_plan *plan,
                                   struct attn_step *step);
/* Infers a dynamic-shape step, gives it memory of the side heap and runs it. */
attn_status attn_frame_run_dynamic(struct attn_frame *frame, struct attn_plan *plan,
                                   struct attn_step *step);
/* Frees values of dynamic shape that this step was the last to read. */
void attn_frame_release_dynamic(struct attn_frame *frame, struct attn_plan *plan,
                                const struct attn_step *step);
/* Runs all phases of a step whose memory is bound. */
attn_status attn_frame_run_step(struct attn_frame *frame, struct attn_step *step);

#endif
