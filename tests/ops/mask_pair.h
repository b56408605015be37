/* mask_pair.h - in: a mask program, the numbers of its leaves for one query and one key; out: those
 * of its instructions. It shares nothing with ops/attention/core, and is what that is compared
 * with. */
#ifndef ATTN_TEST_MASK_PAIR_H
#define ATTN_TEST_MASK_PAIR_H

#include "../../ops/attention/core/mask_program.h"

struct mask_number {
    int64_t i; /* of integers and conditions */
    float f;
};

/* value: numbers of the leaves, then room for one of each instruction; dtype: of both. */
void mask_pair_run(const int64_t *code, int32_t n_code, const int32_t *dtype,
                   int32_t n_leaves, int64_t query, int64_t key,
                   struct mask_number *value);

#endif
