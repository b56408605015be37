/* files_make.h - makes files of the kinds that the command line reads, right ones and almost right
 * ones. */
#ifndef ATTN_FUZZ_FILES_MAKE_H
#define ATTN_FUZZ_FILES_MAKE_H

#include "../loaders/pb_write.h"
#include "fuzz_random.h"

/* Each appends a file to `to`, which grows. */
void files_make_npy(struct fuzz_random *r, struct pb *to);
void files_make_npz(struct fuzz_random *r, struct pb *to);
void files_make_yaml(struct fuzz_random *r, struct pb *to);
/* "[[1,2],[3,4]]", "{"a": 1}"; ends with NUL. */
void files_make_inline(struct fuzz_random *r, struct pb *to);
/* A TensorProto, SequenceProto, OptionalProto or MapProto; `kind`: ATTNRUN_TENSOR …. */
void files_make_pb(struct fuzz_random *r, int32_t kind, struct pb *to);
/* Changes some bytes, doubles or drops some, or cuts the file. */
void files_change(struct fuzz_random *r, struct pb *file);

#endif
