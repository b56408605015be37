/* tuples.h - index tuples into the dims of a tensor after `batch_dims`, which GatherND
 * and ScatterND share. Each tuple names one slice of slice_bytes bytes. In: the tensors.
 * Out: the offset of a slice, checked. */
#ifndef OP_TUPLES_H
#define OP_TUPLES_H

#include "move.h"

struct op_tuples {
    int32_t length;                                            /* of a tuple */
    int64_t count;                                             /* tuples */
    int64_t per_batch, batch_stride;                           /* tuples, slices */
    int64_t dims[ATTNRUN_MAX_RANK], strides[ATTNRUN_MAX_RANK]; /* in slices */
    int64_t slice_elements, slice_bytes;
};

/* Checks ranks and the tuple's length (input 1's last dim); *known false where that or a
 * rank is unknown. */
attn_status op_tuples_check(const attnrun_step *step, int batch_dims, bool *known,
                            int *length);
/* For constant dims. */
void op_tuples_plan(const attnrun_step *step, struct op_tuples *t, int batch_dims,
                    int length);
/* run: E_RANGE unless all indices of tuples [begin, end) fit. */
attn_status op_tuples_verify(const attnrun_step *step, const struct op_tuples *t,
                             int64_t begin, int64_t end);
/* The number of the slice that tuple k names. */
int64_t op_tuples_slice(const attnrun_step *step, const struct op_tuples *t, int64_t k);

#endif
