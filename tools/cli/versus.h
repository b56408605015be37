/* versus.h - the two sides of attnrun compare. */
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
    int64_t failed;
    char first[256]; /* the first inner value that differs, or "" */
};

/* ort.c: the model in ONNX Runtime, through Python, on the inputs of the first side. */
attnrun_status ort_run(struct side *side, const struct job *first);

#endif
