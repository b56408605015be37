/* difference.h - how far two tensors are apart, and the table of that for each output. */
#ifndef TOOL_DIFFERENCE_H
#define TOOL_DIFFERENCE_H

#include "../io/json.h"

/* Over the elements where both are finite. The relative error of an element is that over the
 * larger of its two sizes. One ulp is a step between neighbouring numbers of the type. */
struct difference {
    int64_t n;         /* elements; 0: nothing that could be measured */
    int64_t unequal;   /* of them: other values, or only one of the two finite */
    int64_t unmatched; /* of them: one is NaN or infinite and the other is not the same */
    double max_abs, max_rel;
    double cosine;   /* of the two as vectors; 1 where both are zero */
    int64_t max_ulp; /* -1: not a float type */
    int64_t at;      /* the element of max_abs */
};

/* Both of one shape and type, dense. Strings count as equal or not. */
void difference_measure(const attnrun_tensor *a, const attnrun_tensor *b,
                        struct difference *d);
/* "max abs 1.2e-07  max rel 3.4e-06  cosine 1.00000000  2 ulp" or "equal"; one of 8 rotating
 * buffers. */
const char *difference_text(const struct difference *d);
void difference_json(struct json *json, const struct difference *d); /* members */

/* One output that was compared. Plain bytes: a child process sends them. */
struct compared {
    char set[48], name[96], shape[96]; /* `set`: the data set, or "" */
    int32_t passed;
    struct difference difference;
};
struct compared_list {
    struct compared *v;
    int64_t n, capacity;
};
attnrun_status compared_add(struct compared_list *list, const struct compared *row);
/* Adds a row for two values that were compared; what cannot be measured has no numbers. */
attnrun_status compared_note(struct compared_list *list, const char *set,
                             const char *name, const attnrun_tensor *got,
                             const attnrun_tensor *expected, bool passed);
void compared_print(const struct compared_list *list);
void compared_json(const struct compared_list *list, struct json *json, const char *key);
void compared_free(struct compared_list *list);

#endif
