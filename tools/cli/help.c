/* help.c - the help pages, made from the tables of commands and options; and the version.
 */
#include <inttypes.h>

#include "cli.h"
#include "screen.h"

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
    screen_line(title, 29, "%s%s%s", o->help, o->choices != NULL ? ": " : "",
                o->choices != NULL ? o->choices : "");
}

static void print_command(const struct cli_command *c)
{
    printf("attnrun %s %s\n\n%s.\n", c->name, c->arguments, c->summary);
    if (c->text != NULL)
        screen_text("", 0, c->text);
    printf("\n");
    for (const struct cli_option *o = cli_options; o->name != NULL; o++)
        if (o->commands & c->bit)
            print_option(o);
}

static void print_overview(void)
{
    printf("attnrun runs ONNX models on CPUs.\n\n"
           "  attnrun model.onnx            load it, make up inputs, run, show\n"
           "  attnrun <command> [options] [paths]\n\n");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        printf("  %-9s %s\n", c->name, c->summary);
    printf("\nattnrun help <command> lists its options.\n"
           "Exit codes: 0 ok, 1 comparison failed, 2 usage, 3 file, 4 not supported,\n"
           "5 inputs or shapes do not fit, 6 memory, 7 value at run time, 8 not finite,\n"
           "70 internal, 124 time, 130/143 interrupted.\n");
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
    cli_print_help(command);
    *exit_code = 0;
    return ATTNRUN_OK;
}

attnrun_status command_version(struct cli *cli, int *exit_code)
{
    (void)cli;
    printf("attnrun %s (ABI %" PRId32 ")\n", attnrun_version(), attnrun_abi_version());
    *exit_code = 0;
    return ATTNRUN_OK;
}
