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

/* What packing a model takes. */
struct attn_pack_need {
    const void *stand_in;  /* in: shown as the packed weights; at least 64 zeros */
    int64_t packed_bytes;  /* stays */
    int64_t working_bytes; /* the most besides, while it works */
    int64_t
        aligned_bytes; /* stays: copies of constants that the file has at odd places */
    int64_t released_bytes; /* of constants computed at load that nobody reads any more */
};
/* Measures a model that is not packed, and calls then(arg) while its nodes show `stand_in`
 * for packed weights; nothing is packed afterwards either. The caller holds the model's lock. */
attn_status attn_pack_measure(struct attn_model *model, struct attn_pack_need *need,
                              attn_status (*then)(void *arg), void *arg);

/* Lets every node of the model pack its constants into one block, nodes in parallel;
 * gives back pages of the files that nobody reads any more; aligns the constants that are
 * still read. On failure nothing is packed. The caller frees *block. */
attn_status attn_pack_model(struct attn_model *model, const struct attn_file_list *files,
                            void **block, int64_t *block_bytes);

#endif
