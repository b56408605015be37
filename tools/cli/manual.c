/* manual.c - man pages, made from the tables of commands and options.
 *
 * Out, on standard output: a page in the man macros of troff for attnrun(1) or a command (attnrun
 * help --form man); the other forms of --form are those of completion.c. */
#include <ctype.h>
#include <string.h>

#include "cli.h"

/* The day of the version, for the man pages; it changes with ATTNRUN_VERSION. */
#define VERSION_DATE "2026-11-27"

/* ---- man pages ---- */

/* Text for troff: backslashes and hyphens escaped, no line that begins as a request. */
static void put_roff(const char *text)
{
    bool first = true;
    for (const char *c = text; *c != 0; c++) {
        if (first && (*c == '.' || *c == '\''))
            fputs("\\&", stdout);
        if (*c == '\\')
            fputs("\\e", stdout);
        else if (*c == '-')
            fputs("\\-", stdout);
        else
            putchar(*c);
        first = *c == '\n';
    }
}

/* A paragraph, in lines of at most 80 columns; troff fills them again. */
static void put_paragraph(const char *text)
{
    char line[80];
    size_t n = 0, used = 0; /* in `line`, and with the escapes of put_roff() */
    while (*text != 0) {
        const size_t word = strcspn(text, " \n");
        size_t width = word + 1;
        for (size_t i = 0; i < word; i++)
            width += text[i] == '-' || text[i] == '\\';
        if (n > 0 && (used + width > 78 || n + word + 2 > sizeof line)) {
            line[n] = 0;
            put_roff(line);
            putchar('\n');
            n = used = 0;
        }
        if (n > 0)
            line[n++] = ' ';
        const size_t taken = word < sizeof line - n ? word : sizeof line - n - 1;
        memcpy(line + n, text, taken);
        n += taken;
        used += width;
        text += taken == word ? word + strspn(text + word, " \n") : taken;
    }
    line[n] = 0;
    put_roff(line);
}

/* A sentence: the tables have its first letter small, for lists. */
static void put_sentence(const char *text)
{
    putchar(toupper((unsigned char)text[0]));
    put_paragraph(text + 1);
}

/* "a|b|c" as "a, b, c", where a line may end. */
static void put_choices(const char *choices)
{
    char text[160];
    size_t n = 0;
    for (; *choices != 0 && n + 3 < sizeof text; choices++) {
        text[n++] = *choices == '|' ? ',' : *choices;
        if (*choices == '|')
            text[n++] = ' ';
    }
    text[n] = 0;
    put_paragraph(text);
}

static void man_option(const struct cli_option *o)
{
    fputs(".TP\n", stdout);
    if (o->letter != 0)
        printf("\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", stdout);
    put_roff(o->name);
    fputs("\\fR", stdout);
    if (o->value != NULL)
        printf(" \\fI%s\\fR", o->value);
    putchar('\n');
    put_sentence(o->help);
    const char *choices = cli_shown_choices(o);
    if (choices != NULL) {
        fputs(":\n", stdout);
        put_choices(choices);
    }
    fputs(".\n", stdout);
}

static void man_exit_codes(void)
{
    fputs(".SH EXIT STATUS\n", stdout);
    for (const struct cli_exit_code *e = cli_exit_codes; e->text != NULL; e++)
        printf(".TP\n.B %s\n%s.\n", e->code, e->text);
}

static void man_examples(const struct cli_command *command)
{
    const char *title = ".SH EXAMPLES\n";
    for (const struct cli_example *e = cli_examples; e->line != NULL; e++)
        if (e->command == command->bit) {
            printf("%s.TP\n\\fB", title);
            put_roff(e->line);
            fputs("\\fR\n", stdout);
            put_paragraph(e->what);
            putchar('\n');
            title = "";
        }
}

static void man_header(const char *name, const char *summary)
{
    fputs(".TH \"", stdout);
    for (const char *c = name; *c != 0; c++) /* as is the custom */
        putchar(toupper((unsigned char)*c));
    printf("\" 1 \"" VERSION_DATE "\" \"attnrun %s\" \"attnrun\"\n.SH NAME\n",
           attnrun_version());
    put_roff(name);
    fputs(" \\- ", stdout);
    put_roff(summary);
    putchar('\n');
}

static void man_command(const struct cli_command *command)
{
    char name[64];
    snprintf(name, sizeof name, "attnrun-%s", command->name);
    man_header(name, command->summary);
    printf(".SH SYNOPSIS\n.B attnrun %s\n", command->name);
    put_roff(command->arguments);
    fputs("\n.SH DESCRIPTION\n", stdout);
    put_sentence(command->text != NULL ? command->text : command->summary);
    fputs(command->text != NULL ? "\n" : ".\n", stdout);
    fputs(".SH OPTIONS\n", stdout);
    for (const struct cli_option *o = cli_options; o->name != NULL; o++)
        if (o->commands & command->bit) {
            const struct cli_option shown = cli_option_for(o, command->bit);
            man_option(&shown);
        }
    man_examples(command);
    man_exit_codes();
    fputs(".SH SEE ALSO\n.BR attnrun (1)\n", stdout);
}

static void man_overview(void)
{
    man_header("attnrun", "run ONNX models on CPUs");
    fputs(".SH SYNOPSIS\n.B attnrun\n.I model.onnx\n.br\n.B attnrun\n"
          "[\\fIoptions\\fR] \\fIcommand\\fR [\\fIoptions\\fR] [\\fIpaths\\fR]\n"
          ".SH DESCRIPTION\n"
          "attnrun loads an ONNX model, plans its memory exactly, and runs it.\n"
          "With a model file and no command it makes up inputs, runs the model,\n"
          "and shows what it is.\n"
          ".SH COMMANDS\n",
          stdout);
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        printf(".TP\n.B %s\n", c->name);
        put_roff(c->summary);
        printf(":\nsee \\fB\\%%attnrun\\-%s\\fR(1).\n", c->name);
    }
    fputs(".SH ENVIRONMENT\n", stdout);
    for (const struct cli_variable *v = cli_variables; v->name != NULL; v++)
        printf(".TP\n.B %s\n%s.\n", v->name, v->text);
    man_exit_codes();
    fputs(".SH SEE ALSO\n", stdout);
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        printf(".BR \\%%attnrun\\-%s (1)%s\n", c->name, c[1].name != NULL ? "," : "");
}

attnrun_status manual_print(struct cli *cli, const struct cli_command *command)
{
    const char *form = cli->form;
    if (strcmp(form, "man") != 0)
        return completion_print(cli, form);
    if (command != NULL)
        man_command(command);
    else
        man_overview();
    return ATTNRUN_OK;
}
