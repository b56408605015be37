/* given_words.c - the options of this process as the options of another one.
 *
 * In: cli->words, the arguments as they were given, with those of a configuration file before them
 * as --NAME=VALUE. Out: those that another command takes, as arguments or as text for a shell. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "screen.h"

static bool is_listed(const char *const *names, const char *name)
{
    for (; *names != NULL; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

attnrun_status cli_words_of(const struct cli *cli, uint32_t command,
                            const char *const *without, struct list *arguments)
{
    const struct list *words = &cli->words;
    int64_t n = 1;
    for (int64_t i = 0; i < words->n && strcmp(words->v[i], "--") != 0; i += n) {
        bool takes_next = false;
        const struct cli_option *option = cli_option_of(words->v[i], &takes_next);
        n = takes_next && i + 1 < words->n ? 2 : 1;
        if (option == NULL || (option->commands & command) == 0 ||
            is_listed(without, option->name))
            continue;
        for (int64_t k = i; k < i + n; k++)
            TRY(list_add(arguments, words->v[k]));
    }
    return ATTNRUN_OK;
}

attnrun_status cli_keep_word(struct cli *cli, const struct cli_option *option,
                             const char *value)
{
    char *word = NULL;
    if ((cli->command->bit & CLI_KEEPS_WORDS) == 0)
        return ATTNRUN_OK;
    if (asprintf(&word, "--%s=%s", option->name, value) < 0)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a value");
    if (list_add(&cli->owned, word) != ATTNRUN_OK) {
        free(word);
        return tool_error.status;
    }
    return list_add(&cli->words, word);
}

void line_add_word(struct line *line, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_@%+=:,./-";
    line_add(line, "%s", line->n > 0 ? " " : "");
    if (word[0] != 0 && word[strspn(word, plain)] == 0) {
        line_add(line, "%s", word);
        return;
    }
    char safe[sizeof line->text];
    attnrun_escape(word, safe, sizeof safe);
    line_add(line, "'");
    for (const char *at = safe; *at != 0; at++)
        line_add(line, *at == '\'' ? "'\\''" : "%c", *at);
    line_add(line, "'");
}

attnrun_status cli_join_names(struct cli *cli, const struct cli_option *option,
                              const char **value)
{
    char *joined;
    if (cli->inputs_dir == NULL || cli->command->bit != CLI_EXTRACT ||
        strcmp(option->name, "inputs") != 0)
        return ATTNRUN_OK;
    const int n = asprintf(&joined, "%s,%s", cli->inputs_dir, *value);
    *value = n < 0 ? NULL : cli_keep(cli, joined, (size_t)n);
    if (n >= 0)
        free(joined);
    return *value != NULL ? ATTNRUN_OK
                          : tool_fail(ATTNRUN_E_MEMORY, "no memory for the names");
}
