/* fuzz_graphs.c - models around sequences, optionals, subgraphs and attention, made from
 * operator rows or by changing valid ones, opened and run with good and hostile inputs.
 *
 * usage: fuzz_graphs [--packed] [--operators] [--guard] [--faults] [--forms] [--sizes]
 *                    [--seconds N] [--cases N] [--seed N] [--only N] [--save FILE]
 *                    [--keep FOLDER] [CORPUS...]
 *
 * With --operators a case is one node: each row of the registry in turn, with operands,
 * attributes and values that mostly fit, and every third one a model of CORPUS with up to two
 * changes; at the end the operators are printed of which none ran. With --guard all memory ends
 * at a page that nobody may touch, which finds in a release build what a sanitizer would.
 * With --faults what runs is run again with allocations that fail and budgets that are too small.
 * With --forms a case is a model of CORPUS with up to three changes of its graph, and what runs is
 * compared with other ways of running it: a rewrite pass must not apply to what is only nearly what
 * it looks for.
 * With --sizes a case is a model of CORPUS whose inputs have other sizes: up to the largest that a
 * plan can be asked for, and run where all inputs are small, which is arithmetic that a size of
 * nothing hides in a run; or sizes of which some do not fit the others, so that each operator has
 * to see that, and what it lets pass is compared with other ways of running it.
 * With --packed the cases are packed files of models that can be opened, changed in a few
 * places.
 * A case is a seed: --only N runs that one alone, --save writes its model, --keep writes each
 * case that ran with its inputs and outputs (keep.h) for tests/fuzz/with_ort.py. CORPUS:
 * folders of the ONNX backend form, or of such folders; without them all models are made.
 * Cases run in child processes (children.h). Exit code 1 where one is a finding. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "children.h"
#include "make.h"
#include "mutate.h"
#include "packed.h"

enum { ROWS = 2048 };

/* What the child tells its parent. */
struct progress {
    struct fuzz_progress base;
    uint64_t unmade;
    uint32_t row_cases[ROWS], row_good[ROWS]; /* of --operators, by index of the row */
};

static void one_case(struct fuzz_progress *progress);
static void end_process(void);
static struct fuzz_cases cases = { .seconds = 20,
                                   .seed = 1,
                                   .bytes = sizeof(struct progress),
                                   .one_case = one_case,
                                   .end = end_process };
static struct options {
    bool packed, operators, guard, faults, forms, sizes;
    const char *save, *keep;
} options;

static struct fuzz_corpus corpus;

static void save(const struct fuzz_case *c)
{
    FILE *file = fopen(options.save, "wb");
    if (file == NULL || fwrite(c->model, 1, c->bytes, file) != c->bytes)
        perror(options.save);
    if (file != NULL)
        fclose(file);
}

static bool is_name(const char *op, const attnrun_op_def *row)
{
    const size_t n = strlen(row->domain);
    return strncmp(op, row->domain, n) == 0 && (n == 0 || op[n] == '.') &&
           strcmp(op + n + (n > 0), row->name) == 0;
}

/* Whichever row of the operator it was: those of a name count together. */
static void count_rows(struct progress *progress, const struct fuzz_case *c)
{
    for (int i = 0; i < fuzz_rows() && i < ROWS; i++) {
        if (!is_name(c->op, fuzz_row(i)))
            continue;
        progress->row_cases[i]++;
        progress->row_good[i] += c->status == ATTNRUN_OK;
        return;
    }
}

static void report_rows(const struct fuzz_progress *base)
{
    const struct progress *progress = (const struct progress *)base;
    int never = 0, ops = 0;
    for (int i = 0; i < fuzz_rows() && i < ROWS; i++) {
        const attnrun_op_def *row = fuzz_row(i);
        bool first = true;
        for (int k = 0; k < i; k++)
            first = first && (strcmp(row->name, fuzz_row(k)->name) != 0 ||
                              strcmp(row->domain, fuzz_row(k)->domain) != 0);
        ops += first;
        if (!first || progress->row_good[i] > 0)
            continue;
        printf("%s%s%s%s", never++ == 0 ? "none of these ran: " : ", ", row->domain,
               row->domain[0] ? "." : "", row->name);
    }
    printf("%s%d of %d operators ran\n", never > 0 ? "\n" : "", ops - never, ops);
}

