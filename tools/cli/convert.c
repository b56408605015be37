/* convert.c - attnrun convert: hands over to the converter, which is Python. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* The converter lies beside an installed attnrun: ../share/attnrun/convert. */
static void add_python_path(void)
{
    char path[4096], all[8192];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    const char *old = getenv("PYTHONPATH");
    if (n <= 0)
        return;
    path[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (slash != NULL)
            *slash = 0;
    }
    const char *places[] = { "share/attnrun/convert", "tools/convert" };
    for (size_t i = 0; i < 2; i++) {
        char place[4200];
        snprintf(place, sizeof place, "%s/%s", path, places[i]);
        if (access(place, R_OK) != 0)
            continue;
        snprintf(all, sizeof all, "%s%s%s", place, old != NULL ? ":" : "",
                 old != NULL ? old : "");
        setenv("PYTHONPATH", all, 1);
        return;
    }
}

attnrun_status command_convert(struct cli *cli, int *exit_code)
{
    char **argv = calloc((size_t)cli->paths.n + 4, sizeof *argv);
    *exit_code = 3;
    if (argv == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for arguments");
    argv[0] = (char *)(uintptr_t)"python3";
    argv[1] = (char *)(uintptr_t)"-m";
    argv[2] = (char *)(uintptr_t)"attnrun_convert";
    for (int64_t i = 0; i < cli->paths.n; i++)
        argv[3 + i] = (char *)(uintptr_t)cli->paths.v[i];
    add_python_path();
    fflush(NULL);
    execvp(argv[0], argv);
    free(argv);
    tool_fail_io("cannot start python3 -m attnrun_convert");
    return tool_error.status;
}
