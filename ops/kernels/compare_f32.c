/* compare_f32.c - the kernels of compare_f32.def: y[i] = a[i * a_step] is so to
 * b[i * b_step] for i < n, where a step is 1, or 0 for a scalar. NaN is unequal to all.
 * Loops that the compiler vectorises by itself. */
#include "isa.h"

#define COMPARE_F32(name, relation)                                                      \
    void K(name##_f32)(uint8_t *restrict y, const float *restrict a, size_t a_step,      \
                       const float *restrict b, size_t b_step, size_t n)                 \
    {                                                                                    \
        if (a_step != 0 && b_step != 0) {                                                \
            for (size_t i = 0; i < n; i++)                                               \
                y[i] = a[i] relation b[i];                                               \
        } else if (a_step != 0) {                                                        \
            const float right = n > 0 ? *b : 0.0f;                                       \
            for (size_t i = 0; i < n; i++)                                               \
                y[i] = a[i] relation right;                                              \
        } else {                                                                         \
            const float left = n > 0 ? *a : 0.0f;                                        \
            for (size_t i = 0; i < n; i++)                                               \
                y[i] = left relation b[i * b_step];                                      \
        }                                                                                \
    }
#include "compare_f32.def"
#undef COMPARE_F32
