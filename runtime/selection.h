/* selection.h - what a context's runs compute: which outputs, in whose memory, and which inner
 * values they keep.
 *
 * In: the caller's choice (attnrun_choose_outputs, attnrun_set_output, attnrun_watch). Out: for
 * each plan the nodes it needs and the place of its outputs; a plan is for one choice. */
#ifndef ATTN_SELECTION_H
#define ATTN_SELECTION_H

#include "frame.h"

enum attn_output_mode {
    ATTN_OUTPUT_OWN,   /* in the arena */
    ATTN_OUTPUT_GIVEN, /* in the caller's memory, where a step makes a plain tensor of it */
    ATTN_OUTPUT_SKIPPED /* nobody wants it */
};

struct attn_selection {
    uint8_t *modes;  /* per output of the graph, an attn_output_mode: of the next plan */
    uint8_t *chosen; /* per output: the caller wants it */
    /* n_values for the values that are kept until the next run; behind them, for each value of the
     * graph, its place among them plus 1, or 0 */
    int32_t *watched;
    int32_t n_watched; /* it only grows */
    int32_t n_values;  /* 0: nothing was watched yet */
};

/* Room for n outputs, all of them chosen. */
attn_status attn_selection_create(struct attn_memory *memory, int32_t n,
                                  struct attn_selection *selection);
void attn_selection_free(struct attn_memory *memory, int32_t n,
                         struct attn_selection *selection);
/* Where `id` is among the watched values; -1: it is not. */
int32_t attn_selection_find(const struct attn_selection *selection, int32_t id);
/* Value `id`, of n_values, is kept from the next run on. */
attn_status attn_selection_watch(struct attn_memory *memory,
                                 struct attn_selection *selection, int32_t n_values,
                                 int32_t id);
/* Sets the modes for a run: an output is in the caller's memory where that has the alignment
 * of its elements, and where it overlaps no input and no other output. */
void attn_selection_set(struct attn_frame *frame, const attnrun_tensor *inputs);

/* Notes the choice in a plan. *needed has a flag for each value; NULL: all are. */
attn_status attn_selection_read(const struct attn_frame *frame, struct attn_plan *plan,
                                const bool **needed);
bool attn_selection_needs(const bool *needed, const struct attn_node *node);
/* Watched values live until the next run. */
void attn_selection_keep(const struct attn_frame *frame, struct attn_plan *plan);
/* Gives the caller's memory to the roots of outputs that fill it alone. */
void attn_selection_place(const struct attn_frame *frame, struct attn_plan *plan);
/* The plan was made for this choice. */
bool attn_selection_fits(const struct attn_frame *frame, const struct attn_plan *plan);
/* E_SHAPE or E_DTYPE where memory that the plan writes is not of its output's type. */
attn_status attn_selection_check(const struct attn_frame *frame,
                                 const struct attn_plan *plan);
attn_status attn_selection_check_output(const struct attn_graph *graph, int32_t index,
                                        const attnrun_tensor *made,
                                        const attnrun_tensor *given);

#endif
