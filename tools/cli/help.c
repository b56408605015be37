/* help.c - the help pages, made from the tables of commands and options; and the version.
 *
 * In: a command, or none. Out: its usage, options and examples on standard output. */
#include <ctype.h>
#include <inttypes.h>

#include "cli.h"
#include "screen.h"

const struct cli_exit_code cli_exit_codes[] = {
    { "0", "success" },
    { "1", "a comparison failed" },
    { "2", "the command line or the configuration is wrong" },
    { "3", "a file cannot be read or written, or is malformed" },
    { "4", "the model is valid, but not supported" },
    { "5", "shapes, element types or attributes do not fit" },
    { "6", "out of memory, or over the memory budget or another limit" },
    { "7", "a value at run time is out of range" },
    { "8", "an output is not finite (with --validate)" },
    { "70", "an internal error of attnrun" },
    { "124", "the time limit has passed" },
    { "130, 143", "interrupted" },
    { NULL, NULL },
};
const struct cli_variable cli_variables[] = {
    { "ATTNRUN_NUM_THREADS", "The number of threads, unless --threads is given" },
    { "OMP_NUM_THREADS", "The number of threads, if neither of these is given" },
    { "ATTNRUN_ISA",
      "The instruction set, at most what the CPU has (see attnrun doctor)" },
    { "ATTNRUN_LOG",
      "What is logged: 0 nothing, 1 warnings, 2 also loading, 3 also plans" },
    { NULL, NULL },
};

static void print_option(const struct cli_option *o)
{
    char left[64], value[40] = "";
    if (o->value != NULL)
        snprintf(value, sizeof value, " %s", o->value);
    if (o->letter != 0)
        snprintf(left, sizeof left, "-%c, --%s%s", o->letter, o->name, value);
    else
        snprintf(left, sizeof left, "    --%s%s", o->name, value);
    char title[80];
    snprintf(title, sizeof title, "  %s", left);
    const char *choices = cli_shown_choices(o);
    screen_line(title, 29, "%s%s%s", o->help, choices != NULL ? ": " : "",
                choices != NULL ? choices : "");
}

static void print_examples(const struct cli_command *c)
{
    const char *title = "\nExamples:\n";
    for (const struct cli_example *e = cli_examples; e->line != NULL; e++)
        if (e->command == c->bit) {
            printf("%s  %s\n", title, e->line);
            screen_text("", 6, e->what);
            title = "";
        }
}

static void print_command(const struct cli_command *c)
{
    printf("usage: attnrun %s%s%s\n\n%c%s.\n", c->name, c->arguments[0] != 0 ? " " : "",
           c->arguments, toupper((unsigned char)c->summary[0]), c->summary + 1);
    if (c->text != NULL)
        screen_text("", 0, c->text);
    printf("\n");
    for (const struct cli_option *o = cli_options; o->name != NULL; o++)
        if (o->commands & c->bit) {
            const struct cli_option shown = cli_option_for(o, c->bit);
            print_option(&shown);
        }
    print_examples(c);
}

static void print_overview(void)
{
    printf("attnrun runs ONNX models on CPUs.\n\n"
           "  attnrun model.onnx            run it with made-up inputs\n"
           "  attnrun <command> [options] [paths]\n\n");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        printf("  %-9s %s\n", c->name, c->summary);
    printf("\nattnrun help <command> lists its options. Exit codes:\n");
    for (const struct cli_exit_code *e = cli_exit_codes; e->text != NULL; e++)
        printf("  %-9s %s\n", e->code, e->text);
}

void cli_print_help(const struct cli_command *command)
{
    if (command == NULL || command->bit == CLI_HELP)
        print_overview();
    else
        print_command(command);
}

attnrun_status command_help(struct cli *cli, int *exit_code)
{
    const struct cli_command *command = NULL;
    if (cli->paths.n > 0) {
        command = cli_find_command(cli->paths.v[0]);
        if (command == NULL) {
            tool_fail(ATTNRUN_E_USAGE, "there is no command '%s'",
                      tool_quote(cli->paths.v[0]));
            cli_suggest_command(cli->paths.v[0]);
            return ATTNRUN_E_USAGE;
        }
    }
    *exit_code = 0;
    if (cli->form != NULL)
        return manual_print(cli, command);
    cli_print_help(command);
    return ATTNRUN_OK;
}

attnrun_status command_version(struct cli *cli, int *exit_code)
{
    printf(
        cli->json
            ? "{\"schema\": \"attnrun/version/1\", \"version\": \"%s\", \"abi\": %" PRId32
              "}\n"
            : "attnrun %s (ABI %" PRId32 ")\n",
        attnrun_version(), attnrun_abi_version());
    *exit_code = 0;
    return ATTNRUN_OK;
}
