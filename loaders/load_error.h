/* load_error.h - the sentence of a failure, to be said once more with more around it. */
#ifndef ATTN_LOAD_ERROR_H
#define ATTN_LOAD_ERROR_H

#include "../runtime/status.h"

enum { ATTN_LOAD_MESSAGE = 640 };

/* The sentence of the failure `status` since `errors`, without the status's name, in `text` of
 * ATTN_LOAD_MESSAGE bytes. */
void attn_load_sentence(uint64_t errors, attn_status status, char *text);

#endif
