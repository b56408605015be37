/* regex.h - regular expressions of RE2's syntax, matched in time O(pattern * text) by
 * keeping the set of all states, without recursion and without memory of its own.
 *
 * Accepted: literals, ., [classes] with ranges and [:names:], \d \w \s \b and their
 * opposites, \A \z ^ $, escapes, groups (also (?: and named), |, * + ? {m,n} and their
 * lazy forms. Refused: flags such as (?i), \p classes, \Q…\E, back references,
 * look-around, \C, octal escapes, the classes [:ascii:], [:cntrl:], [:graph:], [:print:] and
 * [:^name:], names of groups beyond ASCII, and patterns that do not fit the fixed tables. What RE2
 * refuses is refused, too: a repetition of a repetition (a**), and nested counts whose product
 * exceeds 1000. A byte of the text that is not of UTF-8 is matched by nothing. */
#ifndef OP_REGEX_H
#define OP_REGEX_H

#include <stdbool.h>
#include <stdint.h>

enum { REGEX_TOKENS = 4096, REGEX_RANGES = 1024, REGEX_CLASSES = 256 };

struct op_regex_token {
    int32_t kind;  /* of a postfix expression */
    int32_t value; /* code point or class */
};

struct op_regex_state {
    int32_t kind, value;
    int32_t next, other; /* -1: none */
};

struct op_regex {
    struct op_regex_token tokens[REGEX_TOKENS];
    struct op_regex_state states[2 * REGEX_TOKENS + 2];
    struct {
        uint32_t low, high;
    } ranges[REGEX_RANGES];
    struct {
        int32_t first, n;
        bool negated;
    } classes[REGEX_CLASSES];
    int32_t n_tokens, n_states, n_ranges, n_classes, start;
    /* of parsing: operators and groups that wait, operands with their first tokens and the largest
     * product of nested counts in each */
    int32_t waiting[2 * REGEX_TOKENS], operands[REGEX_TOKENS], times[REGEX_TOKENS];
    int32_t n_waiting, n_operands;
    /* of building: entries and exits of fragments */
    int32_t entry[REGEX_TOKENS], exit[REGEX_TOKENS];
    /* of matching: two sets of states, and states to follow */
    int32_t sets[2][2 * REGEX_TOKENS + 2], places[2 * REGEX_TOKENS + 2];
    int32_t follow[4 * REGEX_TOKENS + 4];
    /* of searching: where in the text the match of each state of a set began */
    int64_t starts[2][2 * REGEX_TOKENS + 2];
};

/* NULL, or what is wrong with the pattern. It polls: the caller does so before it uses either. */
const char *op_regex_compile(struct op_regex *regex, const char *pattern, int64_t bytes);
/* The second half of compiling: tokens to states. */
void op_regex_build(struct op_regex *regex);
/* Whether the whole text matches. It polls: where the call is to end, the result is not right. */
bool op_regex_match(struct op_regex *regex, const char *text, int64_t bytes);
/* The first match that begins at byte `from` or later, and of those that begin there the
 * longest: bytes [*begin, *end) of the text. False where there is none, or the call is to
 * end. */
bool op_regex_find(struct op_regex *regex, const char *text, int64_t bytes, int64_t from,
                   int64_t *begin, int64_t *end);

#endif
