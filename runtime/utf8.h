/* utf8.h - the characters of text whose bytes nobody has checked. In: bytes. Out: the code point of
 * the first character, and its length. Cost: one pass over it. Source: RFC 3629. */
#ifndef ATTN_UTF8_H
#define ATTN_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of the character at the start of `text`, which has `bytes`, 1 or more; *point is its
 * code point. 0: no character starts there, and *point is undefined. */
int attn_utf8_take(const char *text, size_t bytes, uint32_t *point);
/* Shortens text that was cut after `bytes` bytes by the part of a character at its end. */
void attn_utf8_trim(char *text, size_t bytes);

#endif
