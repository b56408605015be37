/* cli.h - what the commands share: the options, opening models, inputs, outputs, errors.
 */
#ifndef TOOL_CLI_H
#define TOOL_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "../io/json.h"
#include "../io/value.h"

struct list {
    const char **v;
    int64_t n, capacity;
};

/* Every option of every command; the table in options.c says which command takes which.
 */
struct cli {
    const struct cli_command *command;
    struct list paths; /* positional arguments */
    struct list owned; /* strings to free */
    struct list words; /* arguments as given, for CLI_KEEPS_WORDS: given_words.c */

    struct list inputs, sets, shapes, states, plugins, disable_passes, outputs, fixed;
    const char *inputs_dir, *output, *print, *isa, *precision, *config, *ref, *filter,
        *svg, *domain, *with, *form, *against, *trace, *ragged;
    int64_t threads, seed, max_memory, repeat, timeout_us, warmup, time_us, workers,
        memory, process;
    double rtol, atol; /* negative: not given */
    int32_t json, no_fusion, validate, force_bodies, allow_newer, copy_weights, profile;
    int32_t separate_dims;
    int32_t in_place; /* also set by run, where it runs once */
    int32_t coverage, layers, weights, list_passed, isolate, verbose, quiet, help, used;
    int32_t bench, per_node, verify, external;
    const char *reduce; /* of compare: where the smallest part goes */
    int64_t concurrency;

    attnrun_limits limits; /* 0: the default */

    attnrun_runtime *runtime;
    int64_t other_peak_bytes; /* the most that a runtime beside it held: budget.c */
};

enum cli_commands {
    CLI_RUN = 1,
    CLI_CHECK = 2,
    CLI_PLAN = 4,
    CLI_INSPECT = 8,
    CLI_OPS = 16,
    CLI_BENCH = 32,
    CLI_DOCTOR = 64,
    CLI_HELP = 128,
    CLI_VERSION = 256,
    CLI_CONVERT = 512,
    CLI_COMPARE = 1024,
    CLI_PACK = 2048,
    CLI_OPTIMIZE = 4096,
    CLI_EXTRACT = 8192,
    CLI_REPORT = 16384,
    CLI_COMPILE = 32768,
    /* They start other processes with their options, or say how to. */
    CLI_KEEPS_WORDS = CLI_BENCH | CLI_REPORT | CLI_COMPARE
};

/* `run` returns an exit code where it is done, or a status: see cli_main(). */
struct cli_command {
    const char *name;
    uint32_t bit;
    int32_t min_paths, max_paths; /* max -1: any number */
    const char *arguments;        /* for the usage line */
    const char *summary;
    attnrun_status (*run)(struct cli *cli, int *exit_code);
    const char *text; /* more for the help page */
};
extern const struct cli_command cli_commands[]; /* ends with name NULL */
struct cli_example {
    uint32_t command; /* its bit */
    const char *line, *what;
};
extern const struct cli_example cli_examples[]; /* ends with line NULL; examples.c */
const struct cli_command *cli_find_command(const char *name);
void cli_suggest_command(const char *word); /* adds to the error recorded last */

/* ---- options.c, config.c, help.c ---- */
enum cli_option_kind {
    OPT_FLAG,
    OPT_COUNT,
    OPT_INT,
    OPT_BYTES,
    OPT_TIME,
    OPT_REAL,
    OPT_TEXT,
    OPT_LIST,
    OPT_LIMIT /* a list of NAME=N: limit.c */
};
struct cli_option {
    const char *name;
    char letter;
    enum cli_option_kind kind;
    size_t offset;     /* of the member of struct cli */
    uint32_t commands; /* that take it */
    const char *value; /* for the help page: FILE, N, … */
    const char *help;  /* of most commands: cli_option_for() */
    int64_t low, high; /* OPT_INT */
    const char
        *choices; /* "a|b|c"; "@form": the names of help --form, for completion; NULL */
};
extern const struct cli_option cli_options[]; /* ends with name NULL */
const struct cli_option *cli_find_option(const char *name);
/* The words that a value has to be one of, "a|b|c"; NULL where the table does not list them. */
const char *cli_shown_choices(const struct cli_option *option);
/* option_texts.c: the option as it is shown to `command`; `commands` are those that share that. */
struct cli_option cli_option_for(const struct cli_option *option, uint32_t command);
/* The option that an argument begins, and whether its value is the next argument; or NULL. */
const struct cli_option *cli_option_of(const char *argument, bool *takes_next);
/* `where` starts messages: "--threads", "run.yaml:3: threads". */
attnrun_status cli_set_option(struct cli *cli, const struct cli_option *option,
                              const char *value, const char *where, bool config);
/* limit.c; the name of a limit, NULL past the end. */
const char *cli_limit_name(int32_t index);
attnrun_status cli_set_limit(struct cli *cli, const char *text, const char *where,
                             bool config);
attnrun_status cli_parse(struct cli *cli, int argc, char **argv);
attnrun_status cli_read_config(struct cli *cli, const char *path);
/* given_words.c: the options that `command` takes too, but for those named in `without`, which
 * ends with NULL; as arguments. */
attnrun_status cli_words_of(const struct cli *cli, uint32_t command,
                            const char *const *without, struct list *arguments);
/* --inputs of extract is of names: given once more, "b,c" joins "a" to "a,b,c". Others stay. */
attnrun_status cli_join_names(struct cli *cli, const struct cli_option *option,
                              const char **value);
