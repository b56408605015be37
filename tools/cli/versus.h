/* versus.h - the two sides of attnrun compare, and what compare found.
 *
 * In: a model and how the other side differs: options, another file, or ONNX Runtime. Out: struct
 * versus, with the errors of outputs and inner values; with --reduce also the smallest part of the
 * model that still differs. Cost: a run of each side, and those of
 * compare_reduce.c with --reduce. */
#ifndef TOOL_VERSUS_H
#define TOOL_VERSUS_H

#include "difference.h"
#include "job.h"

struct side {
    struct cli cli; /* the options of this side; its lists belong to the first one */
    const char *label, *path;
    bool own_runtime, ort;
    attnrun_model *model;
    attnrun_context *context;
    struct held *outputs; /* of ONNX Runtime, in the order of the first side's outputs */
    int64_t n_outputs;
};

struct versus {
    struct job job; /* the first side */
    struct side other;
    struct list names; /* inner values that both compute */
    struct tolerance tolerance;
    struct compared_list outputs, inner;
    int32_t n_file_outputs;
    int64_t failed,
        n_missing;   /* missing: outputs that one of the models lacks, which fail */
    char first[256]; /* the first inner value that differs, or "" */
    char first_output[256], missing[256];
    const char *missing_in; /* the file of the model that lacks the first of them */
    /* Of the smallest part, once it is written: its inputs, and that of another model. */
    char values_path[4096], other_path[4096];
    int64_t n_part_nodes;
};

/* versus.c: runs both sides and compares them. On failure versus_free() is still to be
 * called. */
attnrun_status versus_run(struct versus *versus, struct cli *cli);
void versus_free(struct versus *versus);
/* compare_reduce.c: whether the part and its inputs can be written, before the work is done. */
attnrun_status versus_reduce_check(const struct cli *cli);
/* Writes the smallest part that still differs to cli->reduce, and its inputs. */
attnrun_status versus_reduce(struct versus *versus, struct cli *cli);

/* ort.c: the model in ONNX Runtime, through Python, on the inputs of the first side. */
attnrun_status ort_run(struct side *side, const struct job *first);
/* E_UNSUPPORTED: `what` ("input") is of a kind that does not go from one to the other. */
attnrun_status ort_check_kind(const char *what, const char *name,
                              const attnrun_tensor *value);

#endif
