/* attnrun.c - the command line: the table of commands, and what surrounds each of them.
 *
 * tools/cli/ has one file per command and what they share; tools/io/ has the file formats
 * that the library does not know (npy, npz, json). Only attnrun.h is used of the library.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "io/file.h"

const struct cli_command cli_commands[] = {
    { "run", CLI_RUN, 1, 1, "[options] model.onnx", "run a model and show its outputs",
      command_run,
      "Inputs that are not given are made up: token ids lie within the table that they "
      "index, masks are ones, positions are in order, and other numbers are random "
      "(--seed). A symbolic dimension without --set is 1 for a batch, 128 for a "
      "sequence, 0 for a past length and 224 for the side of an image. If these sizes do "
      "not fit the model, others are tried. An output file is replaced as a whole or not "
      "at all, and keeps its mode; symbolic links are followed. A file that is read is "
      "never replaced. A device, a FIFO and - "
      "(standard output) are written in place: one output as npy, several as npz." },
    { "check", CLI_CHECK, 1, -1, "[options] PATH...",
      "compare a model with expected outputs", command_check,
      "A folder is a test in the form of the ONNX backend tests (model.onnx, "
      "test_data_set_N), or contains such folders. A model file is compared with the "
      "outputs of --ref. The errors of each output are listed if there is one folder, "
      "and for all folders with --list-passed or --json." },
    { "compare", CLI_COMPARE, 1, 1, "[options] model.onnx",
      "run a model in two ways and compare the results", command_compare,
      "Both runs get the same inputs. For each output, attnrun shows the largest "
      "absolute and relative error, the cosine, and the largest distance in steps of the "
      "element type (ulp). --per-node also compares the inner values, in the order in "
      "which they are computed, and names the first one that differs by more than the "
      "tolerance. The exit code is 1 if an output or a value differs, and 2 if both runs "
      "would be the same, since the model has nothing that --with changes. The "
      "comparison "
      "does not say which of the two runs is the more accurate one." },
    { "plan", CLI_PLAN, 1, 1, "[options] model.onnx",
      "show the memory plan without running", command_plan,
      "The plan lists the tensors in the arena with their sizes, their offsets and the "
      "steps at which they are alive. Nothing is run and no input data is needed. Sizes "
      "are taken from --set, --shape or -i; other symbolic dimensions get the same "
      "defaults as in run." },
    { "pack", CLI_PACK, 1, 1, "[options] model.onnx -o model.attnpack",
      "write a model with its packed weights", command_pack,
      "Every command accepts the packed file instead of the model, which is then not "
      "needed any more. The file holds the rewritten graph, the constants, and the "
      "weights in the form that the selected instruction set reads (--isa, --precision). "
      "Opening it packs nothing, and processes that map the same file share its memory. "
      "It runs with that set, also on a CPU that has a better one; a CPU without the set "
      "refuses the file, and so does another version of attnrun. "
      "check --verify and run --verify read the whole file and compare its hash." },
    { "compile", CLI_COMPILE, 1, -1, "[options] model.onnx... -o model.c",
      "write models as a C file", command_compile,
      "The C file contains the packed model (see pack) as an array, and a table of "
      "the operators that the model uses. A program that is linked with it and with "
      "libattnrun.a opens the model by passing the source model_NAME of NAME.c to "
      "attnrun_model_open(). Several models become one C file, with a model_NAME for "
      "each, after the names of their files; a program can contain only one such C file. "
      "No file is read. Other operators, rewrite passes and the code that reads ONNX are "
      "not linked, so the program needs no protobuf-c and opens these models only. They "
      "run with the instruction set that they were compiled for (--isa), "
      "also on a CPU that has a better one; a CPU without it refuses them." },
    { "optimize", CLI_OPTIMIZE, 1, 1, "[options] model.onnx -o out.onnx",
      "write a simpler ONNX model with the same outputs", command_optimize,
      "Nodes with constant inputs are computed, unused and repeated nodes are removed, "
      "BatchNormalization is merged into convolutions, and --set S=128 makes a dimension "
      "constant. The new file contains only operators of the old one, so that other "
      "runtimes can run it. Quantized weights stay quantized, and function bodies stay "
      "with the nodes that call them. -o may name the model itself, which is then "
      "replaced, but no other file that is read, such as its external data. With "
      "--external, -o may be a symbolic link only to a file in the same folder." },
    { "extract", CLI_EXTRACT, 1, 1,
      "[options] model.onnx --inputs A --outputs B -o out.onnx",
      "write a part of an ONNX model", command_extract,
      "The part starts at the values of --inputs and ends at the values of --outputs; "
      "its nodes are not changed. Without --inputs it starts at those inputs of the "
      "model that it needs, and without --outputs it ends at the outputs of the model. "
      "An inner value that becomes an input gets the inferred type and shape." },
    { "inspect", CLI_INSPECT, 1, 1, "[options] model.onnx", "show what is in a model",
      command_inspect,
      "The output shows format and opsets, inputs and outputs, the rewrite passes that "
      "were applied, the patterns that were not rewritten and why, and the operators of "
      "the rewritten graph." },
    { "ops", CLI_OPS, 0, -1, "[options] [NAME | --used MODEL...]",
      "list the operators, or describe one", command_ops,
      "With a name, all versions of that operator are described: inputs and outputs with "
      "their types, and attributes with their defaults. A type is a letter that stands "
      "for a list of element types; '?' marks an optional operand and '*' any number of "
      "operands." },
    { "bench", CLI_BENCH, 1, 1, "[options] model.onnx", "measure time and memory",
      command_bench,
      "The first run is not counted. 90 % of the runs take at most p90, and 99 % at most "
      "p99. Items are counted along the first dimension of the first input. A list of "
      "sizes (--set S=128,256,512) gives one row for each size, with the exponent by "
      "which the time grows. --against runs another attnrun program alternately with "
      "this one and says which is faster; a difference counts if it is more than 2 % in "
      "three of four rounds." },
    { "report", CLI_REPORT, 1, 1, "[options] model.onnx -o report.html",
      "write a page about a model: graph, time, memory, errors", command_report,
      "The page is one HTML file that loads nothing else. It contains a summary; the "
      "graph, with the keys that each attention node sees; the nodes in a roofline chart "
      "of this machine; the memory map of the arena; time and memory by size, with and "
      "without fusion; coverage; and the errors compared with other ways to run the "
      "model. --set S=128,256,512 names the symbol and its sizes; the other sections use "
      "the last size." },
    { "doctor", CLI_DOCTOR, 0, 0, "[options]", "show what attnrun found on this machine",
      command_doctor,
      "--bench measures the best that one thread and all threads reach: GFLOP/s of fp32 "
      "multiply-adds, and of products of bf16 and int8 where the CPU has instructions "
      "for them (a multiply-add is two operations); GB/s read from a buffer of 256 MB, "
      "and GB/s that one thread reads from a buffer of 256 kB." },
    { "convert", CLI_CONVERT, 0, -1, "...", "convert PyTorch to ONNX (starts Python)",
      command_convert,
      "This starts python3 -m attnrun_convert with all arguments: a factory "
      "(net.py:factory --example 'x=float32[B,S,64]' -o net.onnx), a model by name "
      "(--hf, --timm, --torchvision), or an ONNX file. attnrun convert --help lists the "
      "options of the converter." },
    { "help", CLI_HELP, 0, 1, "[command]", "show help", command_help, NULL },
    { "version", CLI_VERSION, 0, 0, "", "show the version", command_version, NULL },
    { 0 }
};

/* Output that could not be written is an error; a closed pipe is a quiet one. */
static int close_output(int code, int error)
{
    int failed = ferror(stdout);
    errno = 0;
    if (fflush(stdout) == 0 && !failed)
        return code;
    errno = errno != 0 ? errno : error;
    if (errno != EPIPE) {
        tool_fail_io("cannot write to standard output");
        cli_report(&(struct cli){ 0 });
    }
    return 3;
}

