/* blocked_place.h - the place of a tile in a convolution of blocked maps, for the kernels
 * that blocked_panels.h drives. */
#ifndef ATTN_BLOCKED_PLACE_H
#define ATTN_BLOCKED_PLACE_H

#include <stdint.h>

/* The first pixel and column of the tile, its first weight, the elements of a row of
 * weights, and what the tile prefetches: next_step bytes for each row of weights. With
 * PANELS_FLOATS weights of 16 bits become floats, which the tile stores to `floats`, a row
 * floats_row elements behind the other; NULL: weights are floats. */
struct place {
    int64_t pixel, column;
    const void *w;
    int64_t w_row;
    const char *next;
    int64_t next_step;
#ifdef PANELS_FLOATS
    float *floats;
    int64_t floats_row;
#endif
};

#endif
