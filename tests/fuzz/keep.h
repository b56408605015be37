/* keep.h - cases that ran, written as folders of the ONNX backend form for another runtime. */
#ifndef ATTN_FUZZ_KEEP_H
#define ATTN_FUZZ_KEEP_H

#include "case.h"

/* Writes FOLDER/SEED with the model, the inputs c->fed and the outputs of the context, which has
 * just run. Cases with values that are no dense tensor are left out. */
void fuzz_keep(const struct fuzz_case *c, attnrun_context *context,
               const attnrun_model_info *info);

#endif
