/* padding.h - what Pad and CenterCropPad share.
 *
 *   y[i] = x[i - begin] inside; outside a constant, or an element of x by the mode
 *
 * In: x of any type, and pads before and after each axis. Negative pads crop x first; the others
 * then pad what is left. Out: y. Cost: one write of y. Source: ONNX Pad. */
#ifndef OP_PADDING_H
#define OP_PADDING_H

#include "move.h"

enum op_pad_mode { OP_PAD_CONSTANT, OP_PAD_REFLECT, OP_PAD_EDGE, OP_PAD_WRAP };

struct op_padding {
    int32_t mode, rank;
    int32_t row_axis; /* the last axis that is padded: dims behind it move as one unit */
    int64_t n[ATTNRUN_MAX_RANK];       /* of x after cropping */
    int64_t first[ATTNRUN_MAX_RANK];   /* where the cropped part begins in x */
    int64_t begin[ATTNRUN_MAX_RANK];   /* pads before, >= 0 */
    int64_t dims[ATTNRUN_MAX_RANK];    /* of y */
    int64_t strides[ATTNRUN_MAX_RANK]; /* of x, in units */
    int64_t unit_bytes, elem_bytes;
    int64_t rows, rows_per_task, tasks;
};

/* Plans for constant dims: input 0 of the step, pads per axis. Fails where the mode has
 * no element to take, and states the tasks of phase 0. */
attn_status op_padding_plan(attnrun_step *step, struct op_padding *p, int32_t mode,
                            const int64_t *begin, const int64_t *end);
/* `value`: one element for OP_PAD_CONSTANT. */
attn_status op_padding_run(const attnrun_step *step, const struct op_padding *p,
                           const attnrun_work *work, const void *value);

#endif
