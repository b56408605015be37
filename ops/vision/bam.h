/* bam.h - what bam.c (checks, plan, phases) and bam_run.c (tiles of rows) share. */
#ifndef ATTN_BAM_H
#define ATTN_BAM_H

#include "gated_maps.h"

enum {
    BAM_X,
    BAM_CW0,
    BAM_CB0,
    BAM_CW1,
    BAM_CB1,
    BAM_SW0,
    BAM_SB0,
    BAM_SWM,
    BAM_SBM,
    BAM_SW1,
    BAM_SB1,
    BAM_CWM,
    BAM_CBM,
    BAM_IDENTITY
};
enum { BAM_MUL, BAM_ADD }; /* words of `combine` */
/* Fewer rows do not pay for rounding the pixels that they are multiplied by to bf16. */
enum { BAM_ROWS_FOR_BF16 = 32 };

struct bam_args {
    int64_t dilation;
    int32_t combine, post_activation;
};

struct bam_state {
    struct attn_map map;
    int64_t hidden, middle, layers;   /* rows of sw0, of cw0; m */
    int64_t pad, padded_width, plane; /* zeros on each side; floats of a padded plane */
    int64_t planes;                   /* floats of all R planes of a t */
    int64_t tile, tiles;              /* rows of a tile; of an image */
    int64_t pixels;                   /* of a tile, with its zeros */
    int64_t sums;                     /* floats: of each tile and channel, of x */
    int64_t image_floats;             /* sums, then t of even and of odd layers */
    int64_t worker_floats;
    bool whole; /* an image is a task */
};

struct bam_part {
    const attnrun_step *step;
    const attnrun_work *work;
    int64_t image, tile;
    float *floats, *scratch; /* of the image, of the worker */
};

/* Computes t0 of a tile, and the sums of its x. */
void attn_bam_first(const struct bam_part *part);
/* Computes t of layer i + 1 of a tile. */
void attn_bam_convolve(const struct bam_part *part, int64_t i);
/* Computes Y of a tile. */
attn_status attn_bam_last(const struct bam_part *part);

#endif
