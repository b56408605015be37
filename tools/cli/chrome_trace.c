/* chrome_trace.c - a run as a trace of events; see chrome_trace.h.
 *
 * In: the steps of a run and the ranges of tasks of its threads, as they end. Out: one JSON
 * object in the trace event format: a line of the steps, with their bytes, operations and
 * threads, and a line of each thread with its ranges, named by their step. Times are
 * microseconds from the start of the run. */
#include "chrome_trace.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "../io/text_stream.h"

enum { STEPS_LINE = 0, WORKER_LINE = 1 }; /* "tid" of the steps, of worker 0 */

void chrome_trace_begin(struct chrome_trace *trace)
{
    memset(trace, 0, sizeof *trace);
    atomic_flag_clear(&trace->held);
}

void chrome_trace_end(struct chrome_trace *trace)
{
    for (int64_t i = 0; i < trace->n; i++)
        free(trace->events[i].name);
    free(trace->events);
}

static void hold(struct chrome_trace *trace)
{
    while (atomic_flag_test_and_set_explicit(&trace->held, memory_order_acquire))
        sched_yield();
}

static void let_go(struct chrome_trace *trace)
{
    atomic_flag_clear_explicit(&trace->held, memory_order_release);
}

/* A new event, while the trace is held; NULL without memory. */
static struct trace_event *add_event(struct chrome_trace *trace)
{
    if (trace->n == trace->capacity) {
        int64_t capacity = 2 * trace->capacity + 256;
        struct trace_event *grown =
            realloc(trace->events, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            trace->failed = true;
            return NULL;
        }
        trace->events = grown;
        trace->capacity = capacity;
    }
    memset(&trace->events[trace->n], 0, sizeof *trace->events);
    return &trace->events[trace->n++];
}

void chrome_trace_node(struct chrome_trace *trace, const attnrun_node_profile *node)
{
    hold(trace);
    struct trace_event *event = add_event(trace);
    if (event != NULL) {
        event->node = *node;
        event->node.name = event->node.op_type = event->node.domain = NULL;
        event->name = strdup(node->name);
        trace->failed = trace->failed || event->name == NULL;
        attnrun_escape(node->op_type, event->op_type, sizeof event->op_type);
    }
    let_go(trace);
}

void chrome_trace_tasks(struct chrome_trace *trace, const attnrun_tasks_profile *tasks)
{
    hold(trace);
    struct trace_event *event = add_event(trace);
    if (event != NULL)
        event->tasks = *tasks;
    let_go(trace);
}

static void write_head(struct json *json, const char *name, const char *phase,
                       int32_t line)
{
    json_open(json, NULL, '{');
    json_text(json, "name", name);
    json_text(json, "ph", phase);
    json_int(json, "pid", 1);
    json_int(json, "tid", line);
}

static void write_line_name(struct json *json, int32_t line, const char *name)
{
    write_head(json, "thread_name", "M", line);
    json_open(json, "args", '{');
    json_text(json, "name", name);
    json_close(json, '}');
    json_close(json, '}');
}

static void write_times(struct json *json, int64_t start_ns, int64_t ns)
{
    json_real(json, "ts", (double)start_ns / 1e3);
    json_real(json, "dur", (double)ns / 1e3);
}

static void write_step(struct json *json, const struct trace_event *event)
{
    const attnrun_node_profile *node = &event->node;
    write_head(json, event->op_type, "X", STEPS_LINE);
    write_times(json, node->start_ns, node->ns);
    json_open(json, "args", '{');
    json_text(json, "node", event->name);
    json_int(json, "index", node->node_index);
    json_int(json, "read_bytes", node->read_bytes);
    json_int(json, "written_bytes", node->written_bytes);
    if (node->flops >= 0)
        json_int(json, "flops", node->flops);
    json_int(json, "threads", node->n_threads);
    json_int(json, "tasks", node->n_tasks);
    json_int(json, "phases", node->n_phases);
    json_close(json, '}');
    json_close(json, '}');
}

/* The operator of a range: its step comes behind its ranges. */
static const char *op_of(const struct chrome_trace *trace, int64_t at)
{
    for (int64_t i = at; i < trace->n; i++)
        if (trace->events[i].tasks.end == 0 &&
            trace->events[i].node.node_index == trace->events[at].tasks.node_index)
            return trace->events[i].op_type;
    return "tasks";
}

static void write_range(struct json *json, const struct chrome_trace *trace, int64_t at)
{
    const attnrun_tasks_profile *tasks = &trace->events[at].tasks;
    write_head(json, op_of(trace, at), "X", WORKER_LINE + tasks->worker);
    write_times(json, tasks->start_ns, tasks->ns);
    json_open(json, "args", '{');
    json_int(json, "index", tasks->node_index);
    json_int(json, "phase", tasks->phase);
    json_int(json, "from", tasks->begin);
    json_int(json, "to", tasks->end);
    json_close(json, '}');
    json_close(json, '}');
}

static void write_all(struct json *json, const struct chrome_trace *trace,
                      const struct job *job)
{
    int32_t workers = 0;
    char name[32];
    json_open(json, NULL, '{');
    json_text(json, "displayTimeUnit", "ns");
    json_open(json, "otherData", '{');
    json_text(json, "model", job->path);
    json_text(json, "version", attnrun_version());
    json_close(json, '}');
    json_open(json, "traceEvents", '[');
    write_line_name(json, STEPS_LINE, "steps");
    for (int64_t i = 0; i < trace->n; i++)
        if (trace->events[i].tasks.end > 0 && trace->events[i].tasks.worker >= workers)
            workers = trace->events[i].tasks.worker + 1;
    for (int32_t w = 0; w < workers; w++) {
        snprintf(name, sizeof name, "thread %d", w);
        write_line_name(json, WORKER_LINE + w, name);
    }
    for (int64_t i = 0; i < trace->n; i++)
        if (trace->events[i].tasks.end > 0)
            write_range(json, trace, i);
        else
            write_step(json, &trace->events[i]);
    json_close(json, ']');
    json_close(json, '}');
}

attnrun_status chrome_trace_write(const struct chrome_trace *trace, const struct job *job,
                                  const char *path)
{
    struct text_stream stream;
    if (trace->failed || !text_stream_open(&stream))
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for the trace of a run");
    struct json json = { .out = stream.file };
    write_all(&json, trace, job);
    attnrun_status status =
        text_stream_close(&stream)
            ? output_file_save(path, stream.text, (int64_t)stream.bytes)
            : tool_fail(ATTNRUN_E_MEMORY, "no memory for the trace of a run");
    text_stream_free(&stream);
    return status;
}
