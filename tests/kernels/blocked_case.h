/* blocked_case.h - random convolutions of blocked maps for the checks of their kernels. */
#ifndef ATTN_BLOCKED_CASE_H
#define ATTN_BLOCKED_CASE_H

#include "checks.h"

enum { BLOCK = ATTN_BLOCK, MAX_TAPS = 49, MAX_PIXELS = 40 };

struct conv_case {
    struct attn_blocked_conv d;
    struct attn_blocked_tap taps[MAX_TAPS];
    int32_t pixels[MAX_PIXELS];
    int64_t x_floats, y_floats;
    const float *weights; /* the numbers that d.w holds */
};

/* Random taps, pixels, operands and limits; no weights. */
void check_make_conv(struct check *c, struct conv_case *of);
/* x between two limits; NaN stays. */
double check_clip(double x, float min, float max);

#endif
