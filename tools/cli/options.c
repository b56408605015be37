/* options.c - the table of all options: parsing, the help pages and the keys of a
 * configuration file come from it. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "cli.h"

#define AT(member) offsetof(struct cli, member)
enum {
    USES_MODEL = CLI_RUN | CLI_CHECK | CLI_PLAN | CLI_INSPECT | CLI_BENCH | CLI_COMPARE |
        CLI_PACK | CLI_COMPILE,
    EDITS = CLI_OPTIMIZE | CLI_EXTRACT,
    OPENS = USES_MODEL | EDITS | CLI_REPORT,
    MAKES_INPUTS = CLI_RUN | CLI_PLAN | CLI_BENCH | CLI_CHECK | CLI_COMPARE | CLI_REPORT,
    RUNS = CLI_RUN | CLI_CHECK | CLI_BENCH | CLI_COMPARE,
    ANY = 0xffff
};

const struct cli_option cli_options[] = {
    { "input", 'i', OPT_LIST, AT(inputs), MAKES_INPUTS, "NAME=WHAT",
      "value of an input: x=f.npy, x=f.npz[:key], x=f.pb, x=- (npy from stdin), "
      "x=[[1,2]], x={\"a\": 1}, x=ones|zeros, or f.npz by its keys",
      0, 0, 0 },
    { "inputs", 0, OPT_TEXT, AT(inputs_dir), MAKES_INPUTS | CLI_EXTRACT, "DIR",
      "all inputs from DIR/input_N.pb or DIR/NAME.npy", 0, 0, 0 },
    { "set", 's', OPT_LIST, AT(sets), MAKES_INPUTS | EDITS, "SYMBOL=N",
      "bind a symbolic dimension: --set S=128", 0, 0, 0 },
    { "fix", 0, OPT_LIST, AT(fixed), OPENS, "SYMBOL=N",
      "make a symbolic dimension a constant while loading, so that shapes that depend on "
      "it are computed then",
      0, 0, 0 },
    { "separate-dims", 0, OPT_FLAG, AT(separate_dims), OPENS, NULL,
      "let inputs mean different sizes by the same name of a dimension", 0, 0, 0 },
    { "shape", 0, OPT_LIST, AT(shapes), MAKES_INPUTS, "NAME=SHAPE",
      "shape of an input: x=1x3x224x224 or x=[1,3,224,224]", 0, 0, 0 },
    { "state", 0, OPT_LIST, AT(states), CLI_PLAN | CLI_BENCH, "PAST=PRESENT",
      "an output that becomes an input of the next run, as in past_*=present_*", 0, 0,
      0 },
    { "output", 'o', OPT_TEXT, AT(output),
      CLI_RUN | CLI_PACK | CLI_COMPILE | EDITS | CLI_REPORT, "PATH",
      "write outputs: f.npz, f.npy (one output), f.json, a folder of npy files, or -", 0,
      0, 0 },
    { "outputs", 0, OPT_LIST, AT(outputs), CLI_RUN | CLI_COMPARE | CLI_PACK | CLI_EXTRACT,
      "NAME", "also show an inner value, which is then not fused with its readers", 0, 0,
      0 },
    { "external", 0, OPT_FLAG, AT(external), EDITS, NULL,
      "write constants of 64 KiB or more to FILE.data; models over 2 GiB need this", 0, 0,
      0 },
    { "with", 0, OPT_TEXT, AT(with), CLI_COMPARE, "HOW",
      "the other side: no-fusion, bodies, isa=NAME, precision=bf16, ort (ONNX Runtime), "
      "or a model file (default: no-fusion)",
      0, 0, "@sides" },
    { "per-node", 0, OPT_FLAG, AT(per_node), CLI_COMPARE | CLI_BENCH, NULL,
      "compare every value that both runs compute", 0, 0, 0 },
    { "reduce", 0, OPT_TEXT, AT(reduce), CLI_COMPARE, "FILE",
      "write the smallest part of the model that differs, and its inputs as npz", 0, 0,
      0 },
    { "print", 0, OPT_TEXT, AT(print), CLI_RUN, "HOW",
      "how to show the outputs (default: summary)", 0, 0, "full|summary|none" },
    { "ref", 0, OPT_TEXT, AT(ref), CLI_CHECK, "PATH",
      "expected outputs of a model file: f.npz, f.npy, f.pb, or a folder of them", 0, 0,
      0 },
    { "rtol", 0, OPT_REAL, AT(rtol), CLI_CHECK | CLI_COMPARE, "X",
      "relative tolerance (default: 1e-3, or tol.txt)", 0, 0, 0 },
    { "atol", 0, OPT_REAL, AT(atol), CLI_CHECK | CLI_COMPARE, "X",
      "absolute tolerance (default: 1e-5, or tol.txt)", 0, 0, 0 },
    { "filter", 0, OPT_TEXT, AT(filter), CLI_CHECK, "GLOB",
      "only folders whose names match", 0, 0, 0 },
    { "list-passed", 0, OPT_FLAG, AT(list_passed), CLI_CHECK, NULL,
      "also list the folders that pass", 0, 0, 0 },
    { "isolate", 0, OPT_FLAG, AT(isolate), CLI_CHECK, NULL,
      "run each folder in its own process", 0, 0, 0 },
    { "svg", 0, OPT_TEXT, AT(svg), CLI_PLAN | CLI_BENCH, "FILE",
      "draw the arena: offsets over steps", 0, 0, 0 },
    { "workers", 0, OPT_INT, AT(workers), CLI_PLAN, "N",
      "show the memory of N processes on one machine", 1, 1000000, 0 },
    { "memory", 0, OPT_BYTES, AT(memory), CLI_PLAN, "SIZE",
      "show how many processes fit into SIZE, such as 64G (exit code 6 if --workers do "
      "not)",
      1, INT64_MAX, 0 },
    { "process", 0, OPT_BYTES, AT(process), CLI_PLAN, "SIZE",
      "memory of a process besides the model (default: 16M; Python needs about 400M)", 1,
      INT64_MAX, 0 },
    { "coverage", 0, OPT_FLAG, AT(coverage), CLI_INSPECT, NULL,
      "show which nodes are native, run by a function body, or missing", 0, 0, 0 },
    { "layers", 0, OPT_FLAG, AT(layers), CLI_INSPECT, NULL, "list every node, in order",
      0, 0, 0 },
    { "weights", 0, OPT_FLAG, AT(weights), CLI_INSPECT, NULL, "list every weight", 0, 0,
      0 },
    { "domain", 0, OPT_TEXT, AT(domain), CLI_OPS, "NAME",
      "list only operators of this domain", 0, 0, "@domains" },
    { "used", 0, OPT_FLAG, AT(used), CLI_OPS, NULL,
      "list the operators that these models need, for CMake's -DATTNRUN_OPS=FILE", 0, 0,
      0 },
    { "bench", 0, OPT_FLAG, AT(bench), CLI_DOCTOR, NULL,
      "measure fp32 peak, read bandwidth and fork/join time (2 s)", 0, 0, 0 },
    { "repeat", 'n', OPT_INT, AT(repeat), CLI_RUN | CLI_BENCH, "N",
      "number of timed runs (default: at most 5, for at most 1 s)", 1, 1000000000, 0 },
    { "time", 0, OPT_TIME, AT(time_us), CLI_BENCH, "TIME",
      "duration of the timed runs, such as 10s", 1, INT64_MAX, 0 },
    { "warmup", 0, OPT_INT, AT(warmup), CLI_BENCH, "N",
      "untimed runs between the first and the timed ones (default: 0)", 0, 1000000000,
      0 },
    { "concurrency", 0, OPT_INT, AT(concurrency), CLI_BENCH, "N",
      "number of contexts that run at once, each in a thread (default: 1)", 1, 1024, 0 },
    { "against", 0, OPT_TEXT, AT(against), CLI_BENCH, "ATTNRUN",
      "another attnrun program, which runs alternately with this one (exit code 1 if "
      "this one is slower); or a .json file of bench --json, which gives ratios but no "
      "verdict",
      0, 0, 0 },
    { "threads", 't', OPT_INT, AT(threads),
      RUNS | CLI_PLAN | CLI_INSPECT | CLI_DOCTOR | CLI_PACK | CLI_COMPILE | CLI_REPORT,
      "N", "number of threads (default: the CPUs of this process)", 1, 1024, 0 },
    { "seed", 0, OPT_INT, AT(seed), MAKES_INPUTS, "N",
      "random seed of made-up inputs (default: 0)", 0, INT64_MAX, 0 },
    { "max-memory", 'm', OPT_BYTES, AT(max_memory), OPENS | CLI_DOCTOR, "SIZE",
      "memory budget: 512M or 512MiB, 2G, 2GB (default: half the RAM, at most 8G)", 1,
      INT64_MAX, 0 },
    { "timeout", 0, OPT_TIME, AT(timeout_us), OPENS, "TIME",
      "time limit for loading and for each plan or run, such as 500ms, 3s or 2m", 1,
      INT64_MAX, 0 },
    { "limit", 0, OPT_LIMIT, AT(limits), OPENS, "NAME=N",
      "change a limit on what a file may ask for: nodes=1000, made_bytes=4294967296 (see "
      "the manual)",
      0, 0, "@limits" },
    { "isa", 0, OPT_TEXT, AT(isa), USES_MODEL | CLI_DOCTOR | CLI_REPORT, "NAME",
      "instruction set, at most the best one of this CPU (see doctor)", 0, 0, "@isas" },
    { "precision", 0, OPT_TEXT, AT(precision), USES_MODEL | CLI_REPORT, "HOW",
      "precision of products; auto is bf16 if the CPU supports it (default: f32)", 0, 0,
      "f32|bf16|auto" },
    { "ragged", 0, OPT_TEXT, AT(ragged), RUNS | CLI_PLAN | CLI_INSPECT | CLI_OPS, "HOW",
      "run masked batches without their padding; on writes 0 into padding rows, auto "
      "applies only if nothing reads these rows (default: off)",
      0, 0, "off|on|auto" },
    { "no-fusion", 0, OPT_FLAG, AT(no_fusion), USES_MODEL | CLI_REPORT, NULL,
      "do not apply rewrite passes that change the arithmetic", 0, 0, 0 },
    { "disable-pass", 0, OPT_LIST, AT(disable_passes), OPENS, "NAME",
      "skip a rewrite pass (see inspect)", 0, 0, "@passes" },
    { "force-bodies", 0, OPT_FLAG, AT(force_bodies), OPENS, NULL,
      "run function bodies even if a native operator exists", 0, 0, 0 },
    { "allow-newer", 0, OPT_FLAG, AT(allow_newer), OPENS, NULL,
      "accept an IR version or opset that is newer than the known ones", 0, 0, 0 },
    { "copy-weights", 0, OPT_FLAG, AT(copy_weights), OPENS, NULL,
      "read the weights instead of mapping the file", 0, 0, 0 },
    { "in-place", 0, OPT_FLAG, AT(in_place), CLI_RUN | CLI_BENCH | CLI_PLAN, NULL,
      "read matrices where the file has them: an earlier first result, less memory, "
      "slower runs (run does this by itself if it runs once)",
      0, 0, 0 },
    { "verify", 0, OPT_FLAG, AT(verify), USES_MODEL & ~(CLI_PACK | CLI_COMPILE), NULL,
      "read the whole packed file and compare its hash", 0, 0, 0 },
    { "plugin", 0, OPT_LIST, AT(plugins), OPENS | CLI_OPS, "FILE",
      "load operators from a shared library", 0, 0, 0 },
    { "validate", 0, OPT_FLAG, AT(validate), RUNS, NULL,
      "fail if an output is not finite (exit code 8)", 0, 0, 0 },
    { "profile", 0, OPT_FLAG, AT(profile), CLI_RUN, NULL,
      "show the time of each operator", 0, 0, 0 },
    { "trace", 0, OPT_TEXT, AT(trace), CLI_RUN, "FILE",
      "write the steps and threads of a run as a JSON trace for ui.perfetto.dev", 0, 0,
      0 },
    { "json", 0, OPT_FLAG, AT(json),
      (OPENS & ~(CLI_COMPILE | CLI_REPORT)) | CLI_OPS | CLI_DOCTOR | CLI_VERSION, NULL,
      "write one JSON object to standard output", 0, 0, 0 },
    { "config", 'c', OPT_TEXT, AT(config), ANY & ~(CLI_HELP | CLI_VERSION | CLI_CONVERT),
      "FILE", "read options from a YAML file, whose keys are these names", 0, 0, 0 },
    { "form", 0, OPT_TEXT, AT(form), CLI_HELP, "FORM",
      "write a man page, a shell completion, or names for one", 0, 0,
      "man|bash|zsh|fish|commands|isas|operators|passes|limits|domains|sides" },
    { "verbose", 'v', OPT_COUNT, AT(verbose), ANY, NULL,
      "show more messages (-vv: even more)", 0, 0, 0 },
    { "quiet", 'q', OPT_FLAG, AT(quiet), ANY, NULL, "show no progress and no summary", 0,
      0, 0 },
    { "help", 'h', OPT_FLAG, AT(help), ANY, NULL, "show this help", 0, 0, 0 },
    { 0 }
};

attnrun_status list_add(struct list *list, const char *text)
{
    if (list->n == list->capacity) {
        int64_t capacity = list->capacity * 2 + 8;
        const char **v = realloc(list->v, (size_t)capacity * sizeof *v);
        if (v == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for a list");
        list->v = v;
        list->capacity = capacity;
    }
    list->v[list->n++] = text;
    return ATTNRUN_OK;
}

const char *cli_keep(struct cli *cli, const char *text, size_t n)
{
    char *copy = strndup(text, n);
    if (copy != NULL && list_add(&cli->owned, copy) != ATTNRUN_OK) {
        free(copy);
        return NULL;
    }
    return copy;
}

void cli_free(struct cli *cli)
{
    struct list *lists[] = { &cli->paths,          &cli->inputs,  &cli->sets,
                             &cli->shapes,         &cli->states,  &cli->plugins,
                             &cli->disable_passes, &cli->outputs, &cli->fixed };
    attnrun_runtime_destroy(cli->runtime);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->v);
    for (int64_t i = 0; i < cli->owned.n; i++)
        free((char *)(uintptr_t)cli->owned.v[i]);
    free(cli->owned.v);
    free(cli->words.v);
    memset(cli, 0, sizeof *cli);
}

const struct cli_option *cli_find_option(const char *name)
{
    for (const struct cli_option *o = cli_options; o->name != NULL; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

const struct cli_command *cli_find_command(const char *name)
{
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

const char *cli_shown_choices(const struct cli_option *option)
{
    return option->choices != NULL && option->choices[0] != '@' ? option->choices : NULL;
}

/* One of "a|b|c"? */
static bool is_choice(const char *choices, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, word, n) == 0 && (at[n] == '|' || at[n] == 0) && n > 0)
            return true;
    }
    return false;
}

