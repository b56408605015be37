/* base.h - verbs of what every CPU of a machine has: SSE2 on x86-64, else those of plain.h. */
#if defined(__SSE2__)
#include "sse2.h"
#endif
