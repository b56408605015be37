/* model.h - the model object inside the runtime: what contexts need of it. */
#ifndef ATTN_MODEL_H
#define ATTN_MODEL_H

#include "graph.h"

/* A control with the flag and the time limit of the model's source, from now on. */
void attn_model_control(const struct attn_model *model, struct attn_control *control);
/* Packs the constant weights of all nodes, once. Thread-safe. */
attn_status attn_model_pack(struct attn_model *model);
/* The lock of packing, waited for with polls; *packed: the weights are. */
attn_status attn_model_lock(struct attn_model *model, bool *packed);
void attn_model_unlock(struct attn_model *model);
static inline struct attn_model *model_of(const attnrun_model *model)
{
    return (struct attn_model *)(uintptr_t)model;
}

#endif