/* Adds "--NAME=VALUE" of a configuration file to cli->words. */
attnrun_status cli_keep_word(struct cli *cli, const struct cli_option *option,
                             const char *value);
/* One more word of a command, quoted for a shell where it has to be. */
struct line;
void line_add_word(struct line *line, const char *word);
void cli_print_help(const struct cli_command *command); /* NULL: all commands */
attnrun_status list_add(struct list *list, const char *text);
/* A copy of n bytes that lives as long as `cli`; NULL without memory. */
const char *cli_keep(struct cli *cli, const char *text, size_t n);
void cli_free(struct cli *cli);

/* What the help pages and the manual say of exit codes and of the environment (help.c). */
struct cli_exit_code {
    const char *code, *text;
};
extern const struct cli_exit_code cli_exit_codes[]; /* ends with text NULL */
struct cli_variable {
    const char *name, *text;
};
extern const struct cli_variable cli_variables[]; /* ends with name NULL */
/* manual.c: what help --form writes; command NULL: the page of attnrun itself. */
attnrun_status manual_print(struct cli *cli, const struct cli_command *command);
/* completion.c: the completion of a shell, or names for one. */
attnrun_status completion_print(struct cli *cli, const char *form);

/* ---- setup.c ---- */
attnrun_status cli_open_runtime(struct cli *cli);
/* What the options say of a model file; the struct must stay where it is. */
struct cli_source {
    attnrun_source source;
    char passes[1024];
    attnrun_fixed_dim *fixed;
};
attnrun_status cli_source_make(struct cli *cli, const char *path, uint32_t more_flags,
                               struct cli_source *made);
void cli_source_free(struct cli_source *source);
attnrun_status cli_open_model(struct cli *cli, const char *path, uint32_t more_flags,
                              attnrun_model **model);
/* Whether the options name `path` as a file that is read. Other files, such as the external data
 * of a model, are known once they are read: tools/io/read_files.c. */
bool cli_reads(const struct cli *cli, const char *path);
/* attnrun_run() that SIGINT and SIGTERM stop. */
attnrun_status cli_run_context(const struct cli *cli, attnrun_context *context,
                               const attnrun_run_options *options);
void cli_catch_signals(void);
void cli_catch_bus_error(void); /* shrunk.c */
int cli_signal(void);           /* the signal that came, or 0 */
double cli_now_ms(void);
/* The order of doubles, for qsort(). */
int cli_numbers_by_size(const void *a, const void *b);
int64_t cli_peak_rss_bytes(void);
int64_t cli_rss_bytes(void);
int64_t cli_mapped_rss_bytes(void); /* the part of it that shows files */
void cli_reset_peak_rss(void); /* the peak counts from now on, where the system can */

/* ---- report.c ---- */
/* Prints the recorded error; returns its exit code. */
int cli_report(const struct cli *cli);
/* Where --json writes; cli_json_end() passes it on to standard output, or drops it where *status
 * is an error, as it becomes where there was no memory for it. Returns 0, or the errno of a
 * failure to write. */
FILE *cli_json_stream(void);
int cli_json_end(attnrun_status *status);
/* E_USAGE where both --json and the file of `option`, NULL: none, would go to standard output. */
attnrun_status cli_check_stdout(const struct cli *cli, const char *option,
                                const char *path);

/* ---- progress.c: a line on the terminal for what takes longer than a second; one at a
 * time */
void progress_start(const struct cli *cli, const char *what);
void progress_show(int64_t done, int64_t total,
                   const char *what); /* total 0: not known */
void progress_end(void);

/* ---- compare.c ---- */
struct tolerance {
    double rtol, atol;
    double of_largest; /* of the largest expected magnitude, in addition to atol */
    bool quantized;    /* small integers may be one step off */
};
/* What the options say, else 1e-3 and 1e-5; for a model whose products are of bf16 or i8 also 2 %
 * of the largest magnitude, since a sum is off by 2^-8 of those of its products. */
struct tolerance compare_tolerance(const struct cli *cli, const attnrun_model *model);
/* OK, or E_RANGE with the sentence of what differs ("output 0 'y': …" is the caller's).
 */
attnrun_status compare_values(const attnrun_tensor *got, const attnrun_tensor *expected,
                              const struct tolerance *tolerance);

/* ---- the commands, each in its file ---- */
attnrun_status check_against_reference(struct cli *cli,
                                       int *exit_code); /* check_file.c */
attnrun_status command_run(struct cli *cli, int *exit_code);
attnrun_status command_compare(struct cli *cli, int *exit_code);
attnrun_status command_check(struct cli *cli, int *exit_code);
attnrun_status command_plan(struct cli *cli, int *exit_code);
attnrun_status command_inspect(struct cli *cli, int *exit_code);
attnrun_status command_ops(struct cli *cli, int *exit_code);
attnrun_status command_ops_used(struct cli *cli);
attnrun_status command_bench(struct cli *cli, int *exit_code);
attnrun_status command_doctor(struct cli *cli, int *exit_code);
attnrun_status command_help(struct cli *cli, int *exit_code);
attnrun_status command_version(struct cli *cli, int *exit_code);
attnrun_status command_convert(struct cli *cli, int *exit_code);
attnrun_status command_pack(struct cli *cli, int *exit_code);
attnrun_status command_compile(struct cli *cli, int *exit_code);
attnrun_status command_optimize(struct cli *cli, int *exit_code);
attnrun_status command_extract(struct cli *cli, int *exit_code);
attnrun_status command_report(struct cli *cli, int *exit_code);

#endif