/* A usage fault: with the word CONFIG where it stands in a file. */
static attnrun_status refuse_option(bool config, const char *where, const char *value,
                                    const char *expected)
{
    if (config)
        return tool_fail_config("%s: '%s' is not %s", where, tool_quote(value), expected);
    return tool_fail(ATTNRUN_E_USAGE, "%s: '%s' is not %s", where, tool_quote(value),
                     expected);
}

/* The factor of a unit, 0 where the text is none of this kind. */
static double unit_factor(enum cli_option_kind kind, const char *unit)
{
    static const struct {
        const char *text;
        enum cli_option_kind kind;
        double factor;
    } units[] = { { "", OPT_BYTES, 1 },         { "k", OPT_BYTES, 1024 },
                  { "m", OPT_BYTES, 0x1p20 },   { "g", OPT_BYTES, 0x1p30 },
                  { "t", OPT_BYTES, 0x1p40 },   { "kib", OPT_BYTES, 1024 },
                  { "mib", OPT_BYTES, 0x1p20 }, { "gib", OPT_BYTES, 0x1p30 },
                  { "tib", OPT_BYTES, 0x1p40 }, { "b", OPT_BYTES, 1 },
                  { "kb", OPT_BYTES, 1e3 },     { "mb", OPT_BYTES, 1e6 },
                  { "gb", OPT_BYTES, 1e9 },     { "tb", OPT_BYTES, 1e12 },
                  { "", OPT_TIME, 1e6 },        { "s", OPT_TIME, 1e6 },
                  { "us", OPT_TIME, 1 },        { "ms", OPT_TIME, 1e3 },
                  { "m", OPT_TIME, 60e6 },      { "min", OPT_TIME, 60e6 } };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (units[i].kind == kind && strcasecmp(units[i].text, unit) == 0)
            return units[i].factor;
    return 0;
}

