/* convert_command.c - attnrun convert: hands over to the converter, which is Python. Its
 * options are its own; it is told where this executable is, for the proof at its end. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

enum { PATH_BYTES = 4096 };

/* Where this executable is; "" where the system does not say. */
static void executable_path(char path[PATH_BYTES])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_BYTES - 1);
    path[n > 0 ? n : 0] = 0;
}

/* The converter lies beside an installed attnrun (PREFIX/share), or in the sources of
 * which this is a build (ROOT/build/release/attnrun). Whether one of them is here. */
static bool add_python_path(const char *executable)
{
    static const struct {
        int up;
        const char *place;
    } places[] = { { 2, "share/attnrun/convert" }, { 3, "tools/convert" } };
    char folder[PATH_BYTES], place[PATH_BYTES + 64], all[2 * PATH_BYTES + 64];
    const char *old = getenv("PYTHONPATH");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(folder, sizeof folder, "%s", executable);
        for (int up = 0; up < places[i].up; up++) {
            char *slash = strrchr(folder, '/');
            if (slash != NULL)
                *slash = 0;
        }
        snprintf(place, sizeof place, "%s/%s", folder, places[i].place);
        if (access(place, R_OK) != 0)
            continue;
        snprintf(all, sizeof all, "%s%s%s", place, old != NULL ? ":" : "",
                 old != NULL ? old : "");
        setenv("PYTHONPATH", all, 1);
        return true;
    }
    return false;
}

/* The exit code of python3 with a line of code; 127 where there is no python3. */
static int python_says(const char *code)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        execlp("python3", "python3", "-c", code, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 127;
    return WEXITSTATUS(status);
}

static attnrun_status look_for_converter(bool is_near)
{
    int code = python_says("import importlib.util, sys; "
                           "sys.exit(sys.version_info < (3, 10) and 2 or "
                           "importlib.util.find_spec('attnrun_convert') is None)");
    if (code == 127)
        return tool_fail(
            ATTNRUN_E_UNSUPPORTED,
            "there is no python3 in PATH; the converter is a Python package: "
            "install Python 3.10 or later with torch, onnx and onnxscript");
    if (code == 2)
        return tool_fail(ATTNRUN_E_UNSUPPORTED,
                         "python3 is older than 3.10, which the converter "
                         "needs");
    if (code != 0 && !is_near)
        return tool_fail(
            ATTNRUN_E_UNSUPPORTED,
            "python3 finds no package attnrun_convert; it is in tools/convert "
            "of the sources: python3 -m pip install tools/convert");
    return ATTNRUN_OK;
}

attnrun_status command_convert(struct cli *cli, int *exit_code)
{
    char executable[PATH_BYTES];
    *exit_code = 3;
    executable_path(executable);
    attnrun_status status = look_for_converter(add_python_path(executable));
    if (status != ATTNRUN_OK)
        return status;
    char **argv = calloc((size_t)cli->paths.n + 6, sizeof *argv);
    if (argv == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for arguments");
    size_t n = 0;
    argv[n++] = (char *)(uintptr_t)"python3";
    argv[n++] = (char *)(uintptr_t)"-m";
    argv[n++] = (char *)(uintptr_t)"attnrun_convert";
    if (executable[0] != 0) {
        argv[n++] = (char *)(uintptr_t)"--attnrun";
        argv[n++] = executable;
    }
    for (int64_t i = 0; i < cli->paths.n; i++)
        argv[n++] = (char *)(uintptr_t)cli->paths.v[i];
    fflush(NULL);
    execvp(argv[0], argv);
    free(argv);
    tool_fail_io("cannot start python3 -m attnrun_convert");
    return tool_error.status;
}
