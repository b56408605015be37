/* child.h - another attnrun process, and what it writes. */
#ifndef TOOL_CHILD_H
#define TOOL_CHILD_H

#include <sys/types.h>

#include "cli.h"

/* Runs `program` with these arguments to its end. *text is what it wrote to standard output, of
 * malloc(), with a NUL behind it; *code its exit code, 70 where a signal ended it. `quiet`:
 * nobody sees its standard error. */
attnrun_status child_run(const char *program, const struct list *arguments, bool quiet,
                         char **text, int *code);
/* In a process that `parent` has started: it ends where that does, which a signal may end at any
 * time. Only what may be called between fork and exec. */
void child_end_with(pid_t parent);
/* The path of this program. */
attnrun_status child_self(char *path, size_t bytes);

#endif
