/* planes.h - (batch, channel, positions) views of a tensor, plane by plane, which the
 * normalizations over positions share. In: planes of f32 or f64. Out: mean and variance,
 * or planes. Cost: one read a plane for the statistics, one read and one write for a map.
 */
#ifndef ATTN_NN_PLANES_H
#define ATTN_NN_PLANES_H

#include "../kernels/kernels.h"
#include "../real.h"

struct planes {
    int64_t batch, channels, positions;
};

/* Dims of a type with constant dims; rank 1 has one channel. E_LIMIT where they
 * overflow. */
attn_status attn_planes_of(const attnrun_step *step, const attnrun_type *type,
                           struct planes *planes);
/* Inputs first … last are vectors of as many elements as input 0 has channels. */
attn_status attn_planes_check_vectors(const attnrun_step *step, int first, int last);

/* stats = mean and variance of n elements from `from` on. */
void attn_planes_stats(const attnrun_step *step, const attnrun_tensor *x, int64_t from,
                       int64_t n, double *stats);
/* y = (x - shift) * scale + bias for n elements from `from` on. */
void attn_planes_affine(const attnrun_step *step, const attnrun_tensor *y,
                        const attnrun_tensor *x, int64_t from, int64_t n, double shift,
                        double scale, double bias);

#endif
