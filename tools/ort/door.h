/* door.h - what the files of libattnrun_ort share: operators of domain attnrun as operators of
 * an ONNX Runtime that loads this library.
 *
 * register.c lists the operators, one_node.c writes a node as a model of its own, kernel.c
 * opens and runs that model, workers.c computes in the threads of the caller. */
#ifndef ATTNRUN_ORT_DOOR_H
#define ATTNRUN_ORT_DOOR_H

#include <attnrun.h>
#include <stdbool.h>

#include "ort_api.h"

enum { DOOR_MAX_IN = 32, DOOR_MAX_OUT = 8, DOOR_NAME = 32 };

/* An input or output of a row. */
struct door_operand {
    char name[DOOR_NAME];
    int32_t dtype; /* 0: any */
    int32_t form;  /* ORT_REQUIRED … */
};

/* Where operators compute: one for each number of threads that was asked for. */
struct door {
    const ort_api *api;
    attnrun_runtime *runtime;
    ort_domain *domain;
    int32_t threads; /* 0: those of the caller */
    int32_t minor;   /* version 1.minor of the host */
    struct door_op *ops;
    int32_t n_ops;
    struct door *next;
};

/* A row for one of the element types of its letter T. */
struct door_op {
    ort_custom_op base;
    const attnrun_op_def *row;
    struct door *door;
    int32_t n_in, n_out;
    struct door_operand in[DOOR_MAX_IN], out[DOOR_MAX_OUT];
};

/* A node, written as the only one of a model. Constant inputs become its initializers. */
struct one_node {
    void *bytes; /* free() */
    size_t n_bytes;
    int32_t n_in, from[DOOR_MAX_IN]; /* inputs of the model: which of the node */
    int32_t n_out, to[DOOR_MAX_OUT]; /* outputs likewise */
};

/* NULL, or what went wrong. */
ort_status *one_node_write(const struct door_op *op, const ort_info *info,
                           struct one_node *node);
/* A status of our last error, or of a sentence. */
ort_status *door_failed(const struct door *door);
ort_status *door_fail(const struct door *door, int32_t code, const char *sentence);

ort_status *kernel_create(const ort_custom_op *op, const ort_api *api,
                          const ort_info *info, void **kernel);
ort_status *kernel_compute(void *kernel, ort_context *context);
void kernel_destroy(void *kernel);

/* The pool over the caller's threads; workers_enter() says whose they are in this thread, and
 * returns what was said before, for workers_leave(). */
struct workers_scope {
    const struct door *door;
    const ort_context *context;
};
void workers_make(int32_t max_workers, attnrun_pool *pool);
struct workers_scope workers_enter(const struct door *door, const ort_context *context);
void workers_leave(struct workers_scope before);
/* Copies in several threads where that is worth it. */
void workers_copy(const struct door *door, void *to, const void *from, size_t bytes);

#endif
