/* option_texts.c - what an option is to a command, where it is not the same to all of them.
 *
 * In: a row of the table of options, and a command. Out: the row with the placeholder of its value
 * and the sentence that this command's help, man page and completion show. */
#include <string.h>

#include "cli.h"

struct option_text {
    const char *option;
    uint32_t commands;
    const char *value, *help;
};

static const struct option_text option_texts[] = {
    { "input", CLI_REPORT, "NAME=WHAT",
      "value of an input: x=f.npy, x=f.npz[:key], x=f.pb, x=[[1,2]], x={\"a\": 1}, "
      "x=ones|zeros, or f.npz by its keys" },
    { "inputs", CLI_EXTRACT, "A,B", "the values that become the inputs of the part" },
    { "set", CLI_BENCH, "SYMBOL=N",
      "bind a symbolic dimension: S=128; S=128,256 gives one row for each size" },
    { "set", CLI_REPORT, "SYMBOL=N",
      "bind a symbolic dimension: S=128; with S=64,128,256 the curves show all sizes and "
      "the other sections the last one" },
    { "set", CLI_OPTIMIZE | CLI_EXTRACT, "SYMBOL=N",
      "make a symbolic dimension a constant of the new model: --set S=128" },
    { "fix", CLI_OPTIMIZE | CLI_EXTRACT, "SYMBOL=N", "the same as --set" },
    { "output", CLI_PACK, "FILE", "the packed file" },
    { "output", CLI_COMPILE, "FILE",
      "the C file; NAME.c defines the attnrun_source model_NAME, or one such source for "
      "each model" },
    { "output", CLI_OPTIMIZE | CLI_EXTRACT, "FILE", "the new model" },
    { "output", CLI_REPORT, "FILE", "the HTML page" },
    { "outputs", CLI_COMPARE, "NAME",
      "also compare an inner value, which is then not fused with its readers" },
    { "outputs", CLI_PACK, "NAME",
      "also make an inner value an output, which is then not fused with its readers" },
    { "outputs", CLI_EXTRACT, "A,B", "the values that become the outputs of the part" },
    { "per-node", CLI_BENCH, NULL, "show time, operations and bytes of each node" },
    { "rtol", CLI_COMPARE, "X", "relative tolerance (default: 1e-3)" },
    { "atol", CLI_COMPARE, "X", "absolute tolerance (default: 1e-5)" },
    { "svg", CLI_BENCH, "FILE", "draw time and memory by the sizes of --set S=A,B,C" },
    { "repeat", CLI_BENCH, "N",
      "number of timed runs (default: at most 20, for at most 10 s)" },
    { "threads", CLI_PLAN, "N",
      "number of threads (default: the CPUs that this process may use); if given, the "
      "plan also "
      "shows an upper bound on the speed-up by N, 8, 16 and 64 threads" },
};
enum { N_TEXTS = sizeof option_texts / sizeof *option_texts };

struct cli_option cli_option_for(const struct cli_option *option, uint32_t command)
{
    struct cli_option shown = *option;
    for (int i = 0; i < N_TEXTS; i++) {
        const struct option_text *text = &option_texts[i];
        if (strcmp(text->option, option->name) != 0)
            continue;
        if ((text->commands & command) == 0) {
            shown.commands &= ~text->commands;
            continue;
        }
        shown.commands = text->commands;
        shown.value = text->value;
        shown.help = text->help;
        return shown;
    }
    return shown;
}
