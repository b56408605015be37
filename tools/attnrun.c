/* attnrun.c - the command line: the table of commands, and what surrounds each of them.
 *
 * tools/cli/ has one file per command and what they share; tools/io/ has the file formats
 * that the library does not know (npy, npz, json). Only attnrun.h is used of the library.
 */
#include <errno.h>

#include "cli/cli.h"

const struct cli_command cli_commands[] = {
    { "run", CLI_RUN, 1, 1, "[options] model.onnx", "run a model and show its outputs",
      command_run,
      "Inputs that are not given are made up: token ids lie within the table that they "
      "index, "
      "masks are ones, positions are in order, and other numbers are random by --seed. A "
      "symbolic dimension that --set does not bind is 1 for a batch, 128 for a sequence, "
      "0 "
      "for a past and 224 for an image; where these sizes do not fit, others are tried. "
      "An output file is replaced as a whole or not at all, and keeps its mode. Links "
      "are "
      "followed. A device, a FIFO and - (standard output) are written in place: one "
      "output "
      "as npy, several as npz." },
    { "check", CLI_CHECK, 1, -1, "[options] PATH...", "compare with expected outputs",
      command_check,
      "A folder is a test of the ONNX backend form (model.onnx, test_data_set_N), or it "
      "holds such folders. A model file is compared with --ref. The errors of each "
      "output "
      "are listed for one folder, and for all with --list-passed or --json." },
    { "compare", CLI_COMPARE, 1, 1, "[options] model.onnx",
      "run a model in two ways and compare", command_compare,
      "Both ways get the same inputs. For each output the largest absolute and relative "
      "error, the cosine and the largest distance in steps of the type (ulp) are shown. "
      "With --per-node the values inside are compared too, in the order in which they "
      "are "
      "computed, and the first that differs by more than the tolerance is named. The "
      "exit "
      "code is 1 where an output or a value differs." },
    { "plan", CLI_PLAN, 1, 1, "[options] model.onnx",
      "show the memory plan without running", command_plan, NULL },
    { "pack", CLI_PACK, 1, 1, "[options] model.onnx -o model.attnpack",
      "write a model with its packed weights", command_pack,
      "The packed file is opened by every command in the place of the model, which is "
      "not "
      "needed any more then: it holds the graph after rewriting, the constants, and the "
      "weights as the instruction set in use reads them (--isa, --precision). It is "
      "opened "
      "without packing, and processes that map the same file share its memory. A file "
      "for "
      "another instruction set or version of attnrun is refused; check --verify and run "
      "--verify read all of it and compare its hash." },
    { "compile", CLI_COMPILE, 1, 1, "[options] model.onnx -o model.c",
      "write a model as a C file", command_compile,
      "The file holds the packed model (see pack) as an array, and the table of the "
      "operators that it uses. A program that is linked from it and libattnrun.a opens "
      "the model by attnrun_model_open() of the source model_NAME, where the file is "
      "NAME.c, "
      "without reading a file, and brings neither other operators nor rewrite passes. It "
      "opens that model alone, on CPUs that have the instruction set that it was "
      "compiled for (--isa)." },
    { "optimize", CLI_OPTIMIZE, 1, 1, "[options] model.onnx -o out.onnx",
      "write a simpler ONNX model with the same outputs", command_optimize,
      "What constants give is computed, nodes that nobody reads or that repeat others "
      "go, "
      "BatchNormalization becomes part of a convolution, and --set S=128 makes a "
      "dimension a constant. The new file holds operators of the old one only, so other "
      "runtimes run it. A quantized weight stays quantized, and a function body stays "
      "with the nodes that call it." },
    { "extract", CLI_EXTRACT, 1, 1,
      "[options] model.onnx --inputs A --outputs B -o out.onnx",
      "write a part of an ONNX model", command_extract,
      "The part begins at the values of --inputs and ends at those of --outputs; their "
      "nodes stay as they are. Without --inputs it begins at the inputs of the model "
      "that "
      "it needs; without --outputs it ends at the outputs of the model. An inner value "
      "that becomes an input has the type and shape that were inferred." },
    { "inspect", CLI_INSPECT, 1, 1, "[options] model.onnx", "show what is in a model",
      command_inspect, NULL },
    { "ops", CLI_OPS, 0, -1, "[options] [NAME | --used MODEL...]",
      "list the operators, or describe one", command_ops,
      "With a name all versions of that operator are described: inputs and outputs with "
      "their types, and attributes with their defaults. A type is a letter that stands "
      "for "
      "a list of element types; '?' marks an optional operand, '*' any number of them." },
    { "bench", CLI_BENCH, 1, 1, "[options] model.onnx", "measure time and memory",
      command_bench,
      "The first run is left out of the times. p90 and p99 are the times that 90 and 99 "
      "of "
      "100 runs do not exceed. Items are those of the first dimension of the first "
      "input. "
      "A list of sizes (--set S=128,256,512) gives a row for each, with the growth of "
      "the "
      "time as a power of the size. --against runs another attnrun in turns with this "
      "one "
      "and says which is faster, by more than 2 % in three of four rounds." },
    { "report", CLI_REPORT, 1, 1, "[options] model.onnx -o report.html",
      "write a page about a model: graph, time, memory, errors", command_report,
      "One HTML file that loads nothing from elsewhere: a summary, the graph with what "
      "queries see in each attention node, the nodes below the roofline of this machine, "
      "the "
      "arena, time and memory over the size of a symbol with and without fusion, "
      "coverage, "
      "and errors beside other ways to run the model. --set S=128,256,512 names the "
      "symbol "
      "and its sizes; the last one is that of the other sections." },
    { "doctor", CLI_DOCTOR, 0, 0, "[options]", "show what attnrun found on this machine",
      command_doctor,
      "--bench measures what one thread and all threads reach at best: GFLOP/s of fp32 "
      "multiply-adds, and GB/s read from a buffer of 256 MB and, by one thread, of 256 "
      "kB." },
    { "convert", CLI_CONVERT, 0, -1, "...", "convert PyTorch to ONNX (starts Python)",
      command_convert, NULL },
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

int main(int argc, char **argv)
{
    struct cli cli = { 0 };
    int code = 0;
    cli_catch_signals();
    cli_catch_bus_error();
    attnrun_status status = cli_parse(&cli, argc, argv);
    if (status == ATTNRUN_OK && cli.help)
        cli_print_help(cli.command);
    else if (status == ATTNRUN_OK)
        status = cli.command->run(&cli, &code);
    int error = cli_json_end(status == ATTNRUN_OK);
    if (status != ATTNRUN_OK) {
        fflush(stdout);
        code = cli_report(&cli);
    }
    cli_free(&cli);
    return close_output(code, error);
}
