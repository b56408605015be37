/* completion.c - completion of bash, zsh and fish, made from the tables of commands and options.
 *
 * Out, on standard output: the completion for all commands, or the names that one of its values may
 * be, a line each (attnrun help --form). */
#include <string.h>

#include "cli.h"

/* The form of help that writes the names that a value may be, or NULL. */
static const char *form_of(const struct cli_option *o)
{
    return o->choices != NULL && o->choices[0] == '@' ? o->choices + 1 : NULL;
}

static void put_words(const struct cli_option *o)
{
    for (const char *c = cli_shown_choices(o); *c != 0; c++)
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
    return strcmp(o->name, "with") == 0;
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
    if (cli_shown_choices(o) != NULL) {
        fputs("_attnrun_add -W '", stdout);
        put_words(o);
        fputs("'; ", stdout);
    } else if (form_of(o) != NULL) {
        printf("_attnrun_add -W \"$(\"${COMP_WORDS[0]}\" help --form %s 2>/dev/null)\"; ",
               form_of(o));
    }
    if (takes_path(o)) /* isa=FILE is none */
        fputs(form_of(o) != NULL ? "[[ -n $key ]] || _attnrun_add -f; "
                                 : "_attnrun_add -f; ",
              stdout);
    fputs("return ;;\n", stdout);
}

/* The first word that is a command may stand anywhere. bash cuts words at '=': `--print=s`
 * is three words, and `--with=isa=a` is five, of which "isa=" is the key. Words are not quoted as
 * files are, and no space follows one that ends with '='. */
static const char bash_head[] =
    "# Completion of attnrun for bash.\n"
    "_attnrun_add()\n{\n"
    "    local -a more\n"
    "    if [[ $1 == -f ]]; then\n"
    "        mapfile -t more < <(compgen -f -- \"$word\")\n"
    "    else\n"
    "        mapfile -t more < <(compgen \"$@\" -- \"$key$word\")\n"
    "        more=(\"${more[@]#\"$key\"}\")\n"
    "        compopt +o filenames 2>/dev/null\n"
    "        [[ ${more[0]-} != *= ]] || compopt -o nospace 2>/dev/null\n"
    "    fi\n"
    "    COMPREPLY+=(\"${more[@]}\")\n}\n\n"
    "_attnrun()\n{\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} key= at=$COMP_CWORD before\n"
    "    local command= i\n"
    "    COMPREPLY=()\n"
    "    if [[ $word == = ]]; then\n"
    "        word=\n"
    "    elif [[ $at -gt 1 && ${COMP_WORDS[at-1]} == = ]]; then\n"
    "        ((at--))\n"
    "    fi\n"
    "    if [[ ${COMP_WORDS[at]} == = && ${COMP_WORDS[at-1]} != -* && $at -gt 2 ]]; "
    "then\n"
    "        key=${COMP_WORDS[at-1]}=\n"
    "        ((at--))\n"
    "        [[ ${COMP_WORDS[at-1]} != = || $at -lt 3 ]] || ((at--))\n"
    "    fi\n"
    "    before=${COMP_WORDS[at-1]}\n"
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
    if (cli_shown_choices(o) != NULL) {
        printf(":%s:(", o->name);
        put_words(o);
        putchar(')');
    } else if (form_of(o) != NULL) {
        printf(":%s:{compadd%s -- $(_call_program %s attnrun help --form %s)%s}", o->name,
               strchr(o->value, '=') != NULL ? " -S \"\"" : "", form_of(o), form_of(o),
               takes_path(o) ? "; _files" : "");
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
    printf("' -l %s%s", o->name, is_flag(o) ? "" : takes_path(o) ? " -r" : " -x");
    if (o->letter != 0)
        printf(" -s %c", o->letter);
    if (cli_shown_choices(o) != NULL) {
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

/* ---- the names that values may be ---- */

/* A line for each word of "a b c", with something before it. */
static void print_each(const char *before, const char *words)
{
    while (*words != 0) {
        const size_t n = strcspn(words, " ");
        printf("%s%.*s\n", before, (int)n, words);
        words += n + (words[n] == ' ');
    }
}

/* The instruction sets of this CPU, each with something before it. */
static attnrun_status print_isas(struct cli *cli, const char *before)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    TRY(cli_open_runtime(cli));
    TRY_LIB(attnrun_runtime_query(cli->runtime, &info));
    print_each(before, info.isas);
    return ATTNRUN_OK;
}

/* What --with of compare takes. */
static attnrun_status print_sides(struct cli *cli)
{
    print_each("", "no-fusion bodies precision=bf16 ort");
    return print_isas(cli, "isa=");
}

static void print_passes(void)
{
    const char *name;
    for (int32_t i = 0; (name = attnrun_get_pass(i)) != NULL; i++)
        puts(name);
}

static void print_limits(void)
{
    const char *name;
    for (int32_t i = 0; (name = cli_limit_name(i)) != NULL; i++)
        printf("%s=\n", name);
}

/* The names of the operators, or their domains; rows of one name, and of one domain, follow each
 * other. */
static attnrun_status print_operators(struct cli *cli, bool domains)
{
    const attnrun_op_def *op;
    const char *last = "";
    TRY(cli_open_runtime(cli));
    for (int32_t i = 0; (op = attnrun_get_op(cli->runtime, i)) != NULL; i++) {
        const char *name = !domains             ? op->name
                           : op->domain[0] == 0 ? "ai.onnx"
                                                : op->domain;
        if (strcmp(name, last) != 0)
            puts(name);
        last = name;
    }
    return ATTNRUN_OK;
}

attnrun_status completion_print(struct cli *cli, const char *form)
{
    if (strcmp(form, "isas") == 0)
        return print_isas(cli, "");
    if (strcmp(form, "sides") == 0)
        return print_sides(cli);
    if (strcmp(form, "operators") == 0 || strcmp(form, "domains") == 0)
        return print_operators(cli, form[0] == 'd');
    if (strcmp(form, "bash") == 0)
        bash();
    else if (strcmp(form, "zsh") == 0)
        zsh();
    else if (strcmp(form, "fish") == 0)
        fish();
    else if (strcmp(form, "passes") == 0)
        print_passes();
    else if (strcmp(form, "limits") == 0)
        print_limits();
    else
        for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
            puts(c->name);
    return ATTNRUN_OK;
}
