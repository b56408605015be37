/* test_hpp.cpp - attnrun.hpp in C++17 and C++20: owners, errors, spans, in-place outputs. Built by
 * test_hpp.sh in both, against the library of the build and as installed. */
#include <attnrun.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#if __cplusplus >= 202002L
#include <span>
#endif

extern "C" {
#include "../runtime/onnx_write.h"
}

namespace {

int failures;

void expect(bool good, const char *what, int line)
{
    if (!good) {
        std::printf("test_hpp.cpp:%d: not true: %s\n", line, what);
        failures++;
    }
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

template <class F>
void expect_error(attnrun_status status, const char *text, int line, const F &call)
{
    try {
        call();
    } catch (const attnrun::error &e) {
        if (e.status() != status || std::strstr(e.what(), text) == nullptr) {
            std::printf("test_hpp.cpp:%d: %d '%s', expected %d '%s'\n", line, e.status(),
                        e.what(), status, text);
            failures++;
        }
        return;
    }
    std::printf("test_hpp.cpp:%d: nothing was thrown\n", line);
    failures++;
}
#define THROWS(status, text, ...) \
    expect_error((status), (text), __LINE__, [&] { __VA_ARGS__; })

/* x f32[N,2] -> Softmax r -> MatMul w -> y f32[N,2] */
std::vector<unsigned char> write_model()
{
    const float w[4] = {1, 2, 3, 4};
    onnx_writer *writer = onnx_begin(13);
    onnx_input(writer, "x", ATTNRUN_F32, "N,2");
    onnx_constant(writer, "w", ATTNRUN_F32, "2,2", w);
    onnx_node(writer, "Softmax", "x", "r");
    onnx_node(writer, "MatMul", "r,w", "y");
    onnx_output(writer, "y", ATTNRUN_F32, "N,2");
    onnx_output(writer, "r", ATTNRUN_F32, "N,2");
    std::size_t bytes;
    std::uint8_t *data = onnx_end(writer, &bytes);
    std::vector<unsigned char> made(data, data + bytes);
    std::free(data);
    return made;
}

void test_a_run(const attnrun::model &model)
{
    std::vector<float> x = {1, 1, 5, 5}, y(4);
    attnrun::context context(model);
    context.set_input("x", attnrun::tensor::of(x, {2, 2}));
    context.set_output("y", attnrun::tensor::of(y, {2, 2}));
    context.run();
    EXPECT(y == (std::vector<float>{2, 3, 2, 3}));
    EXPECT(context.output("y").raw().data == y.data());
    attnrun::span<float> r = context.output(1).data<float>();
    EXPECT(r.size() == 4 && r[0] == 0.5f && r[3] == 0.5f);
    EXPECT(context.output("r").shape()[1] == 2);
    const std::array<std::int32_t, 1> first = {0};
    context.choose_outputs(first);
    EXPECT(context.try_run() == ATTNRUN_OK);
    THROWS(ATTNRUN_E_USAGE, "was not chosen", context.output(1));
    context.watch("r");
    context.run();
    EXPECT(context.value("r").data<float>()[1] == 0.5f);
    context.choose_outputs(std::vector<std::int32_t>()); /* none, whatever its data() is */
    context.run();
    THROWS(ATTNRUN_E_USAGE, "was not chosen", context.output(0));
    context.choose_all_outputs();
    context.forget_output(0);
    context.run();
    EXPECT(context.output(0).raw().data != y.data());
    EXPECT(context.memory().n_plans > 0);
#if __cplusplus >= 202002L
    std::span<const float> view = std::as_const(x);
    context.set_input(0, attnrun::tensor::of(view, {2, 2}));
    std::span<float> seen = context.output(0).data<float>();
    EXPECT(seen[0] == 2);
#endif
}

void test_plans(const attnrun::model &model)
{
    const std::vector<attnrun::tensor> inputs = {attnrun::tensor::shaped(ATTNRUN_F32, {7, 2})};
    attnrun::context context(model);
    EXPECT(context.plan(inputs).n_steps == 2);
    EXPECT(context.plan(std::vector<attnrun::tensor>(inputs)).n_steps == 2);
    EXPECT(context.plan_output(0).shape()[0] == 7);
    EXPECT(model.plan(inputs).total_bytes > 0);
    context.reserve(inputs);
    alignas(ATTNRUN_ARENA_ALIGN) static std::byte arena[1 << 17];
    context.set_max_plans(1);
    context.set_arena({arena, sizeof arena});
    EXPECT(context.memory().arena_bytes == sizeof arena);
    context.reserve(inputs);
    context.set_arena({arena, ATTNRUN_ARENA_ALIGN});
    THROWS(ATTNRUN_E_MEMORY, "attnrun_set_arena() was given has 64", context.reserve(inputs));
    context.set_arena({});
    context.reserve(inputs);
    const std::vector<attnrun::tensor> none;
    THROWS(ATTNRUN_E_USAGE, "as many tensors", context.reserve(none));
    THROWS(ATTNRUN_E_USAGE, "as many tensors", context.plan(none));
    THROWS(ATTNRUN_E_USAGE, "as many tensors", model.plan(none));
}

void test_errors(const attnrun::model &model)
{
    attnrun::context context(model);
    std::vector<float> x(4);
    std::vector<std::int64_t> numbers(4);
    THROWS(ATTNRUN_E_IO, "nowhere.onnx", attnrun::model("nowhere.onnx"));
    THROWS(ATTNRUN_E_INPUT, "is not given", context.run());
    THROWS(ATTNRUN_E_USAGE, "has no input 'z'",
           context.set_input("z", attnrun::tensor::of(x, {2, 2})));
    THROWS(ATTNRUN_E_DTYPE, "i64", context.set_input(0, attnrun::tensor::of(numbers, {2, 2})));
    THROWS(ATTNRUN_E_USAGE, "as many elements", attnrun::tensor::of(x, {2, 3}));
    context.set_input(0, attnrun::tensor::of(x, {2, 2})).run();
    THROWS(ATTNRUN_E_USAGE, "another element type", context.output(0).data<double>());
    attnrun::tensor apart = attnrun::tensor::of(x, {2, 2});
    apart.raw().strides[0] = 12;
    THROWS(ATTNRUN_E_USAGE, "not dense", apart.data<float>());
    EXPECT(context.try_run() == ATTNRUN_OK);
}

/* Copies and moves; what is left behind refuses. */
void test_owners(const std::vector<unsigned char> &bytes)
{
    auto held = std::make_unique<attnrun::runtime>(attnrun::runtime::with_threads(1));
    EXPECT(held->info().threads == 1);
    attnrun::model model = attnrun::model::of_bytes(*held, bytes);
    attnrun::model copy = model;
    held.reset(); /* the model holds it */
    attnrun::context context(copy), other = std::move(context);
    attnrun::context third(copy);
    third = std::move(other);
    THROWS(ATTNRUN_E_USAGE, "NULL", other.run()); // NOLINT: it gave away what it had
    other = std::move(third);
    copy = attnrun::model();
    EXPECT(model.info().n_inputs == 1 && other.of().find_output("y") == 0);
    std::vector<float> x(2);
    other.set_input(0, attnrun::tensor::of(x, {1, 2})).run();
    THROWS(ATTNRUN_E_USAGE, "NULL", context.run()); // NOLINT: what a moved-from one does
    THROWS(ATTNRUN_E_USAGE, "moved from", context.output("y")); // NOLINT
    THROWS(ATTNRUN_E_USAGE, "NULL", copy.info());
    THROWS(ATTNRUN_E_USAGE, "NULL", attnrun::context{copy});
    EXPECT(copy.find_input("x") == -1);
    attnrun::runtime from, to = std::move(from);
    THROWS(ATTNRUN_E_USAGE, "moved from", attnrun::model::of_bytes(from, bytes)); // NOLINT
}

/* Contexts of one model in threads. */
void test_threads(const attnrun::model &model)
{
    std::vector<std::thread> threads;
    std::array<bool, 4> good = {};
    for (std::size_t t = 0; t < good.size(); t++)
        threads.emplace_back([&model, &good, t] {
            std::vector<float> x(2), y(2);
            attnrun::context context(model);
            context.set_input(0, attnrun::tensor::of(x, {1, 2}));
            context.set_output(0, attnrun::tensor::of(y, {1, 2}));
            for (int i = 0; i < 100; i++)
                context.run();
            good[t] = y[0] == 2 && y[1] == 3;
        });
    for (std::thread &thread : threads)
        thread.join();
    for (bool g : good)
        EXPECT(g);
}

/* As README.md writes it: with parentheses a path that is no literal would declare a function. */
void test_a_path_that_is_no_literal(char **arguments)
{
    THROWS(ATTNRUN_E_PARSE, "expected an ONNX model",
           attnrun::context net{attnrun::model(arguments[0])});
}

} // namespace

int main(int, char **arguments)
{
    const std::vector<unsigned char> bytes = write_model();
    const attnrun::runtime runtime;
    const attnrun::model model = attnrun::model::of_bytes(runtime, bytes);
    test_a_run(model);
    test_a_path_that_is_no_literal(arguments);
    test_plans(model);
    test_errors(model);
    test_owners(bytes);
    test_threads(model);
    std::printf("%s: C++%ld\n", failures == 0 ? "ok" : "FAILED", __cplusplus / 100 % 100);
    return failures != 0;
}
