/* resize.h - the tables of a separable resize. For every output position of an axis they
 * hold the input positions that it reads, and their weights. */
#ifndef ATTN_OPS_RESIZE_H
#define ATTN_OPS_RESIZE_H

#include "../kernels/kernels.h"
#include "../../runtime/op.h"

enum { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };
enum {
    RESIZE_HALF_PIXEL,
    RESIZE_PYTORCH_HALF_PIXEL,
    RESIZE_ALIGN_CORNERS,
    RESIZE_ASYMMETRIC,
    RESIZE_TF_HALF_PIXEL_FOR_NN,
    RESIZE_TF_CROP_AND_RESIZE,
    RESIZE_HALF_PIXEL_SYMMETRIC
};
enum { RESIZE_ROUND_PREFER_FLOOR, RESIZE_ROUND_PREFER_CEIL, RESIZE_FLOOR, RESIZE_CEIL };

struct resize_args {
    int32_t mode, coordinate_transformation_mode, nearest_mode, keep_aspect_ratio_policy;
    int64_t antialias, exclude_outside;
    float cubic_coeff_a, extrapolation_value;
    attnrun_ints axes;
    attnrun_floats scales; /* Upsample-7 */
};

struct resize_axis {
    int64_t in, out, taps;
    double scale, from, to;            /* scale = to / from: by these, ties stay ties */
    bool active;                       /* false: output position i is input position i */
    int64_t index, weight, weight_f32; /* byte offsets of the tables in shared memory */
};

struct resize_state {
    struct resize_axis axes[ATTNRUN_MAX_RANK];
    int32_t rank;
    int64_t rows; /* lines along the last axis */
    int64_t last_in, last_out;
    /* Integers with antialias: the axes in the order in which they are resized, and byte
     * offsets of two buffers in shared memory for the image between two axes. */
    int32_t n_passes, pass_axis[ATTNRUN_MAX_RANK];
    int64_t between[2];
    /* Positions that are vectors of `inner` floats (resize_vectors.c): their axis, and whether
     * the axis before it is resized as well; inner 0: they are not. */
    int64_t inner;
    int32_t vectors_axis;
    bool two_axes;
};

/* Number `k` of scales, roi or sizes is for axis which[k]. */
attn_status attn_resize_axes(const attnrun_step *step, int rank, int *which, int *n);
/* Whether input `in` is given and not an empty list. */
bool attn_resize_given(const attnrun_step *step, int in);
attn_status attn_resize_run(const attnrun_step *step, const attnrun_work *work);

/* resize_vectors.c: whether positions are vectors, and then phase 1 and the scratch. */
attn_status attn_resize_plan_vectors(attnrun_step *step, struct resize_state *state);
attn_status attn_resize_vectors(const attnrun_step *step, const attnrun_work *work);

/* resize_passes.c: plans passes and their phases from 1 on; sets n_passes. */
attn_status attn_resize_plan_passes(attnrun_step *step, struct resize_state *state);
attn_status attn_resize_pass(const attnrun_step *step, const attnrun_work *work);
/* Weights of bytes as whole numbers of 2^-22. */
void attn_resize_round_weights(const attnrun_step *step, const struct resize_axis *axis,
                               double *weight);
/* Stores a whole number as element i of an array of integers, clamped to its range. */
void attn_resize_put_int(int32_t dtype, void *data, int64_t i, double v);

/* Taps of an axis that is `scale` times as long in the output. */
int64_t attn_resize_taps(const struct resize_args *args, double scale);
/* Fills index[out][taps] (-1 in the first: extrapolated) and both weight tables. roi:
 * start and end, 0 and 1 where not used. */
void attn_resize_table(const struct resize_args *args, const struct resize_axis *axis,
                       const double roi[2], int64_t *index, double *weight,
                       float *weight_f32);

#endif
