/* case.h - one case of the fuzz: a model, what it is fed, and the look at what happens.
 */
#ifndef ATTN_FUZZ_CASE_H
#define ATTN_FUZZ_CASE_H

#include <stddef.h>

#include "attnrun.h"
#include "fuzz_random.h"
#include "results.h"

enum { FUZZ_INPUTS = 48, FUZZ_HELD = 4096 };

struct fuzz_case {
    uint64_t seed;
    struct fuzz_random random; /* of the inputs */
    uint8_t *model;            /* freed by fuzz_case_end() */
    size_t bytes;
    bool packed; /* `model` is a packed file */
    bool oracle; /* what runs is run in another way, too, and compared */
    bool guard;  /* memory ends at pages that nobody may touch */
    bool forms;  /* the model has some nodes, which a pass may bring into another order */
    bool tame;   /* floats that are made are finite and small */
    bool sizes;  /* inputs have no data: it is planned, and run where it is small */
    bool faults; /* what runs is run with allocations that fail, and with small budgets */
    /* Allocations of the run so far, and which of them fails; with fail_on all after it, too. */
    int64_t calls, fail_at;
    bool fail_on;
    uint64_t peak; /* bytes of the last run */
    char op[96]; /* out: domain and operator of the first node of the model as it runs */
    struct fuzz_traits traits; /* of the model as it runs in any way */
    /* Where given (kind not ABSENT): what an input gets as long as nothing is changed. */
    attnrun_tensor given[FUZZ_INPUTS];
    void *held[FUZZ_HELD]; /* freed by fuzz_case_end() */
    size_t held_bytes[FUZZ_HELD];
    int n_held;
    bool watches;                 /* inner values of the run are kept and looked at */
    bool overflows;               /* out: one of them is no number, or above 1e12 */
    struct fuzz_results *results; /* of the run under way, or NULL */
    int nudged;                   /* inputs are one unit of the last place away; which */
    const char *keep;             /* folder for what runs (keep.h), or NULL */
    attnrun_tensor fed[FUZZ_INPUTS]; /* the inputs of the last run, for keep.h */
    attnrun_status status;           /* of the step that failed, or OK */
};

/* Memory of its own, so that a sanitizer sees what lies beside it. */
void *fuzz_hold(struct fuzz_case *c, int64_t bytes);
/* Numbers for a dense tensor whose kind, dtype, rank and dims are set; integers mostly
 * fit small tensors. */
void fuzz_fill(struct fuzz_case *c, struct fuzz_random *r, attnrun_tensor *tensor);
/* A value for input `index` of a model: mostly `given`, or what fits `info`, or near that. */
attnrun_tensor fuzz_input(struct fuzz_case *c, int32_t index,
                          const attnrun_value_info *info);
/* Reads every byte of a value; the sum tells values apart, and is what the outputs of two runs are
 * compared by. */
uint64_t fuzz_read(const struct fuzz_case *c, const attnrun_tensor *t, uint64_t sum);
/* Open, context, run twice, look at all outputs. Says what is wrong and aborts. Runtimes are kept
 * for the next case, which must be at the same address, until fuzz_case_forget(). */
void fuzz_case_run(struct fuzz_case *c);
void fuzz_case_end(struct fuzz_case *c);
void fuzz_case_forget(void);

#endif