static attnrun_status set_number(struct cli *cli, const struct cli_option *o,
                                 const char *value, const char *where, bool config)
{
    char *end = NULL, expected[96];
    int64_t number = 0;
    bool good;
    errno = 0;
    if (o->kind == OPT_INT) {
        number = strtoll(value, &end, 10);
        snprintf(expected, sizeof expected, "a whole number from %lld to %lld",
                 (long long)o->low, (long long)o->high);
        good = end != value && *end == 0 && errno == 0;
    } else {
        double real = strtod(value, &end);
        double factor = end == value ? 0 : unit_factor(o->kind, end);
        snprintf(expected, sizeof expected, "%s",
                 o->kind == OPT_BYTES ? "a size such as 512M (MiB), 2GiB or 2GB"
                                      : "a time such as 500ms, 3s or 2m");
        good = factor > 0 && isfinite(real) && real * factor >= 1 && real * factor < 9e18;
        number = good ? (int64_t)(real * factor) : 0;
    }
    if (!good || number < o->low || number > o->high)
        return refuse_option(config, where, value, expected);
    memcpy((char *)cli + o->offset, &number, sizeof number);
    return ATTNRUN_OK;
}

static attnrun_status set_flag(int32_t *flag, const struct cli_option *o,
                               const char *value, const char *where, bool config)
{
    if (value == NULL || is_choice("true|yes|on", value))
        *flag = o->kind == OPT_COUNT ? *flag + 1 : 1;
    else if (is_choice("false|no|off", value))
        *flag = 0;
    else
        return refuse_option(config, where, value, "true or false");
    return ATTNRUN_OK;
}

