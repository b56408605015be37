/* suggest.c - "did you mean": in: a word and the words that exist; out: the nearest one by
 * edit distance, or none where all are far. */
#include <string.h>

#include "cli.h"

enum { MAX_WORD = 64 };

static int least(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Insertions, deletions, changes and swaps of neighbours from a to b, both of fewer than
 * MAX_WORD bytes. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][MAX_WORD + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (int j = 0; j <= m; j++)
        last[j] = before[j] = j;
    for (int i = 1; i <= n; i++) {
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            row[j] =
                least(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

const char *suggest(const char *word, const char *const *words, int64_t n)
{
    const char *best = NULL;
    size_t length = strlen(word);
    int best_distance = 1 + (int)(length < 9 ? (length + 2) / 3 : length / 3);
    if (length >= MAX_WORD)
        return NULL;
    for (int64_t i = 0; i < n; i++) {
        if (strlen(words[i]) >= MAX_WORD)
            continue;
        int distance = edit_distance(word, words[i]);
        if (distance < best_distance) {
            best = words[i];
            best_distance = distance;
        }
    }
    return best;
}
