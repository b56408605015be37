/* manual.c - man pages and shell completion, made from the tables of commands and options.
 *
 * Out, on standard output: a page in the man macros of troff for attnrun(1) or a command, or
 * the completion of bash, zsh or fish for all of them, or the names of the commands (attnrun
 * help --form). */
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
    put_paragraph(o->help);
    if (o->choices != NULL) {
        fputs(":\n", stdout);
        put_roff(o->choices);
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
    put_paragraph(command->text != NULL ? command->text : command->summary);
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

/* ---- completion ---- */

/* The words that a value may be, with '|' between; NULL where any value may stand. A file may stand
 * in the place of the words of an option without choices. */
static const char *words_of(const struct cli_option *o)
{
    return o->choices != NULL             ? o->choices
           : strcmp(o->name, "with") == 0 ? "no-fusion|bodies|isa=base|precision=bf16|ort"
                                          : NULL;
}

/* The form of help that writes the words that a value may be on this machine, or NULL. */
static const char *form_of(const struct cli_option *o)
{
    return strcmp(o->name, "isa") == 0 ? "isas" : NULL;
}

static void put_words(const struct cli_option *o)
{
    for (const char *c = words_of(o); *c != 0; c++)
        putchar(*c == '|' ? ' ' : *c);
}

static void put_commands(void)
{
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        printf("%s%s", c->name, c[1].name != NULL ? " " : "");
}

static void put_options(uint32_t bit, const char *before, const char *between)
{
    for (const struct cli_option *o = cli_options; o->name != NULL; o++)
        if (o->commands & bit)
            printf("%s--%s%s", before, o->name, between);
}

/* Whether a value may be a file or a folder, for any command that takes the option. */
static bool takes_path(const struct cli_option *o)
{
    static const char *const values[] = { "FILE",      "PATH",    "DIR",
                                          "NAME=WHAT", "ATTNRUN", NULL };
    for (int i = 0; o->value != NULL && values[i] != NULL; i++)
        if (strcmp(o->value, values[i]) == 0)
            return true;
    return false;
}

static bool is_flag(const struct cli_option *o)
{
    return o->kind == OPT_FLAG || o->kind == OPT_COUNT;
}

/* What follows an option that takes a value: its words, files, or nothing. */
static void bash_value(const struct cli_option *o)
{
    printf("    --%s", o->name);
    if (o->letter != 0)
        printf("|-%c", o->letter);
    fputs(")\n        ", stdout);
    if (words_of(o) != NULL) {
        fputs("_attnrun_add -W '", stdout);
        put_words(o);
        fputs("'; ", stdout);
    } else if (form_of(o) != NULL) {
        printf("_attnrun_add -W \"$(\"${COMP_WORDS[0]}\" help --form %s 2>/dev/null)\"; ",
               form_of(o));
    }
    if (takes_path(o) || (words_of(o) != NULL && o->choices == NULL))
        fputs("_attnrun_add -f; ", stdout);
    fputs("return ;;\n", stdout);
}

/* Where the first word that is a command stands does not matter; `--print=s` is three words. */
static const char bash_head[] =
    "# Completion of attnrun for bash.\n"
    "_attnrun_add()\n{\n"
    "    local -a more\n"
    "    mapfile -t more < <(compgen \"$@\" -- \"$word\")\n"
    "    COMPREPLY+=(\"${more[@]}\")\n}\n\n"
    "_attnrun()\n{\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local command= i\n"
    "    COMPREPLY=()\n"
    "    if [[ $before == = && $COMP_CWORD -gt 2 ]]; then\n"
    "        before=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    elif [[ $word == = ]]; then\n"
    "        word=\n"
    "    fi\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in\n        ";

static void bash(void)
{
    fputs(bash_head, stdout);
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        printf("%s%s", c->name, c[1].name != NULL ? "|" : "");
    fputs(")\n            command=${COMP_WORDS[i]}; break ;;\n        esac\n    done\n"
          "    case $before in\n",
          stdout);
    for (const struct cli_option *o = cli_options; o->name != NULL; o++)
        if (!is_flag(o))
            bash_value(o);
    fputs("    esac\n    if [[ $word != -* ]]; then\n"
          "        [[ -n $command && $command != help ]] || _attnrun_add -W '",
          stdout);
    put_commands();
    fputs("'\n"
          "        [[ $command != ops ]] ||\n"
          "            _attnrun_add -W \"$(\"${COMP_WORDS[0]}\" help --form operators "
          "2>/dev/null)\"\n"
          "        [[ $command == help ]] || _attnrun_add -f\n"
          "        return\n    fi\n    case ${command:-run} in\n",
          stdout);
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        printf("    %s) _attnrun_add -W '", c->name);
        put_options(c->bit, "", " ");
        fputs("' ;;\n", stdout);
    }
    fputs("    esac\n}\ncomplete -o filenames -F _attnrun attnrun\n", stdout);
}

