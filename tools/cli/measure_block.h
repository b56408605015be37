/* measure_block.h - what the loops of measure.c and measure_products.c work off. */
#ifndef TOOL_MEASURE_BLOCK_H
#define TOOL_MEASURE_BLOCK_H

#include <stdint.h>

struct block {
    float start[12], factor, term;
    int64_t n; /* turns of the loop */
    const char *data;
    float result[16]; /* stored, so that the work is not left out */
};

/* The loops of the instructions that multiply narrow numbers and add to wide sums. A loop is
 * NULL where the instruction set has no such instruction. */
struct product_loops {
    const char *isa;
    void (*bf16)(struct block *), (*int8)(struct block *);
    double bf16_flops, int8_ops; /* of a turn; a multiply-add is two */
};
/* The loops of `isa`; NULL where it multiplies floats only. */
const struct product_loops *measure_products_of(const char *isa);

#endif
