/* results.h - the outputs of a run, kept to be compared with those of a run in another way. */
#ifndef ATTN_FUZZ_RESULTS_H
#define ATTN_FUZZ_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "attnrun.h"

enum { FUZZ_RESULTS = 16, FUZZ_NUDGES = 6 /* one in two leaves a - a as it is */ };

struct fuzz_results {
    attnrun_tensor t[FUZZ_RESULTS]; /* dense copies of f32 and f64; others without data */
    int n;
};

/* Whether it is a tensor whose elements lie one behind the other from t->data on. */
bool fuzz_is_dense(const attnrun_tensor *t);
/* Gives it the strides of such a tensor. */
void fuzz_set_dense(attnrun_tensor *t);
void fuzz_results_add(struct fuzz_results *results, const attnrun_tensor *t);
/* Whether no output has an element. Passes take out a Reshape to [-1, S] of what has S columns,
 * which the operator refuses where S is 0. */
bool fuzz_results_are_empty(const struct fuzz_results *results);
void fuzz_results_free(struct fuzz_results *results);
/* Makes *t a dense copy of what it was, whose elements may lie in rows that are further apart; f32
 * and f64 become what is one unit of the last place of a float away, or up to half a `codes`: the
 * largest number of the row is code 127. */
void fuzz_nudge(uint64_t seed, attnrun_tensor *t, void *copy, bool codes);
/* Whether a constant of the model is 1e30, beside which a sum loses all other digits: constants are
 * not nudged. */
bool fuzz_has_huge(const void *model, size_t bytes);
/* What of a model lets two ways of running it differ by more than the rounding of sums. */
struct fuzz_traits {
    /* An operator may leave out products with a padding's zero, or with the probability of a
     * hidden key, which attnrun.h leaves open for NaN and infinities in the other factor and in
     * the key's score. */
    bool hides;
    /* Scores of 1e4 to 1e28 that are equal but for their rounding choose other keys, and a nudge
     * moves them together: where wild numbers are fed, results are not compared. */
    bool attends;
    /* A constant that a node reads is infinite, no number, or overflows to them. */
    bool wild;
    /* A constant that a node reads has finite numbers that make scores of 1e4. */
    bool tall;
    /* An operator splits a row into bytes by its largest number on some instruction sets: beside
     * 1e30 the others are nothing, and beside NaN all are NaN. Where wild numbers are fed, results
     * are not compared. */
    bool splits;
    /* An operator rounds numbers to 8 bits, on some instruction sets or behind a sum of floats. */
    bool rounds;
};
/* Adds those of a model. */
void fuzz_look(const attnrun_model *model, struct fuzz_traits *traits);
/* Whether what is fed has what `wild` says of constants. */
bool fuzz_are_wild(const attnrun_tensor *fed, int n);

/* Whether what is fed has what `tall` says of constants: softmax weights of such scores differ
 * where keys of equal scores are rounded differently, and a nudge moves those together. */
bool fuzz_are_tall(const attnrun_tensor *fed, int n);

/* Whether what is fed has finite numbers whose products overflow f32. A sum with such a product is
 * infinite, as it is in double precision, where it is added before it is rounded (FMA); where it
 * is rounded to an infinity first, and meets another one of the other sign, it is no number. */
bool fuzz_are_large(const attnrun_tensor *fed, int n);

/* What two ways of running may differ by. */
struct fuzz_room {
    const struct fuzz_results
        *near;           /* outputs for inputs one unit of the last place away, or NULL */
    bool nan_of_nothing; /* a NaN of one way may be a number of the other */
    bool rounds; /* numbers on the way are rounded to 8 bits; so are those of `near` */
    bool tall;   /* attention of scores of 1e4 and more */
    bool
        in_between; /* inner values may overflow, and their sums in another order are NaN for
                      * infinite */
};
/* Whether both agree within the rounding of floats; else `why` says what differs. Integers are
 * compared, text and lists are not: a rounding may choose another one. */
bool fuzz_results_agree(const struct fuzz_results *a, const struct fuzz_results *b,
                        struct fuzz_room room, char *why, size_t bytes);

#endif
