/* chrome_trace.h - one run as a trace that browsers show (chrome://tracing, ui.perfetto.dev). */
#ifndef TOOL_CHROME_TRACE_H
#define TOOL_CHROME_TRACE_H

#include <stdatomic.h>

#include "job.h"

struct trace_event {
    char *name; /* of a step, or NULL */
    char op_type[64];
    attnrun_node_profile node;   /* of a step: its strings are the two above */
    attnrun_tasks_profile tasks; /* of a range of tasks; end 0: this is a step */
};
struct chrome_trace {
    atomic_flag held; /* while an event is added: ranges come from several threads */
    struct trace_event *events;
    int64_t n, capacity;
    bool failed; /* there was no memory for one */
};
void chrome_trace_begin(struct chrome_trace *trace);
/* For on_node and on_tasks. */
void chrome_trace_node(struct chrome_trace *trace, const attnrun_node_profile *node);
void chrome_trace_tasks(struct chrome_trace *trace, const attnrun_tasks_profile *tasks);
attnrun_status chrome_trace_write(const struct chrome_trace *trace, const struct job *job,
                                  const char *path);
void chrome_trace_end(struct chrome_trace *trace);

#endif
