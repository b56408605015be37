/* speedup.c - the bound that a plan's tasks put on the speed-up by threads; see speedup.h.
 *
 * In: the phases of the steps of a plan: how many tasks, and what one costs as its operator
 * estimates it. Out: for each number of threads T the sum over phases of
 *
 *     n c                            a phase that one thread does
 *     max(n c / T, ceil(n / T) c) + barrier      one that is shared
 *
 * and the time of one thread over it, which no run on T threads passes; memory bandwidth, which
 * all threads share, is not in it. Barrier: 5 us, what opening and closing a loop may take. */
#include "speedup.h"

#include <inttypes.h>
#include <stdlib.h>

#include "screen.h"

enum { BARRIER_NS = 5000 };

static double time_of(const struct phase_row *row, int64_t threads,
                      struct speedup_loss *loss)
{
    if (!row->shared || threads == 1) {
        loss->serial += row->ns * (1 - 1 / (double)threads);
        return row->ns;
    }
    const int64_t rounds = row->n_tasks / threads + (row->n_tasks % threads != 0);
    const double longest = (double)rounds * (double)row->task_ns;
    loss->uneven += longest - row->ns / (double)threads;
    loss->barriers += BARRIER_NS;
    return longest + BARRIER_NS;
}

static void bound_all(struct speedup *speedup, int64_t asked)
{
    const int64_t counts[SPEEDUP_COUNTS] = { asked, 8, 16, 64 };
    for (int i = 0; i < SPEEDUP_COUNTS; i++) {
        double ns = 0;
        speedup->threads[i] = counts[i];
        for (int64_t r = 0; r < speedup->n_rows; r++)
            ns += time_of(&speedup->rows[r], counts[i], &speedup->loss[i]);
        speedup->bound[i] = ns > 0 ? speedup->one_ns / ns : 1;
        if (speedup->bound[i] < 1) /* one thread opens no loops */
            speedup->bound[i] = 1;
    }
}

static int by_cost(const void *a, const void *b)
{
    const struct phase_row *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? 1 : -1;
    return x->step != y->step ? x->step - y->step : x->phase - y->phase;
}

static void add_step(struct speedup *speedup, int32_t index,
                     const attnrun_plan_step *step)
{
    for (int32_t p = 0; p < step->n_phases; p++) {
        const attnrun_phase *phase = &step->phases[p];
        const int64_t cost = phase->task_cost > 1 ? phase->task_cost : 1;
        if (phase->n_tasks <= 0)
            continue;
        struct phase_row *row = &speedup->rows[speedup->n_rows++];
        *row = (struct phase_row){ .step = index,
                                   .phase = p,
                                   .name = step->name,
                                   .op_type = step->op_type,
                                   .n_tasks = phase->n_tasks,
                                   .task_ns = cost,
                                   .shared = (step->shared >> p & 1) != 0,
                                   .ns = (double)phase->n_tasks * (double)cost };
        speedup->one_ns += row->ns;
    }
}

attnrun_status speedup_read(const struct job *job, struct speedup *speedup)
{
    const int64_t rows = (int64_t)job->plan.n_steps * ATTNRUN_MAX_PHASES + 1;
    speedup->rows = calloc((size_t)rows, sizeof *speedup->rows);
    if (speedup->rows == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for the phases of a plan");
    for (int32_t i = 0; i < job->plan.n_steps; i++) {
        attnrun_plan_step step = { .struct_size = sizeof step };
        TRY_LIB(attnrun_plan_get_step(job->context, i, &step));
        add_step(speedup, i, &step);
    }
    qsort(speedup->rows, (size_t)speedup->n_rows, sizeof *speedup->rows, by_cost);
    bound_all(speedup, job->cli->threads);
    return ATTNRUN_OK;
}

void speedup_free(struct speedup *speedup) { free(speedup->rows); }

/* What costs most beside an even share of all threads. */
static const char *limit_of(const struct speedup_loss *loss)
{
    if (loss->serial >= loss->uneven && loss->serial >= loss->barriers)
        return "phases of one thread";
    return loss->uneven >= loss->barriers ? "the longest tasks" : "barriers";
}

/* The number that was asked for is one of the usual ones: said once. */
static bool is_repeated(const struct speedup *speedup, int i)
{
    return i > 0 && speedup->threads[i] == speedup->threads[0];
}

enum { STEP_COLUMN = 39 };

void speedup_print(const struct speedup *speedup)
{
    printf("\nphases, with estimated times\n"
           "%9s %9s %10s %6s  %s\n",
           "tasks", "each us", "sum us", "phase",
           "of step, shared among threads or of one");
    for (int64_t i = 0; i < speedup->n_rows && i < SPEEDUP_ROWS; i++) {
        const struct phase_row *row = &speedup->rows[i];
        char numbers[96];
        snprintf(numbers, sizeof numbers, "%9" PRId64 " %9.1f %10.1f %6d", row->n_tasks,
                 (double)row->task_ns / 1e3, row->ns / 1e3, row->phase);
        screen_line(numbers, STEP_COLUMN, "%d %s%s  %s", row->step,
                    tool_quote(row->op_type), row->shared ? "" : ", of one",
                    tool_quote(row->name));
    }
    if (speedup->n_rows > SPEEDUP_ROWS)
        printf("and %" PRId64 " more phases\n", speedup->n_rows - SPEEDUP_ROWS);
    printf("\nestimated speed-up by threads, and the time that is lost, in us\n"
           "%9s %9s %11s %13s %9s  %s\n",
           "threads", "at most", "one thread", "longest tasks", "barriers", "limited by");
    for (int i = 0; i < SPEEDUP_COUNTS; i++)
        if (!is_repeated(speedup, i))
            printf("%9" PRId64 " %8.2fx %11.0f %13.0f %9.0f  %s\n", speedup->threads[i],
                   speedup->bound[i], speedup->loss[i].serial / 1e3,
                   speedup->loss[i].uneven / 1e3, speedup->loss[i].barriers / 1e3,
                   limit_of(&speedup->loss[i]));
}

void speedup_json(const struct speedup *speedup, struct json *json)
{
    json_open(json, "phases", '[');
    for (int64_t i = 0; i < speedup->n_rows; i++) {
        const struct phase_row *row = &speedup->rows[i];
        json_open(json, NULL, '{');
        json_int(json, "step", row->step);
        json_int(json, "phase", row->phase);
        json_text(json, "name", row->name);
        json_text(json, "op_type", row->op_type);
        json_int(json, "tasks", row->n_tasks);
        json_int(json, "task_ns", row->task_ns);
        json_bool(json, "shared", row->shared);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_open(json, "speedup", '[');
    for (int i = 0; i < SPEEDUP_COUNTS; i++) {
        if (is_repeated(speedup, i))
            continue;
        json_open(json, NULL, '{');
        json_int(json, "threads", speedup->threads[i]);
        json_real(json, "max_ratio", speedup->bound[i]);
        json_text(json, "limited_by", limit_of(&speedup->loss[i]));
        json_real(json, "serial_us", speedup->loss[i].serial / 1e3);
        json_real(json, "uneven_us", speedup->loss[i].uneven / 1e3);
        json_real(json, "barriers_us", speedup->loss[i].barriers / 1e3);
        json_close(json, '}');
    }
    json_close(json, ']');
}