static attnrun_status set_real(double *real, const char *value, const char *where,
                               bool config)
{
    char *end = NULL;
    double number = strtod(value, &end);
    if (end == value || *end != 0 || !(number >= 0) || !isfinite(number))
        return refuse_option(config, where, value, "a number of 0 or more");
    *real = number;
    return ATTNRUN_OK;
}

attnrun_status cli_set_option(struct cli *cli, const struct cli_option *o,
                              const char *value, const char *where, bool config)
{
    char *member = (char *)cli + o->offset, expected[96];
    const char *choices = cli_shown_choices(o);
    switch (o->kind) {
    case OPT_FLAG:
    case OPT_COUNT:
        return set_flag((int32_t *)(void *)member, o, value, where, config);
    case OPT_INT:
    case OPT_BYTES:
    case OPT_TIME:
        return set_number(cli, o, value, where, config);
    case OPT_REAL:
        return set_real((double *)(void *)member, value, where, config);
    case OPT_LIMIT:
        return cli_set_limit(cli, value, where, config);
    case OPT_LIST:
        return list_add((struct list *)(void *)member, value);
    case OPT_TEXT:
        snprintf(expected, sizeof expected, "one of %s", choices != NULL ? choices : "");
        if (choices != NULL && !is_choice(choices, value))
            return refuse_option(config, where, value, expected);
        if (value[0] == 0)
            return refuse_option(config, where, value, "a name");
        TRY(cli_join_names(cli, o, &value));
        memcpy(member, &value, sizeof value);
        return ATTNRUN_OK;
    }
    return ATTNRUN_OK;
}

