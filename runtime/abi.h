/* abi.h - structs that cross the API, of this header's size or another's: one rule for
 * all.
 *
 * A struct begins with struct_size. 0 and what no such struct can have (they are
 * multiples of 8 bytes) are refused. A smaller struct is one of an older header: what it
 * lacks is zero when read and left out when written. A larger one is of a newer header:
 * all that is beyond the known bytes must be zero, which is the default of every member.
 */
#ifndef ATTN_ABI_H
#define ATTN_ABI_H

#include <stddef.h>

#include "status.h"

/* E_USAGE where struct_size breaks the rule; `what` names the struct. */
attn_status attn_struct_check(const void *given, size_t known_bytes, const char *what);
/* A struct that the caller filled, as one of `known_bytes` bytes in `own`. */
attn_status attn_struct_read(const void *given, void *own, size_t known_bytes,
                             const char *what);
/* E_USAGE where a reserved member is not 0; `what` names the struct. */
attn_status attn_reserved_check(uint32_t reserved, const char *what);
/* A struct for the caller: all members but struct_size, which stays as it is. */
attn_status attn_struct_write(void *to, const void *filled, size_t known_bytes,
                              const char *what);

#endif
