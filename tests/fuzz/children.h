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
    uint64_t n;    /* how many seeds at most; 0: as many as the seconds allow */
    bool only;     /* no other one */
    size_t bytes;  /* of the struct that begins with struct fuzz_progress */
    void (*one_case)(struct fuzz_progress *progress);
    void (*end)(void); /* of a child: frees what all cases share; or NULL */
    void (*report)(const struct fuzz_progress *progress); /* at the end; or NULL */
};

/* Takes --seconds, --cases, --seed and --only at argv[*i] with their numbers; false where it is
 * none of these. */
bool fuzz_take_option(struct fuzz_cases *cases, int argc, char **argv, int *i);
/* Runs the cases of seeds from `seed` on, one after the other, and prints which seeds are findings
 * and the sums, with how many models are a start. The exit code of the program: 1 where there are
 * findings or where no case ran to its end, 2 without a first child. */
int fuzz_run_cases(const struct fuzz_cases *cases, int n_models);

#endif
