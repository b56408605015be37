/* base.h - the verbs that every CPU of a machine has: SSE2 on x86-64, those of plain.h
 * elsewhere. */
#if defined(__SSE2__)
#include "sse2.h"
#endif
