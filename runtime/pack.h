/* pack.h - constant weights in the form that kernels read, made once for a model. In: a model
 * with its mapped files. Out: one block of packed weights, which all contexts share. */
#ifndef ATTN_PACK_H
#define ATTN_PACK_H

#include "graph.h"
#include "io.h"

/* Files that hold a model's constants. */
struct attn_file_list {
    struct attn_file_list *next;
    struct attn_file file;
};

/* Gives back the pages of a mapped file that a constant lies in; a later reader gets them
 * from the file again. */
void attn_files_drop(const struct attn_file_list *files, const attnrun_tensor *constant);

/* Lets every node of the model pack its constants into one block, nodes in parallel;
 * gives back pages of the files that nobody reads any more; aligns the constants that are
 * still read. On failure nothing is packed. The caller frees *block. */
attn_status attn_pack_model(struct attn_model *model, const struct attn_file_list *files,
                            void **block, int64_t *block_bytes);

#endif
