/* moved_graph.h - random graphs of nodes that only move elements, for test_provenance.c: written
 * as a file, run, with the numbers of each value. */
#ifndef ATTN_TESTS_MOVED_GRAPH_H
#define ATTN_TESTS_MOVED_GRAPH_H

#include "../runtime/harness.h"

#include "graph.h"

enum { MOVED_VALUES = 40, MOVED_RANK = 4, MOVED_ELEMENTS = 400 };

/* Kinds of nodes; those behind MOVED_ENDS are such that no element is followed through them. */
enum {
    MOVED_RESHAPE,
    MOVED_UNSQUEEZE,
    MOVED_IDENTITY,
    MOVED_TRANSPOSE,
    MOVED_SLICE,
    MOVED_GATHER,
    MOVED_GATHER_SUM, /* by a sum of two constants */
    MOVED_PAD,
    MOVED_SCATTER_ND,
    MOVED_SCATTER_ELEMENTS,
    MOVED_WHERE,
    MOVED_CONCAT,
    MOVED_SQUEEZE,
    MOVED_FLATTEN,
    MOVED_EXPAND,
    MOVED_ENDS,
    MOVED_NEG = MOVED_ENDS,
    MOVED_SLICE_BACK,
    MOVED_GATHER_BY_INPUT,
    MOVED_PAD_REFLECT,
    MOVED_SCATTER_ND_ADD,
    MOVED_SCATTER_ELEMENTS_MANY,
    MOVED_WHERE_INPUT,
    MOVED_KINDS
};

struct moved_value {
    char name[8];
    int rank;
    int64_t dims[MOVED_RANK];
    bool input, ends; /* ends: parts end here */
    float *data;
};

struct moved_graph {
    uint64_t first_seed, seed;
    struct onnx_writer *writer;
    struct moved_value values[MOVED_VALUES];
    int n, constants;
    int64_t used[MOVED_KINDS];
    char text[4000]; /* the nodes, for messages */
};

int64_t moved_below(struct moved_graph *g,
                    int64_t n); /* a random number from 0 to n - 1 */
int64_t moved_count(const struct moved_value *v);
struct moved_graph *moved_make(uint64_t seed);
/* The model as it was loaded, without fusion; the values have their numbers. */
attnrun_model *moved_run(struct moved_graph *g, attnrun_runtime *runtime);
void moved_free(struct moved_graph *g);

#endif
