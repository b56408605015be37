/* model_open.h - between model_open.c and what reads the bytes of an ONNX model, which is
 * onnx_open.c; or no_onnx.c in a library that opens packed files alone; or packed_only.c in a
 * program with compiled models. */
#ifndef ATTN_MODEL_OPEN_H
#define ATTN_MODEL_OPEN_H

#include "../runtime/graph.h"
#include "../runtime/io.h"

/* Loads and prepares a model of the bytes of `file`, which stay open as long as it lives. */
attn_status attn_onnx_open(struct attn_model *model, const attnrun_source *source,
                           const struct attn_file *file);
/* E_UNSUPPORTED, with a sentence: attn_onnx_open() of a compiled model's C file. */
attn_status attn_packed_only(const attnrun_source *source);

/* load_error.c: the failure `status` of a call since `errors` once more: with a place in front;
 * and with the name of the source's file, or as of a model in memory, with its hint. */
attn_status attn_open_fail_in(uint64_t errors, attn_status status, const char *what,
                              const char *name);
attn_status attn_open_fail(uint64_t errors, attn_status status,
                           const attnrun_source *source);
/* The last part of the path of a source; "". */
const char *attn_open_name(const attnrun_source *source);

#endif
