/* text_number.h - numbers to and from text, as Cast has them; they do not depend on the
 * locale. In: a number, or n bytes of text. Out: the shortest text that gives the same
 * number, or the number. */
#ifndef ATTN_TEXT_NUMBER_H
#define ATTN_TEXT_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT_NUMBER_BYTES = 40 };

/* The shortest decimal text that reads back as the same value of `dtype`
 * (f16, bf16, f32, f64). "1.0", "1e-05", "nan", "-inf". Returns its length. */
int attn_text_from_real(char text[TEXT_NUMBER_BYTES], double value, int32_t dtype);

/* Decimal text, blanks around it allowed; "inf", "+INF", "nan", … too. False: no
 * number. */
bool attn_text_to_real(const char *text, int64_t n, double *value);
/* A whole number as its 64 bits; false: no number or beyond 64 bits. */
bool attn_text_to_int(const char *text, int64_t n, int64_t *value);

#endif
