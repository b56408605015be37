/* save_onnx.h - what the files share that write ONNX models: a model that was opened to be
 * written, and the pieces of the new file. */
#ifndef ATTN_SAVE_ONNX_H
#define ATTN_SAVE_ONNX_H

#include "../runtime/model.h"
#include "wire_write.h"

/* model_open.c: opens a model to be written, not to be run: nothing is promoted or expanded,
 * and no pass runs that writes what only this library knows. `origin`: what of it stays. */
attn_status attn_model_open_to_write(attnrun_runtime *runtime,
                                     const attnrun_source *source,
                                     const struct attn_origin *origin,
                                     struct attn_model **opened);

/* A constant of the main graph: its message but for the bytes, which follow. */
struct attn_onnx_constant {
    size_t head_at, head_bytes; /* in attn_onnx_save.heads */
    const void *data;
    int64_t bytes;
    int64_t external_at; /* offset in the file beside the model; -1: in the model */
};

struct attn_onnx_save {
    struct attn_model *model;
    const attnrun_onnx_edit *edit;
    struct attn_pool pool;
    bool *live; /* of the main graph's nodes: written */
    bool *cut;  /* of its values: given as inputs */
    bool *kept; /* of its values: constants that are read */
    int32_t *inputs, *outputs;
    int32_t n_inputs, n_outputs;
    struct wire_buffer graph, heads;
    struct attn_onnx_constant *constants;
    int64_t n_constants, external_bytes, n_nodes;
};

/* save_share.c: large constants of subgraphs become constants of the main graph, each once; nodes
 * of subgraphs give their outputs, and their names hide no other. */
attn_status attn_save_share(struct attn_model *model, struct attn_pool *scratch);
/* save_graph.c: fills `graph` with all of the main graph but its constants. What its nodes need is
 * among the opsets of the model then. */
attn_status attn_save_graph(struct attn_onnx_save *save);
/* One constant as a TensorProto, without its bytes where `apart`. */
void attn_save_tensor(struct wire_buffer *b, const attnrun_tensor *tensor,
                      const char *name, bool apart);

#endif
