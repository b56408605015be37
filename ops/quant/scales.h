/* scales.h - where the scale and zero point of an element of x are: one for all, one per
 * index along an axis, or one per block of indices along it. */
#ifndef ATTN_SCALES_H
#define ATTN_SCALES_H

#include "../elementwise/convert_dtypes.h"
#include "../elementwise/elementwise.h"

struct scales {
    int64_t length;    /* of x along the axis; 1 where there is one scale */
    int64_t inner;     /* elements of x behind the axis */
    int64_t block;     /* indices along the axis that share a scale */
    int64_t n_along;   /* scales along the axis */
    int32_t has_inner; /* blocked: each position behind the axis has its own */
    int32_t per_outer; /* blocked: and each in front of it */
};

/* infer, concrete: checks input 1 (and 2, where given) against input 0. */
attn_status attn_scales_infer(const attnrun_step *step, int64_t axis, int64_t block_size,
                              struct scales *scales);

/* Elements [k, k + n) of x have one scale index, *index: returns n <= max; or, where
 * blocked scales run along with the elements, indices *index + i (*step 1). */
static inline int64_t scales_run(const struct scales *s, int64_t k, int64_t max,
                                 int64_t *index, int64_t *step)
{
    int64_t inner_at = k % s->inner, line = k / s->inner;
    int64_t at = line % s->length, outer = line / s->length;
    int64_t along = at / s->block;
    int64_t n = s->inner - inner_at;
    *index = (s->per_outer ? outer * s->n_along : 0) + along;
    *step = 0;
    if (s->has_inner) {
        *index = *index * s->inner + inner_at;
        *step = 1;
    } else if (s->inner == 1 && s->block == 1 && s->length > 1) { /* a scale for each */
        *step = 1;
        n = s->length - at;
    } else if (s->inner == 1) { /* the axis is the last: the rest of the block */
        int64_t rest = s->block - at % s->block;
        n = rest < s->length - at ? rest : s->length - at;
    }
    return n < max ? n : max;
}

#endif
