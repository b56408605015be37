/* regex_text.h - what the two halves of regular expressions share: the kinds of tokens
 * and states, and the decoding of UTF-8. */
#ifndef OP_REGEX_TEXT_H
#define OP_REGEX_TEXT_H

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

/* The next code point; a byte that is not UTF-8 is its own code point. */
static inline uint32_t regex_take(struct text *t)
{
    uint32_t c = *t->at++;
    int more = c >= 0xf0 && c < 0xf8   ? 3
               : c >= 0xe0 && c < 0xf0 ? 2
               : c >= 0xc2 && c < 0xe0 ? 1
                                       : 0;
    if (more == 0 || t->end - t->at < more)
        return c;
    uint32_t point = c & (0x3fu >> more);
    for (int i = 0; i < more; i++) {
        if ((t->at[i] & 0xc0) != 0x80)
            return c;
        point = point << 6 | (t->at[i] & 0x3fu);
    }
    t->at += more;
    return point;
}

static inline bool is_word(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_';
}

#endif
