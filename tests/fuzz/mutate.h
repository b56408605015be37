/* mutate.h - changes a valid model of a test folder in a few places. */
#ifndef ATTN_FUZZ_MUTATE_H
#define ATTN_FUZZ_MUTATE_H

#include "case.h"

/* The folders below `path` that hold a model.onnx, three levels down; the list grows. */
struct fuzz_corpus {
    char **folders;
    int n;
};
void fuzz_corpus_add(struct fuzz_corpus *corpus, const char *path);
void fuzz_corpus_free(struct fuzz_corpus *corpus);
/* The largest numbers of changes: of fields, which mostly make a model that is refused, and of the
 * graph (rewire.h), of which there is one at least where there may be any; whether the sizes of
 * inputs change, or some do not fit any more (sizes.h). */
struct fuzz_changes {
    int64_t fields, graph;
    bool sizes, misfits;
};
/* A model of the corpus with changes, and its inputs. False where the files cannot be read. */
bool fuzz_mutate(struct fuzz_case *c, struct fuzz_random *r,
                 const struct fuzz_corpus *corpus, struct fuzz_changes max);

#endif