/* A file that is opened never gets the number of a standard stream that is closed, whose text it
 * would get, too: these numbers are taken by what can neither be read nor written. */
static bool occupy_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* Files that --copy-weights reads are not mapped when an output is written: they are here. */
static void note_copied(struct cli *cli, const char *path)
{
    struct cli_source made;
    attnrun_model *model = NULL;
    if (cli_open_runtime(cli) != ATTNRUN_OK ||
        cli_source_make(cli, path, ATTNRUN_ALLOW_MISSING, &made) != ATTNRUN_OK)
        return;
    made.source.flags &= ~(uint32_t)ATTNRUN_COPY;
    made.source.n_more_outputs = made.source.n_fixed_dims = 0;
    if (attnrun_model_open(cli->runtime, &made.source, &model) == ATTNRUN_OK)
        file_note_mapped();
    attnrun_model_release(model);
    cli_source_free(&made);
}

/* A result never replaces what it is made of. But optimize and extract write models, and may
 * change a file in place. */
static attnrun_status check_targets(struct cli *cli)
{
    const bool edit = (cli->command->bit & (CLI_OPTIMIZE | CLI_EXTRACT)) != 0;
    const char *const targets[] = { cli->output, cli->svg, cli->trace, cli->reduce };
    bool exists = false;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        const char *target = targets[i];
        if (target == NULL || !file_exists(target))
            continue;
        exists = true;
        for (int64_t k = 0; k <= cli->paths.n; k++) {
            const char *model = k < cli->paths.n ? cli->paths.v[k] : cli->with;
            if (!edit && model != NULL && file_is_same(target, model))
                return tool_fail(ATTNRUN_E_USAGE,
                                 "%s is the model: the result would replace it",
                                 tool_path(target));
        }
        if (cli_reads(cli, target) && !(edit && file_is_same(target, cli->paths.v[0])))
            return tool_fail(ATTNRUN_E_USAGE,
                             "%s is read by this command: the result would replace it",
                             tool_path(target));
    }
    for (int64_t k = 0; exists && cli->copy_weights && k < cli->paths.n; k++)
        note_copied(cli, cli->paths.v[k]);
    return ATTNRUN_OK;
}

int main(int argc, char **argv)
{
    struct cli cli = { 0 };
    int code = 0;
    if (!occupy_standard_streams())
        return 3;
    cli_catch_signals();
    cli_catch_bus_error();
    attnrun_status status = cli_parse(&cli, argc, argv);
    if (status == ATTNRUN_OK && cli.help)
        cli_print_help(cli.command);
    else if (status == ATTNRUN_OK)
        status = check_targets(&cli);
    if (status == ATTNRUN_OK && !cli.help)
        status = cli.command->run(&cli, &code);
    int error = cli_json_end(&status);
    if (status != ATTNRUN_OK) {
        fflush(stdout);
        code = cli_report(&cli);
    }
    cli_free(&cli);
    return close_output(code, error);
}
