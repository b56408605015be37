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

/* What the outputs of two ways may differ by, of what the inputs held. */
struct fuzz_inputs {
    double largest; /* of the numbers that are finite */
    bool wild;      /* NaN or an infinity */
};

/* Whether it is a tensor whose elements lie one behind the other from t->data on. */
bool fuzz_is_dense(const attnrun_tensor *t);
void fuzz_results_add(struct fuzz_results *results, const attnrun_tensor *t);
void fuzz_results_free(struct fuzz_results *results);
struct fuzz_inputs fuzz_inputs_of(const attnrun_tensor *t, int n);
/* Whether both agree within the rounding of floats; else `why` says what differs. Integers,
 * text and lists are not compared: a rounding may choose another one. */
bool fuzz_results_agree(const struct fuzz_results *a, const struct fuzz_results *b,
                        const struct fuzz_inputs *inputs, char *why, size_t bytes);

#endif
