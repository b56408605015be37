/* model.h - the model object inside the runtime: what contexts need of it. */
#ifndef ATTN_MODEL_H
#define ATTN_MODEL_H

#include "graph.h"

/* Packs the constant weights of all nodes, once. Thread-safe. */
attn_status attn_model_pack(struct attn_model *model);
static inline struct attn_model *model_of(const attnrun_model *model)
{
    return (struct attn_model *)(uintptr_t)model;
}

#endif