static void one_case(struct fuzz_progress *base)
{
    struct progress *progress = (struct progress *)base;
    static struct fuzz_case c;
    struct fuzz_random r = { base->seed };
    memset(&c, 0, sizeof c);
    c.seed = base->seed;
    c.random.state = fuzz_next(&r);
    c.guard = options.guard;
    c.oracle = options.operators || options.forms;
    c.faults = options.faults;
    c.keep = options.keep;
    const bool as_it_is = options.packed && fuzz_chance(&r, 85);
    const bool changed = options.operators && corpus.n > 0 && fuzz_chance(&r, 33);
    const int row =
        options.operators && !changed ? (int)(c.seed % (uint64_t)fuzz_rows()) : -1;
    if (row >= 0)
        fuzz_make_row(&c, &r, row);
    else if (options.forms) {
        c.forms = true;
        c.tame = fuzz_chance(&r, 90);
        progress->unmade += !fuzz_mutate(
            &c, &r, &corpus,
            (struct fuzz_changes){ .fields = fuzz_chance(&r, 5), .graph = 3 });
    } else if (options.sizes) {
        const bool misfits = fuzz_chance(&r, 60);
        c.sizes = true;
        c.oracle = misfits;
        c.tame = misfits && fuzz_chance(&r, 90);
        progress->unmade += !fuzz_mutate(
            &c, &r, &corpus,
            (struct fuzz_changes){
                .fields = fuzz_chance(&r, 10), .sizes = !misfits, .misfits = misfits });
    } else if (changed)
        progress->unmade +=
            !fuzz_mutate(&c, &r, &corpus, (struct fuzz_changes){ .fields = 2 });
    else if (corpus.n == 0 || (!as_it_is && fuzz_chance(&r, 45)))
        fuzz_make(&c, &r);
    else if (!fuzz_mutate(&c, &r, &corpus,
                          (struct fuzz_changes){ .fields = as_it_is ? 0 : 3 }))
        progress->unmade++;
    if (c.model != NULL && options.packed && !fuzz_pack(&c, &r)) {
        progress->unmade++;
        free(c.model);
        c.model = NULL;
        c.status = ATTNRUN_E_MODEL;
    }
    if (c.model != NULL && options.save != NULL)
        save(&c);
    if (c.model != NULL)
        fuzz_case_run(&c);
    base->cases++;
    base->good += c.status == ATTNRUN_OK;
    if (c.op[0] != 0)
        count_rows(progress, &c);
    if (cases.only)
        printf("seed %llu: %s: %s\n", (unsigned long long)c.seed,
               attnrun_status_name(c.status), attnrun_last_error()->message);
    fuzz_case_end(&c);
}

static void end_process(void)
{
    fuzz_case_forget();
    fuzz_corpus_free(&corpus);
}

/* The flag of an option without a value, or NULL. */
static bool *flag_of(const char *option)
{
    static const struct {
        const char *name;
        bool *flag;
    } flags[] = { { "--packed", &options.packed }, { "--operators", &options.operators },
                  { "--guard", &options.guard },   { "--faults", &options.faults },
                  { "--forms", &options.forms },   { "--sizes", &options.sizes } };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(option, flags[i].name) == 0)
            return flags[i].flag;
    return NULL;
}

static bool read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const bool last = i + 1 == argc;
        bool *flag = flag_of(argv[i]);
        if (flag != NULL)
            *flag = true;
        else if (argv[i][0] != '-')
            fuzz_corpus_add(&corpus, argv[i]);
        else if (!last && strcmp(argv[i], "--save") == 0)
            options.save = argv[++i];
        else if (!last && strcmp(argv[i], "--keep") == 0)
            options.keep = argv[++i];
        else if (!fuzz_take_option(&cases, argc, argv, &i))
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!read_options(argc, argv)) {
        fprintf(stderr,
                "usage: fuzz_graphs [--packed] [--operators] [--guard] [--faults] "
                "[--forms] [--sizes] [--seconds N] [--cases N] [--seed N] [--only N] "
                "[--save FILE] "
                "[--keep "
                "FOLDER] "
                "[CORPUS...]\n");
        return 2;
    }
    if ((options.forms || options.sizes) && corpus.n == 0) {
        fprintf(stderr, "fuzz_graphs: --forms and --sizes change models: no folder has a "
                        "model.onnx\n");
        return 2;
    }
    cases.report = options.operators ? report_rows : NULL;
    const int code = fuzz_run_cases(&cases, corpus.n);
    end_process();
    return code;
}
