/* attnrun.hpp - attnrun for C++17 and later: the calls of attnrun.h with owners, exceptions and
 * spans. Header-only; link the C library.
 *
 *   Contents
 *     error, check          a failing call as an exception
 *     span                  elements and their number; converts to std::span
 *     tensor                a view of elements: dtype, shape, data<T>()
 *     runtime, model        shared owners: copies hold the same object
 *     context               one run at a time: the owner of plans, arena, states
 *
 *   attnrun::context run{attnrun::model("model.onnx")};
 *   std::vector<float> x(6), y(6);
 *   run.set_input("x", attnrun::tensor::of(x, {2, 3}));
 *   run.set_output("y", attnrun::tensor::of(y, {2, 3}));   // written in place
 *   run.run();
 *
 * attnrun.h states the lifetimes and which thread may make a call. An owner that was moved from or
 * default-constructed is empty: every call on it throws ATTNRUN_E_USAGE. The library calls nothing
 * in this header, so no exception passes through C. Functions that a program gives to the library
 * (on_node, operators) must not throw. A program without exceptions uses attnrun.h itself, or
 * context::try_run(), which is noexcept. */
#ifndef ATTNRUN_HPP
#define ATTNRUN_HPP

#include <attnrun.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

namespace attnrun {

/* ---- errors -------------------------------------------------------------------------- */

/* A failed call: what() is its message; hint() says what to do about it, or is "". */
class error : public std::runtime_error {
public:
    error(attnrun_status status, const attnrun_error &from)
        : std::runtime_error(from.status == status && from.message[0] != 0
                                 ? from.message
                                 : attnrun_status_name(status)),
          status_(status), hint_(from.status == status ? from.hint : ""),
          node_(from.status == status ? from.node_name : "")
    {
    }
    attnrun_status status() const noexcept { return status_; }
    const std::string &hint() const noexcept { return hint_; }
    const std::string &node() const noexcept { return node_; }

private:
    attnrun_status status_;
    std::string hint_, node_;
};

/* Throws if a call of attnrun.h failed. */
inline void check(attnrun_status status)
{
    if (status != ATTNRUN_OK)
        throw error(status, *attnrun_last_error());
}

inline void refuse(const char *what)
{
    attnrun_error made = {};
    made.status = ATTNRUN_E_USAGE;
    std::string text = std::string("USAGE: ") + what;
    text.copy(made.message, sizeof made.message - 1);
    throw error(ATTNRUN_E_USAGE, made);
}

/* ---- elements ------------------------------------------------------------------------ */

/* Elements that another object owns. */
template <class T> class span {
public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    /* Of a vector, an array, a std::span, … of the same elements. */
    template <class C, class = std::enable_if_t<std::is_convertible_v<
                           std::remove_pointer_t<decltype(std::declval<C &>().data())> (*)[],
                           T (*)[]>>>
    constexpr span(C &container) noexcept : data_(container.data()), size_(container.size())
    {
    }
    /* For reading; also of a temporary object, for the call that it is passed to. */
    template <class C, class U = T,
              class = std::enable_if_t<
                  std::is_const_v<U> &&
                  std::is_convertible_v<
                      std::remove_pointer_t<decltype(std::declval<const C &>().data())> (*)[],
                      U (*)[]>>>
    constexpr span(const C &container) noexcept
        : data_(container.data()), size_(container.size())
    {
    }
    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const noexcept { return data_[i]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

} /* namespace attnrun */
#if __cplusplus >= 202002L
/* A temporary span becomes a std::span, too: its elements outlive it. */
template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<attnrun::span<T>> = true;
#endif
namespace attnrun {

/* 16-bit floats as their bits, because C++ has no such types before C++23. */
struct f16 {
    std::uint16_t bits;
};
struct bf16 {
    std::uint16_t bits;
};

/* The ATTNRUN_F32 … of a C++ type. */
template <class T> constexpr std::int32_t dtype_of()
{
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, float>)
        return ATTNRUN_F32;
    else if constexpr (std::is_same_v<U, double>)
        return ATTNRUN_F64;
    else if constexpr (std::is_same_v<U, bool>)
        return ATTNRUN_BOOL;
    else if constexpr (std::is_same_v<U, f16>)
        return ATTNRUN_F16;
    else if constexpr (std::is_same_v<U, bf16>)
        return ATTNRUN_BF16;
    else if constexpr (std::is_integral_v<U> && std::is_signed_v<U>)
        return sizeof(U) == 1   ? ATTNRUN_I8
               : sizeof(U) == 2 ? ATTNRUN_I16
               : sizeof(U) == 4 ? ATTNRUN_I32
                                : ATTNRUN_I64;
    else if constexpr (std::is_integral_v<U>)
        return sizeof(U) == 1   ? ATTNRUN_U8
               : sizeof(U) == 2 ? ATTNRUN_U16
               : sizeof(U) == 4 ? ATTNRUN_U32
                                : ATTNRUN_U64;
    else
        static_assert(!sizeof(U), "no element type of attnrun");
}

/* ---- tensors ------------------------------------------------------------------------- */

/* A view, as attnrun_tensor is: it owns nothing. */
class tensor {
public:
    tensor() noexcept = default;
    explicit tensor(const attnrun_tensor &from) noexcept : tensor_(from) {}
    /* Shape alone, for plans. */
    static tensor shaped(std::int32_t dtype, span<const std::int64_t> shape)
    {
        return make(dtype, shape, nullptr);
    }
    static tensor shaped(std::int32_t dtype, std::initializer_list<std::int64_t> shape)
    {
        return make(dtype, {shape.begin(), shape.size()}, nullptr);
    }
    /* The elements of a container, whose number must be that of the shape. */
    template <class C> static tensor of(C &elements, span<const std::int64_t> shape)
    {
        using T = std::remove_reference_t<decltype(*elements.data())>;
        tensor made = make(dtype_of<T>(), shape,
                           const_cast<std::remove_cv_t<T> *>(elements.data()));
        if (static_cast<std::size_t>(made.count()) != elements.size())
            refuse("a tensor's shape does not have as many elements as are given");
        return made;
    }
    template <class C> static tensor of(C &elements, std::initializer_list<std::int64_t> shape)
    {
        return of(elements, span<const std::int64_t>(shape.begin(), shape.size()));
    }

    std::int32_t kind() const noexcept { return tensor_.kind; }
    std::int32_t dtype() const noexcept { return tensor_.dtype; }
    span<const std::int64_t> shape() const noexcept
    {
        return {tensor_.dims, static_cast<std::size_t>(tensor_.rank)};
    }
    std::int64_t count() const noexcept { return attnrun_tensor_count(&tensor_); }
    std::int64_t bytes() const noexcept { return attnrun_tensor_bytes(&tensor_); }
    bool dense() const noexcept
    {
        std::int64_t step = attnrun_dtype_bits(tensor_.dtype) / 8;
        for (std::int32_t i = tensor_.rank - 1; step > 0 && i >= 0; i--) {
            if (tensor_.dims[i] > 1 && tensor_.strides[i] != step)
                return false;
            step *= tensor_.dims[i];
        }
        return true;
    }
    /* The elements in order. Throws if they have another type or are not dense. */
    template <class T> span<T> data() const
    {
        if (kind() != ATTNRUN_TENSOR || dtype() != dtype_of<T>())
            refuse("a tensor is read as another element type than it has");
        if (!dense())
            refuse("a tensor that is not dense is read as a span");
        return {static_cast<T *>(tensor_.data), static_cast<std::size_t>(count())};
    }
    const attnrun_tensor &raw() const noexcept { return tensor_; }
    attnrun_tensor &raw() noexcept { return tensor_; }

private:
    static tensor make(std::int32_t dtype, span<const std::int64_t> shape, void *data)
    {
        tensor made;
        check(attnrun_tensor_make(dtype, static_cast<std::int32_t>(shape.size()), shape.data(),
                                  data, &made.tensor_));
        return made;
    }
    attnrun_tensor tensor_ = {};
};

/* A struct of attnrun.h with its struct_size, the rest zero. */
template <class S> S sized()
{
    S made = {};
    made.struct_size = sizeof made;
    return made;
}

/* ---- runtime and model --------------------------------------------------------------- */

/* Threads, allocator and budget. Models hold their runtime, so they stay valid when this owner is
 * moved from or ends. */
class runtime {
public:
    explicit runtime(const attnrun_runtime_options &options = sized<attnrun_runtime_options>())
    {
        check(attnrun_runtime_create(&options, &runtime_));
    }
    static runtime with_threads(std::int32_t threads)
    {
        auto options = sized<attnrun_runtime_options>();
        options.threads = threads;
        return runtime(options);
    }
    runtime(runtime &&from) noexcept : runtime_(std::exchange(from.runtime_, nullptr)) {}
    runtime &operator=(runtime &&from) noexcept
    {
        runtime old(std::move(from));
        std::swap(runtime_, old.runtime_);
        return *this;
    }
    runtime(const runtime &) = delete;
    runtime &operator=(const runtime &) = delete;
    ~runtime() { attnrun_runtime_destroy(runtime_); }

    attnrun_runtime_info info() const
    {
        auto made = sized<attnrun_runtime_info>();
        check(attnrun_runtime_query(runtime_, &made));
        return made;
    }
    void register_op(const attnrun_op_def &op) { check(attnrun_register_op(runtime_, &op)); }
    void load_plugin(const std::string &path)
    {
        check(attnrun_load_plugin(runtime_, path.c_str()));
    }
    attnrun_runtime *get() const noexcept { return runtime_; }

private:
    attnrun_runtime *runtime_ = nullptr;
};

/* One loaded file. Copies share it. Thread-safe. */
class model {
public:
    model() noexcept = default;
    explicit model(const std::string &path) : model(nullptr, path) {}
    model(const runtime &in, const std::string &path) : model(held(in), path) {}
    model(const runtime &in, const attnrun_source &source)
    {
        held(in);
        check(attnrun_model_open(in.get(), &source, &model_));
    }
    /* From bytes of the caller, which must live as long as the model. */
    static model of_bytes(const runtime &in, span<const unsigned char> bytes,
                          std::uint32_t flags = 0)
    {
        auto source = sized<attnrun_source>();
        source.data = bytes.data();
        source.bytes = bytes.size();
        source.flags = flags;
        return model(in, source);
    }
    model(const model &from) noexcept : model_(from.model_)
    {
        if (model_ != nullptr)
            attnrun_model_retain(model_);
    }
    model(model &&from) noexcept : model_(std::exchange(from.model_, nullptr)) {}
    model &operator=(model from) noexcept
    {
        std::swap(model_, from.model_);
        return *this;
    }
    ~model() { attnrun_model_release(model_); }

    attnrun_model_info info() const
    {
        auto made = sized<attnrun_model_info>();
        check(attnrun_model_query(model_, &made));
        return made;
    }
    attnrun_value_info input(std::int32_t index) const
    {
        auto made = sized<attnrun_value_info>();
        check(attnrun_model_input(model_, index, &made));
        return made;
    }
    attnrun_value_info output(std::int32_t index) const
    {
        auto made = sized<attnrun_value_info>();
        check(attnrun_model_output(model_, index, &made));
        return made;
    }
    /* -1 if there is none of this name. */
    std::int32_t find_input(const std::string &name) const noexcept
    {
        return model_ == nullptr ? -1 : attnrun_model_find_input(model_, name.c_str());
    }
    std::int32_t find_output(const std::string &name) const noexcept
    {
        return model_ == nullptr ? -1 : attnrun_model_find_output(model_, name.c_str());
    }
    void pack() { check(attnrun_model_pack(model_)); }
    /* The memory of a first context and its run, before anything is packed. */
    attnrun_model_need plan(span<const tensor> inputs) const
    {
        auto made = sized<attnrun_model_need>();
        check(attnrun_model_plan(model_, inputs_of(inputs).data(), &made));
        return made;
    }
    attnrun_model *get() const noexcept { return model_; }

    /* In the form of the C calls: one for each input. */
    std::vector<attnrun_tensor> inputs_of(span<const tensor> tensors) const
    {
        std::vector<attnrun_tensor> made;
        if (tensors.size() != static_cast<std::size_t>(info().n_inputs))
            refuse("as many tensors are needed as the model has inputs");
        made.reserve(tensors.size());
        for (const tensor &t : tensors)
            made.push_back(t.raw());
        return made;
    }

private:
    static attnrun_runtime *held(const runtime &in)
    {
        if (in.get() == nullptr) /* which attnrun_model_open() takes as the default one */
            refuse("a model is opened in a runtime that was moved from");
        return in.get();
    }
    model(attnrun_runtime *in, const std::string &path)
    {
        auto source = sized<attnrun_source>();
        source.path = path.c_str();
        check(attnrun_model_open(in, &source, &model_));
    }
    attnrun_model *model_ = nullptr;
};

/* ---- context ------------------------------------------------------------------------- */

/* One run at a time, by one thread at a time; any thread may call cancel(). Holds its model. */
class context {
public:
    explicit context(const model &of) : model_(of)
    {
        check(attnrun_context_create(of.get(), &context_));
    }
    context(context &&from) noexcept
        : model_(std::move(from.model_)), context_(std::exchange(from.context_, nullptr))
    {
    }
    context &operator=(context &&from) noexcept
    {
        context old(std::move(from));
        std::swap(model_, old.model_);
        std::swap(context_, old.context_);
        return *this;
    }
    context(const context &) = delete;
    context &operator=(const context &) = delete;
    ~context() { attnrun_context_destroy(context_); }

    const attnrun::model &of() const noexcept { return model_; }

    /* The elements must live and stay unchanged until the run returns. */
    context &set_input(std::int32_t index, const tensor &from)
    {
        check(attnrun_set_input(context_, index, &from.raw()));
        return *this;
    }
    context &set_input(const std::string &name, const tensor &from)
    {
        return set_input(named(model_.find_input(name), "input", name), from);
    }
    /* The run writes into this memory. */
    context &set_output(std::int32_t index, const tensor &to)
    {
        check(attnrun_set_output(context_, index, &to.raw()));
        return *this;
    }
    context &set_output(const std::string &name, const tensor &to)
    {
        return set_output(named(model_.find_output(name), "output", name), to);
    }
    void forget_output(std::int32_t index)
    {
        check(attnrun_set_output(context_, index, nullptr));
    }
    void choose_outputs(span<const std::int32_t> indices)
    {
        static constexpr std::int32_t none = 0; /* nullptr would choose all */
        check(attnrun_choose_outputs(context_, indices.empty() ? &none : indices.data(),
                                     static_cast<std::int32_t>(indices.size())));
    }
    void choose_all_outputs() { check(attnrun_choose_outputs(context_, nullptr, 0)); }

    void run() { check(attnrun_run(context_, nullptr)); }
    void run(const attnrun_run_options &options) { check(attnrun_run(context_, &options)); }
    attnrun_status try_run(const attnrun_run_options *options = nullptr) noexcept
    {
        return attnrun_run(context_, options);
    }
    /* Views, until the next run. */
    tensor output(std::int32_t index)
    {
        tensor made;
        check(attnrun_output(context_, index, &made.raw()));
        return made;
    }
    tensor output(const std::string &name)
    {
        return output(named(model_.find_output(name), "output", name));
    }
    void watch(const std::string &name) { check(attnrun_watch(context_, name.c_str())); }
    tensor value(const std::string &name)
    {
        tensor made;
        check(attnrun_value(context_, name.c_str(), &made.raw()));
        return made;
    }

    attnrun_plan_info plan(span<const tensor> inputs)
    {
        auto made = sized<attnrun_plan_info>();
        check(attnrun_plan(context_, model_.inputs_of(inputs).data(), &made));
        return made;
    }
    /* Dtype and shape of an output in the last plan. */
    tensor plan_output(std::int32_t index)
    {
        tensor made;
        check(attnrun_plan_output(context_, index, &made.raw()));
        return made;
    }
    void reserve(span<const tensor> inputs)
    {
        check(attnrun_reserve(context_, model_.inputs_of(inputs).data()));
    }
    void set_max_plans(std::int32_t n) { check(attnrun_set_max_plans(context_, n)); }
    /* `memory` begins at a multiple of ATTNRUN_ARENA_ALIGN, and outlives the context. */
    void set_arena(span<std::byte> memory)
    {
        check(attnrun_set_arena(context_, memory.data(),
                                static_cast<std::int64_t>(memory.size())));
    }
    attnrun_memory_info memory() const
    {
        auto made = sized<attnrun_memory_info>();
        check(attnrun_context_memory(context_, &made));
        return made;
    }
    void trim() noexcept { attnrun_trim(context_); }
    void cancel() noexcept { attnrun_cancel(context_); }
    void set_timeout(std::int64_t microseconds)
    {
        check(attnrun_set_timeout(context_, microseconds));
    }

    void add_state(std::int32_t input, std::int32_t output, std::int64_t capacity_bytes = 0)
    {
        check(attnrun_add_state(context_, input, output, capacity_bytes));
    }
    void truncate_state(std::int32_t input, std::int64_t length)
    {
        check(attnrun_truncate_state(context_, input, length));
    }
    void reset_states() noexcept { attnrun_reset_states(context_); }
    void select_sequence(std::int64_t sequence)
    {
        check(attnrun_select_sequence(context_, sequence));
    }
    void drop_sequence(std::int64_t sequence)
    {
        check(attnrun_drop_sequence(context_, sequence));
    }
    void copy_states(context &from, std::int64_t sequence)
    {
        check(attnrun_copy_states(context_, from.context_, sequence));
    }
    void reorder_states(std::int32_t input, std::int32_t axis, span<const std::int64_t> rows)
    {
        check(attnrun_reorder_states(context_, input, axis, rows.data(),
                                     static_cast<std::int64_t>(rows.size())));
    }
    attnrun_context *get() const noexcept { return context_; }

private:
    std::int32_t named(std::int32_t index, const char *what, const std::string &name) const
    {
        if (context_ == nullptr)
            refuse("a context that was moved from is used");
        if (index < 0)
            refuse(("the model has no " + std::string(what) + " '" + name + "'").c_str());
        return index;
    }
    attnrun::model model_;
    attnrun_context *context_ = nullptr;
};

} /* namespace attnrun */

#endif
