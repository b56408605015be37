/* digest.h - XXH64: 64 bits of any bytes, a short name for an output. Not for security. */
#ifndef TOOL_DIGEST_H
#define TOOL_DIGEST_H

#include <stddef.h>
#include <stdint.h>

uint64_t digest_xxh64(const void *data, size_t bytes, uint64_t seed);

#endif
