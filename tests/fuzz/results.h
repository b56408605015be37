/* results.h - the outputs of a run, kept to be compared with those of a run in another way. */
#ifndef ATTN_FUZZ_RESULTS_H
#define ATTN_FUZZ_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "attnrun.h"

enum { FUZZ_RESULTS = 16 };

struct fuzz_results {
    attnrun_tensor t[FUZZ_RESULTS]; /* dense copies of f32 and f64; others without data */
    int n;
};

void fuzz_results_add(struct fuzz_results *results, const attnrun_tensor *t);
void fuzz_results_free(struct fuzz_results *results);
/* Whether both agree within the rounding of floats; else `why` says what differs. Integers,
 * text and lists are not compared: a rounding may choose another one. */
bool fuzz_results_agree(const struct fuzz_results *a, const struct fuzz_results *b,
                        char *why, size_t bytes);

#endif