/* Text within the single quotes of a shell, and within the brackets of _arguments. */
static void put_quoted(const char *text)
{
    for (const char *c = text; *c != 0; c++) {
        if (*c == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *c) != NULL)
            printf("\\%c", *c);
        else
            putchar(*c);
    }
}

static void zsh_spec(const struct cli_option *o, const char *name, const char *value)
{
    printf("            '*%s%s[", name, is_flag(o) ? "" : value);
    put_quoted(o->help);
    putchar(']');
    if (words_of(o) != NULL) {
        printf(":%s:%s", o->name, o->choices != NULL ? "(" : "{compadd -- ");
        put_words(o);
        fputs(o->choices != NULL ? ")" : "; _files}", stdout);
    } else if (form_of(o) != NULL) {
        printf(":%s:{compadd -- $(_call_program %s attnrun help --form %s)}", o->name,
               form_of(o), form_of(o));
    } else if (!is_flag(o)) {
        printf(":%s:%s", o->value,
               !takes_path(o)               ? ""
               : strchr(o->value, '=') == 0 ? "_files"
                                            : "{compset -P \"*=\"; _files}");
    }
    fputs("' \\\n", stdout);
}

static void zsh_option(const struct cli_option *o)
{
    char name[64];
    snprintf(name, sizeof name, "--%s", o->name);
    zsh_spec(o, name, "=");
    if (o->letter == 0)
        return;
    snprintf(name, sizeof name, "-%c", o->letter);
    zsh_spec(o, name, "+");
}

/* The command is taken out of the words, wherever it stands; without one it is run, and a command
 * may still come where no option waits for its value. */
static void zsh_head(void)
{
    fputs("#compdef attnrun\n# Completion of attnrun for zsh.\n_attnrun() {\n"
          "    local -a commands=(\n",
          stdout);
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        printf("        '%s:", c->name);
        put_quoted(c->summary);
        fputs("'\n", stdout);
    }
    fputs("    )\n    local command= i waits=\n"
          "    for ((i = 2; i < CURRENT; i++)); do\n"
          "        if (( ${commands[(I)${(b)words[i]}:*]} )); then\n"
          "            command=${words[i]}; words[i]=(); ((CURRENT--)); break\n"
          "        fi\n    done\n"
          "    case ${words[CURRENT-1]} in\n    ",
          stdout);
    const char *between = "";
    for (const struct cli_option *o = cli_options; o->name != NULL; o++)
        if (!is_flag(o)) {
            printf("%s--%s", between, o->name);
            between = "|";
            if (o->letter != 0)
                printf("|-%c", o->letter);
        }
    fputs(") waits=1 ;;\n    esac\n"
          "    if [[ -z $command$waits && ${words[CURRENT]} != -* ]]; then\n"
          "        _describe command commands\n        _files\n        return\n"
          "    fi\n    case ${command:-run} in\n",
          stdout);
}

static void zsh(void)
{
    zsh_head();
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        printf("    %s)\n        _arguments \\\n", c->name);
        for (const struct cli_option *o = cli_options; o->name != NULL; o++)
            if (o->commands & c->bit) {
                const struct cli_option shown = cli_option_for(o, c->bit);
                zsh_option(&shown);
            }
        if (c->bit == CLI_HELP) {
            fputs("            '1:command:(", stdout);
            put_commands();
            fputs(")' ;;\n", stdout);
        } else if (c->bit == CLI_OPS) {
            fputs("            '*:operator:{compadd -- $(_call_program operators attnrun "
                  "help --form operators); _files}' ;;\n",
                  stdout);
        } else {
            fputs("            '*:file:_files' ;;\n", stdout);
        }
    }
    fputs("    esac\n}\n_attnrun \"$@\"\n", stdout);
}