static attnrun_status unknown_option(const struct cli *cli, const char *name)
{
    const char *names[64];
    int64_t n = 0;
    const char *command = cli->command == NULL ? "run" : cli->command->name;
    const struct cli_option *known = cli_find_option(name);
    if (known != NULL)
        return tool_fail(ATTNRUN_E_USAGE, "'attnrun %s' takes no --%s", command, name);
    for (const struct cli_option *o = cli_options; o->name != NULL && n < 64; o++)
        if (o->commands & cli->command->bit)
            names[n++] = o->name;
    const char *near = attnrun_nearest_word(name, names, n);
    if (near != NULL)
        return tool_fail(ATTNRUN_E_USAGE, "unknown option '--%s' (did you mean '--%s'?)",
                         tool_quote(name), near);
    tool_fail(ATTNRUN_E_USAGE, "unknown option '--%s'", tool_quote(name));
    tool_hint("attnrun help %s", command);
    return ATTNRUN_E_USAGE;
}

/* "--name", "--name=value", "--name value"; *at moves over a value that follows. */
static attnrun_status parse_long(struct cli *cli, int argc, char **argv, int *at)
{
    const char *text = argv[*at] + 2, *equals = strchr(text, '='), *value = NULL;
    char name[64], where[80];
    size_t n = equals == NULL ? strlen(text) : (size_t)(equals - text);
    snprintf(name, sizeof name, "%.*s", n > 60 ? 60 : (int)n, text);
    snprintf(where, sizeof where, "--%s", name);
    const struct cli_option *o = cli_find_option(name);
    if (o == NULL || (o->commands & cli->command->bit) == 0)
        return unknown_option(cli, name);
    bool flag = o->kind == OPT_FLAG || o->kind == OPT_COUNT;
    if (equals != NULL)
        value = equals + 1;
    else if (!flag && *at + 1 < argc)
        value = argv[++*at];
    if (!flag && value == NULL)
        return tool_fail(ATTNRUN_E_USAGE, "--%s needs a value (%s)", name,
                         cli_option_for(o, cli->command->bit).value);
    return cli_set_option(cli, o, value, where, false);
}

