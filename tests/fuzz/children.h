/* children.h - cases of the fuzz in child processes: one that ends otherwise than by itself, or
 * takes too long, is a finding, and the rest goes on. */
#ifndef ATTN_FUZZ_CHILDREN_H
#define ATTN_FUZZ_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a child tells its parent. A target may begin a larger struct with it. */
struct fuzz_progress {
    uint64_t seed; /* of the case under way */
    uint64_t cases, good;
};

struct fuzz_cases {
    double seconds;
    uint64_t seed; /* the first one */
    bool only;     /* no other one */
    size_t bytes;  /* of the struct that begins with struct fuzz_progress */
    void (*one_case)(struct fuzz_progress *progress);
    void (*end)(void); /* of a child: frees what all cases share; or NULL */
};

/* Runs the cases of seeds from `seed` on, one after the other. `*progress` is shared memory, which
 * is kept. Says which seeds are findings; returns how many, or -1 without a first child. */
int fuzz_run_cases(const struct fuzz_cases *cases, struct fuzz_progress **progress);

#endif
