/* text_stream.h - a stream whose text is kept in memory, and that knows when it is not whole: what
 * open_memstream() cannot get memory for is lost, and its fclose() succeeds. */
#ifndef TOOL_TEXT_STREAM_H
#define TOOL_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct text_stream {
    FILE *file; /* NULL: not open */
    char *text; /* with a NUL behind it, once closed; or NULL */
    size_t bytes, room;
    bool failed;
};

/* `stream` stays where it is until it is closed. False where there is no memory. */
bool text_stream_open(struct text_stream *stream);
/* True where all that was written is in `text`. One that is not open is closed already. */
bool text_stream_close(struct text_stream *stream);
/* Closes it, too. */
void text_stream_free(struct text_stream *stream);

#endif
