/* packed.h - packed files of valid models, changed in a few places. */
#ifndef ATTN_FUZZ_PACKED_H
#define ATTN_FUZZ_PACKED_H

#include "case.h"

/* The model of the case becomes its packed file with up to four changes; hashes are right, so
 * that what lies behind them is met. False where the model cannot be opened or packed. */
bool fuzz_pack(struct fuzz_case *c, struct fuzz_random *r);

#endif
