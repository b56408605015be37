/* child.c - another attnrun process: started, read to its end, and waited for; see child.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"

enum { EXIT_INTERNAL = 70, EXIT_NOT_STARTED = 127, FIRST_BYTES = 1 << 14 };

void child_end_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before */
        _exit(EXIT_NOT_STARTED);
}

/* The only thing that a process between fork and exec may do. */
static void become(const char *program, char *const *argv, int output, bool quiet,
                   pid_t parent)
{
    child_end_with(parent);
    const int null = quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    dup2(output, STDOUT_FILENO);
    if (null >= 0)
        dup2(null, STDERR_FILENO);
    execv(program, argv);
    _exit(EXIT_NOT_STARTED);
}

static attnrun_status child_read_all(int from, char **text)
{
    size_t n = 0, room = FIRST_BYTES;
    char *bytes = malloc(room);
    while (bytes != NULL) {
        const ssize_t got = read(from, bytes + n, room - n - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
        if (n + 1 < room)
            continue;
        room *= 2;
        char *grown = realloc(bytes, room);
        if (grown == NULL)
            free(bytes);
        bytes = grown;
    }
    if (bytes == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for what a process writes");
    bytes[n] = 0;
    *text = bytes;
    return ATTNRUN_OK;
}

static int wait_for(pid_t child)
{
    int result = 0;
    pid_t waited;
    do
        waited = waitpid(child, &result, 0);
    while (waited < 0 && errno == EINTR);
    return waited == child && WIFEXITED(result) ? WEXITSTATUS(result) : EXIT_INTERNAL;
}

attnrun_status child_run(const char *program, const struct list *arguments, bool quiet,
                         char **text, int *code)
{
    int ends[2];
    const char **argv = calloc((size_t)arguments->n + 2, sizeof *argv);
    *text = NULL;
    if (argv == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        free(argv);
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a process");
    }
    argv[0] = program;
    for (int64_t i = 0; i < arguments->n; i++)
        argv[i + 1] = arguments->v[i];
    fflush(NULL);
    const pid_t self = getpid(), child = fork();
    if (child == 0)
        become(program, (char *const *)(uintptr_t)argv, ends[1], quiet, self);
    close(ends[1]);
    attnrun_status status = child < 0
                                ? tool_fail_io("cannot start %s", tool_path(program))
                                : child_read_all(ends[0], text);
    close(ends[0]);
    if (child > 0)
        *code = wait_for(child);
    free(argv);
    return status;
}

attnrun_status child_self(char *path, size_t bytes)
{
    const ssize_t n = readlink("/proc/self/exe", path, bytes - 1);
    path[n > 0 ? n : 0] = 0;
    return n > 0 ? ATTNRUN_OK : tool_fail_io("cannot find this program in /proc");
}
