/* regex_text.h - what the two halves of regular expressions share: the kinds of tokens
 * and states, and the decoding of UTF-8. */
#ifndef OP_REGEX_TEXT_H
#define OP_REGEX_TEXT_H

#include "../../runtime/utf8.h"
#include "regex.h"

enum token_kind {
    CHAR,
    ANY,
    CLASS,
    BEGIN,
    END,
    WORD,
    NO_WORD,
    EMPTY, /* operands */
    CONCAT,
    EITHER,
    STAR,
    PLUS,
    MAYBE, /* operators */
    OPEN,  /* a group that waits */
    SPLIT,
    PASS,
    MATCH /* states only */
};

struct text {
    const unsigned char *at, *end;
};

/* A byte that is not of UTF-8: nothing matches it. */
enum { NOT_UTF8 = 0x110000 };

/* The next code point. */
static inline uint32_t regex_take(struct text *t)
{
    uint32_t point = *t->at;
    const int n = point < 0x80 ? 1
                               : attn_utf8_take((const char *)t->at,
                                                (size_t)(t->end - t->at), &point);
    t->at += n > 0 ? n : 1;
    return n > 0 ? point : NOT_UTF8;
}

static inline bool is_word(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_';
}

#endif
