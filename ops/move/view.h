/* view.h - operators whose output is the bytes of the input under another shape. In: an
 * input and dims. Out: a view, or a copy where the plan needs one. */
#ifndef OP_VIEW_H
#define OP_VIEW_H

#include "move.h"

/* infer: output 0 is a view of input 0 with these dims, with its known elements. */
attn_status op_view_out(attnrun_step *step, int rank, const attnrun_dim *dims);
/* run: nothing where the plan made the view, else a copy. */
attn_status op_view_run(const attnrun_step *step, const attnrun_work *work);
/* Marks wrapped axes; fails where one comes twice. */
attn_status op_view_axes(const attnrun_step *step, const int64_t *axes, int n, int rank,
                         bool *marked);

#endif