/* "-v", "-n5", "-n 5", "-vq". */
static attnrun_status parse_short(struct cli *cli, int argc, char **argv, int *at)
{
    for (const char *c = argv[*at] + 1; *c != 0; c++) {
        const struct cli_option *o = cli_options;
        char where[4] = { '-', *c, 0, 0 };
        while (o->name != NULL && o->letter != *c)
            o++;
        if (o->name == NULL || (o->commands & cli->command->bit) == 0)
            return tool_fail(ATTNRUN_E_USAGE, "'attnrun %s' takes no option '%s'",
                             cli->command->name, tool_quote(where));
        if (o->kind == OPT_FLAG || o->kind == OPT_COUNT) {
            TRY(cli_set_option(cli, o, NULL, where, false));
            continue;
        }
        const char *value = c[1] != 0 ? c + 1 : *at + 1 < argc ? argv[++*at] : NULL;
        if (value == NULL)
            return tool_fail(ATTNRUN_E_USAGE, "%s needs a value (%s)", where,
                             cli_option_for(o, cli->command->bit).value);
        return cli_set_option(cli, o, value, where, false);
    }
    return ATTNRUN_OK;
}

const struct cli_option *cli_option_of(const char *argument, bool *takes_next)
{
    const struct cli_option *o = NULL;
    char name[32];
    *takes_next = false;
    if (strncmp(argument, "--", 2) == 0) {
        const char *equals = strchr(argument, '=');
        const size_t n =
            equals != NULL ? (size_t)(equals - argument) - 2 : strlen(argument) - 2;
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : 0), argument + 2);
        o = cli_find_option(name);
        *takes_next =
            equals == NULL && o != NULL && o->kind != OPT_FLAG && o->kind != OPT_COUNT;
        return o;
    }
    for (const char *c = argument + 1; argument[0] == '-' && *c != 0; c++) {
        for (o = cli_options; o->name != NULL && o->letter != *c; o++)
            ;
        if (o->name == NULL)
            return NULL;
        if (o->kind == OPT_FLAG || o->kind == OPT_COUNT)
            continue;
        *takes_next = c[1] == 0;
        return o;
    }
    return o;
}

/* The index of the first argument that is neither an option nor the value of one. */
static int first_word(int argc, char **argv)
{
    int i = 1;
    for (; i < argc; i++) {
        if (argv[i][0] != '-' || argv[i][1] == 0)
            break;
        if (strcmp(argv[i], "--") == 0)
            return argc;
        bool next;
        cli_option_of(argv[i], &next);
        i += next;
    }
    return i < argc ? i : argc;
}

void cli_suggest_command(const char *word)
{
    const char *names[32];
    int64_t n = 0;
    for (const struct cli_command *c = cli_commands; c->name != NULL && n < 32; c++)
        names[n++] = c->name;
    tool_suggest(word, names, n);
    tool_hint("attnrun help lists the commands");
}

static attnrun_status unknown_word(const char *word)
{
    tool_fail(ATTNRUN_E_USAGE, "'%s' is neither a command nor a file", tool_quote(word));
    cli_suggest_command(word);
    return ATTNRUN_E_USAGE;
}

