/* digest.h - XXH64: a short name for the bytes of an output. */
#ifndef TOOL_DIGEST_H
#define TOOL_DIGEST_H

#include <stddef.h>
#include <stdint.h>

uint64_t digest_xxh64(const void *data, size_t bytes, uint64_t seed);

#endif
