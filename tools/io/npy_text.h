/* npy_text.h - arrays of text in NumPy's files. */
#ifndef TOOL_NPY_TEXT_H
#define TOOL_NPY_TEXT_H

#include "value.h"

/* What a dtype 'S5' or 'U5' says of an element. */
struct npy_text {
    char kind;          /* 'S': bytes, 'U': code points of 4 bytes; padded with NULs */
    int64_t item_bytes; /* 0: all elements are "" */
};

/* UTF-8 of one code point; returns its bytes, 0 for a number that is none. */
int utf8_encode(uint32_t point, char *to);
/* The code point of a character of n bytes, which attnrun_utf8_length() says that it is. */
uint32_t utf8_decode(const char *text, int n);
/* Makes a string tensor of the shape in `raw`, whose memory holds the elements in order, in
 * the byte order of this machine. `name` is for messages. */
attnrun_status npy_text_make(const char *name, const struct npy_text *text,
                             const struct held *raw, uint64_t max_bytes,
                             struct held *made);

#endif