/* The first word chooses the command, at argv[*word]; a file means `run`, and *word is argc
 * then. */
static attnrun_status find_command(struct cli *cli, int argc, char **argv, int *word)
{
    const char *first = argc < 2 ? "help" : argv[1];
    *word = first_word(argc, argv);
    if (strcmp(first, "--version") == 0) {
        *word = 1;
        cli->command = cli_find_command("version");
    } else if (*word < argc)
        cli->command = cli_find_command(argv[*word]);
    else if (argc < 2 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        cli->command = cli_find_command("help");
    if (cli->command != NULL)
        return ATTNRUN_OK;
    const char *path = *word < argc ? argv[*word] : "./";
    *word = argc;
    cli->command = cli_find_command("run");
    if (file_exists(path) || strpbrk(path, "/.") != NULL || strcmp(path, "-") == 0)
        return ATTNRUN_OK;
    return unknown_word(path);
}

static attnrun_status check_paths(const struct cli *cli)
{
    const struct cli_command *c = cli->command;
    if (cli->paths.n < c->min_paths)
        return tool_fail(ATTNRUN_E_USAGE, "an argument is missing: attnrun %s %s",
                         c->name, c->arguments);
    if (c->max_paths >= 0 && cli->paths.n > c->max_paths) {
        tool_fail(ATTNRUN_E_USAGE, "unexpected argument '%s'",
                  tool_quote(cli->paths.v[c->max_paths]));
        tool_hint("usage: attnrun %s %s", c->name, c->arguments);
        return ATTNRUN_E_USAGE;
    }
    return ATTNRUN_OK;
}

/* What the command line gives twice wins over the file: that is read first. An argument may be
 * "--config=FILE", "-cFILE" or "-qcFILE", or FILE follows it. */
static attnrun_status read_config_first(struct cli *cli, int argc, char **argv)
{
    const struct cli_option *o = cli_find_option("config");
    const char *path = NULL;
    bool next;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i += 1 + next) {
        const bool config = cli_option_of(argv[i], &next) == o;
        if (config && next && i + 1 < argc)
            path = argv[i + 1];
        else if (config && !next)
            path = strchr(argv[i], argv[i][1] == '-' ? '=' : o->letter) + 1;
    }
    if (path == NULL || (o->commands & cli->command->bit) == 0)
        return ATTNRUN_OK;
    return cli_read_config(cli, path);
}

/* Errors are JSON from the first one on. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

/* Whether a process with the options of this one gets the argument: what a configuration file says
 * is among the words already, and --against is about this process. */
static bool is_for_others(const char *argument)
{
    bool takes_next;
    const struct cli_option *o = cli_option_of(argument, &takes_next);
    return o == NULL ||
           (strcmp(o->name, "config") != 0 && strcmp(o->name, "against") != 0);
}

attnrun_status cli_parse(struct cli *cli, int argc, char **argv)
{
    int word;
    bool only_paths = false;
    cli->rtol = cli->atol = -1;
    cli->json = wants_json(argc, argv);
    TRY(find_command(cli, argc, argv, &word));
    bool own = cli->command->bit == CLI_CONVERT; /* its options are its own */
    if (!own)
        TRY(read_config_first(cli, argc, argv));
    for (int i = 1; i < argc; i++) {
        if (i == word)
            continue;
        int at = i;
        if (own)
            TRY(list_add(&cli->paths, argv[i]));
        else if (!only_paths && strcmp(argv[i], "--") == 0)
            only_paths = true;
        else if (!only_paths && strncmp(argv[i], "--", 2) == 0)
            TRY(parse_long(cli, argc, argv, &i));
        else if (!only_paths && argv[i][0] == '-' && argv[i][1] != 0)
            TRY(parse_short(cli, argc, argv, &i));
        else
            TRY(list_add(&cli->paths, argv[i]));
        const bool kept = (cli->command->bit & CLI_KEEPS_WORDS) != 0 &&
                          (only_paths || is_for_others(argv[at]));
        for (; kept && at <= i; at++)
            TRY(list_add(&cli->words, argv[at]));
    }
    return cli->help ? ATTNRUN_OK : check_paths(cli);
}
