/* ort.c - a model in ONNX Runtime, for attnrun compare --with ort.
 *
 * In: a job with its inputs. Out: the values that ONNX Runtime computes for the same outputs,
 * through a process of python3 and two archives in a temporary folder. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../io/npz.h"
#include "child.h"
#include "versus.h"

/* MODEL INPUTS OUTPUTS [NAME...]: inputs go by their order, as in the file; so do results, of which
 * those that are tensors come back. */
static const char script[] =
    "import sys\n"
    "sys.path = [path for path in sys.path if path]\n" /* not the current folder */
    "try:\n"
    "    import numpy, onnx, onnxruntime\n"
    "except ImportError as error:\n"
    "    sys.exit(f'python3 needs numpy, onnx and onnxruntime: {error}')\n"
    "path, given, results, *names = sys.argv[1:]\n"
    "model = path\n"
    "options = onnxruntime.SessionOptions()\n"
    "options.log_severity_level = 3\n"
    "if names:\n"
    "    model = onnx.load(path)\n"
    "    known = {v.name for v in model.graph.output}\n"
    "    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names\n"
    "                              if n not in known)\n"
    "    model = model.SerializeToString()\n"
    "try:\n"
    "    session = onnxruntime.InferenceSession(model, options,\n"
    "                                           ['CPUExecutionProvider'])\n"
    "    with numpy.load(given) as arrays:\n"
    "        values = {v.name: arrays[f'arr_{i}']\n"
    "                  for i, v in enumerate(session.get_inputs())}\n"
    "    made = enumerate(session.run(None, values))\n"
    "    numpy.savez(results, **{f'arr_{i}': a.astype(str) if a.dtype == object else a\n"
    "                            for i, a in made if isinstance(a, numpy.ndarray)})\n"
    "except Exception as error:\n"
    "    sys.exit(' '.join(str(error).split()))\n";

attnrun_status ort_check_kind(const char *what, const char *name,
                              const attnrun_tensor *value)
{
    if (value->kind == ATTNRUN_TENSOR)
        return ATTNRUN_OK;
    return tool_fail(ATTNRUN_E_UNSUPPORTED,
                     "--with ort: %s '%s' is a %s, and only tensors are handed over",
                     what, tool_quote(name), value_shape(value));
}

static attnrun_status write_inputs(const struct job *job, const char *path)
{
    struct zip_writer zip;
    attnrun_status status = ATTNRUN_OK;
    for (int32_t i = 0; i < job->inputs.n; i++)
        TRY(ort_check_kind("input", job->inputs.v[i].info.name,
                           &job->inputs.v[i].held.tensor));
    TRY(zip_create(&zip, path));
    for (int32_t i = 0; i < job->inputs.n && status == ATTNRUN_OK; i++) {
        char key[32];
        snprintf(key, sizeof key, "arr_%d", i);
        status = npz_add(&zip, key, &job->inputs.v[i].held.tensor);
    }
    if (status == ATTNRUN_OK)
        return zip_commit(&zip);
    zip_abandon(&zip);
    return status;
}

/* The first line that the process says on standard error. */
static void read_said(int from, char *said, size_t bytes)
{
    size_t n = 0;
    ssize_t got;
    char rest[512];
    while (n + 1 < bytes && (got = read(from, said + n, bytes - 1 - n)) > 0)
        n += (size_t)got;
    while (read(from, rest, sizeof rest) > 0)
        ;
    said[n] = 0;
    said[strcspn(said, "\n")] = 0;
}

static attnrun_status run_python(char *const *argv)
{
    int ends[2], result = 0;
    char said[400];
    if (pipe(ends) != 0)
        return tool_fail_io("cannot make a pipe");
    fflush(NULL);
    const pid_t self = getpid(), child = fork();
    if (child == 0) {
        child_end_with(self);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    read_said(ends[0], said, sizeof said);
    close(ends[0]);
    if (child < 0 || waitpid(child, &result, 0) != child)
        return tool_fail_io("cannot start python3");
    if (WIFEXITED(result) && WEXITSTATUS(result) == 0)
        return ATTNRUN_OK;
    if (WIFEXITED(result) && WEXITSTATUS(result) == 127)
        return tool_fail(ATTNRUN_E_UNSUPPORTED,
                         "--with ort: there is no python3 in PATH");
    return tool_fail(ATTNRUN_E_UNSUPPORTED, "--with ort: %s", tool_path(said));
}

static attnrun_status read_results(struct side *side, const char *path, int64_t n)
{
    struct zip zip;
    attnrun_status status = ATTNRUN_OK;
    side->outputs = calloc((size_t)n + 1, sizeof *side->outputs);
    if (side->outputs == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for outputs");
    side->n_outputs = n;
    TRY(zip_open(&zip, path));
    for (int64_t i = 0; i < n && status == ATTNRUN_OK; i++) {
        char key[32];
        snprintf(key, sizeof key, "arr_%lld", (long long)i);
        const struct zip_entry *entry = npz_find(&zip, key);
        if (entry != NULL)
            status = npz_read(&zip, entry, 0, &side->outputs[i]);
    }
    zip_close(&zip);
    return status;
}

static attnrun_status run_in(struct side *side, const struct job *first,
                             const char *folder)
{
    char given[128], results[128];
    const struct list *names = &first->cli->outputs;
    snprintf(given, sizeof given, "%s/in.npz", folder);
    snprintf(results, sizeof results, "%s/out.npz", folder);
    const char **argv = calloc((size_t)names->n + 8, sizeof *argv);
    if (argv == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for arguments");
    const char *fixed[] = { "python3", "-c", script, side->path, given, results };
    memcpy(argv, fixed, sizeof fixed);
    for (int64_t i = 0; i < names->n; i++)
        argv[6 + i] = names->v[i];
    output_file_remember(given);
    output_file_remember(results);
    attnrun_status status = write_inputs(first, given);
    if (status == ATTNRUN_OK)
        status = run_python((char *const *)(uintptr_t)argv);
    if (status == ATTNRUN_OK)
        status = read_results(side, results, first->info.n_outputs);
    free(argv);
    unlink(given);
    unlink(results);
    output_file_forget(given);
    output_file_forget(results);
    return status;
}

attnrun_status ort_run(struct side *side, const struct job *first)
{
    char folder[] = "/tmp/attnrun.XXXXXX";
    if (mkdtemp(folder) == NULL)
        return tool_fail_io("cannot make a temporary folder");
    output_file_remember(folder);
    attnrun_status status = run_in(side, first, folder);
    rmdir(folder);
    output_file_forget(folder);
    return status;
}