static void put_fish(const char *text)
{
    putchar('\'');
    for (const char *c = text; *c != 0; c++)
        printf(*c == '\'' || *c == '\\' ? "\\%c" : "%c", *c);
    putchar('\'');
}

static void fish_option(const struct cli_option *o)
{
    printf("complete -c attnrun -n '__attnrun_is");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        if (o->commands & c->bit)
            printf(" %s", c->name);
    const bool words = o->choices != NULL || form_of(o) != NULL;
    const bool files = takes_path(o) || (words_of(o) != NULL && o->choices == NULL);
    printf("' -l %s%s", o->name, is_flag(o) ? "" : words || !files ? " -x" : " -r");
    if (o->letter != 0)
        printf(" -s %c", o->letter);
    if (words_of(o) != NULL) {
        fputs(" -a '", stdout);
        put_words(o);
        putchar('\'');
    } else if (form_of(o) != NULL) {
        printf(" -a '(attnrun help --form %s)'", form_of(o));
    }
    fputs(" -d ", stdout);
    put_fish(o->help);
    putchar('\n');
}

static void fish(void)
{
    fputs("# Completion of attnrun for fish.\n"
          "function __attnrun_command\n"
          "    for word in (commandline -opc)[2..]\n"
          "        if contains -- $word ",
          stdout);
    put_commands();
    fputs("\n            echo $word\n            return\n        end\n    end\n"
          "    echo run\nend\n"
          "function __attnrun_is\n    contains -- (__attnrun_command) $argv\nend\n",
          stdout);
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        printf("complete -c attnrun -n __fish_use_subcommand -a %s -d ", c->name);
        put_fish(c->summary);
        putchar('\n');
    }
    fputs("complete -c attnrun -n '__fish_seen_subcommand_from help' -f -a '", stdout);
    put_commands();
    fputs("'\ncomplete -c attnrun -n '__fish_seen_subcommand_from ops' "
          "-a '(attnrun help --form operators)'\n",
          stdout);
    /* A line for the commands that share a text. */
    for (const struct cli_option *o = cli_options; o->name != NULL; o++)
        for (uint32_t left = o->commands; left != 0;) {
            const struct cli_option shown = cli_option_for(o, left & -left);
            fish_option(&shown);
            left &= ~shown.commands;
        }
}

/* A line for each instruction set of this CPU. */
static attnrun_status print_isas(struct cli *cli)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    TRY(cli_open_runtime(cli));
    TRY_LIB(attnrun_runtime_query(cli->runtime, &info));
    for (const char *c = info.isas; *c != 0; c++)
        putchar(*c == ' ' ? '\n' : *c);
    putchar('\n');
    return ATTNRUN_OK;
}

/* A line for each operator; those of one name follow each other. */
static attnrun_status print_operators(struct cli *cli)
{
    const attnrun_op_def *op;
    const char *last = "";
    TRY(cli_open_runtime(cli));
    for (int32_t i = 0; (op = attnrun_get_op(cli->runtime, i)) != NULL; i++) {
        if (strcmp(op->name, last) != 0)
            puts(op->name);
        last = op->name;
    }
    return ATTNRUN_OK;
}

attnrun_status manual_print(struct cli *cli, const struct cli_command *command)
{
    const char *form = cli->form;
    if (strcmp(form, "isas") == 0)
        return print_isas(cli);
    if (strcmp(form, "operators") == 0)
        return print_operators(cli);
    if (strcmp(form, "bash") == 0)
        bash();
    else if (strcmp(form, "zsh") == 0)
        zsh();
    else if (strcmp(form, "fish") == 0)
        fish();
    else if (strcmp(form, "commands") == 0)
        for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
            puts(c->name);
    else if (command != NULL)
        man_command(command);
    else
        man_overview();
    return ATTNRUN_OK;
}
