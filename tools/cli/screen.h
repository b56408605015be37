/* screen.h - lines for a terminal of 80 columns. */
#ifndef TOOL_SCREEN_H
#define TOOL_SCREEN_H

#include "../io/fail.h"

/* A line that grows; what does not fit is cut. */
struct line {
    char text[4096];
    size_t n;
};
void line_add(struct line *line, const char *format, ...) TOOL_PRINTF(2, 3);

/* Prints `title` in a column of `indent` cells and the text beside it, wrapped at 80 cells;
 * further lines are indented as much. Two spaces end a field, and a field that fits on one line
 * stays on one. Other fields are wrapped between words; a word that is wider than a line is cut. */
void screen_text(const char *title, int indent, const char *text);
void screen_line(const char *title, int indent, const char *format, ...)
    TOOL_PRINTF(3, 4);
/* The cells of a text: two for wide characters of East Asia and for emoji, none for marks that
 * combine. */
int screen_width(const char *text, size_t bytes);

#endif
