/* attnrun.hpp - the classes that tools/examples/embed_server.cpp uses, over ONNX Runtime: the same
 * front, compiled with this folder first, is what the server is measured against. A session is
 * shared by all contexts; each runs it on its own thread. Nothing is planned and no budget holds.
 *
 * ONNX Runtime's interface is a table of functions whose order never changes; gaps stand for those
 * that are not called. Source: the public documentation of OrtApi. */
#ifndef ATTNRUN_ORT_FRONT_HPP
#define ATTNRUN_ORT_FRONT_HPP

#include "../../../runtime/attnrun.hpp"

#include <memory>
#include <string>
#include <vector>

namespace ort_front {

using attnrun::error;
using attnrun::sized;
using attnrun::span;
using attnrun::tensor;

struct ort_status;
struct ort_env;
struct ort_options;
struct ort_session;
struct ort_value;
struct ort_shape;
struct ort_memory;
struct ort_allocator;

struct ort_api {
    void *gap_0[2];
    const char *(*message)(const ort_status *status);
    ort_status *(*create_env)(int level, const char *name, ort_env **env);
    void *gap_4[3];
    ort_status *(*create_session)(const ort_env *env, const char *path, const ort_options *options,
                                  ort_session **session);
    void *gap_8[1];
    ort_status *(*run)(ort_session *session, const void *options, const char *const *inputs,
                       const ort_value *const *values, std::size_t n_inputs,
                       const char *const *outputs, std::size_t n_outputs, ort_value **made);
    ort_status *(*create_options)(ort_options **options);
    void *gap_11[13];
    ort_status *(*set_threads)(ort_options *options, int n);
    void *gap_25[5];
    ort_status *(*input_count)(const ort_session *session, std::size_t *n);
    void *gap_31[5];
    ort_status *(*input_name)(const ort_session *session, std::size_t index,
                              ort_allocator *allocator, char **name);
    ort_status *(*output_name)(const ort_session *session, std::size_t index,
                               ort_allocator *allocator, char **name);
    void *gap_38[11];
    ort_status *(*tensor_of)(const ort_memory *memory, void *data, std::size_t bytes,
                             const std::int64_t *dims, std::size_t rank, int dtype,
                             ort_value **value);
    void *gap_50[1];
    ort_status *(*tensor_data)(ort_value *value, void **data);
    void *gap_52[9];
    ort_status *(*rank)(const ort_shape *shape, std::size_t *rank);
    ort_status *(*dims)(const ort_shape *shape, std::int64_t *dims, std::size_t rank);
    void *gap_63[2];
    ort_status *(*tensor_shape)(const ort_value *value, ort_shape **shape);
    void *gap_66[3];
    ort_status *(*cpu_memory)(int allocator, int type, ort_memory **memory);
    void *gap_70[8];
    ort_status *(*default_allocator)(ort_allocator **allocator);
    void *gap_79[14];
    void (*release_status)(ort_status *status);
    void *gap_94[2];
    void (*release_value)(ort_value *value);
    void *gap_97[2];
    void (*release_shape)(ort_shape *shape);
};
static_assert(offsetof(ort_api, create_session) == 7 * sizeof(void *), "create_session");
static_assert(offsetof(ort_api, tensor_of) == 49 * sizeof(void *), "tensor_of");
static_assert(offsetof(ort_api, tensor_shape) == 65 * sizeof(void *), "tensor_shape");
static_assert(offsetof(ort_api, default_allocator) == 78 * sizeof(void *), "default_allocator");
static_assert(offsetof(ort_api, release_status) == 93 * sizeof(void *), "release_status");
static_assert(offsetof(ort_api, release_shape) == 99 * sizeof(void *), "release_shape");

struct ort_api_base {
    const ort_api *(*get)(std::uint32_t version);
};
extern "C" const ort_api_base *OrtGetApiBase();

inline const ort_api &api()
{
    static const ort_api *const table = OrtGetApiBase()->get(17);
    return *table;
}

/* What a text of the server may cause is E_RANGE here, as there. */
inline void check(ort_status *status)
{
    if (status == nullptr)
        return;
    const std::string said = api().message(status);
    api().release_status(status);
    if (said.find("out of") == std::string::npos)
        throw std::runtime_error(said);
    attnrun::check(ATTNRUN_E_RANGE);
}

class runtime {
public:
    explicit runtime(const attnrun_runtime_options &) {}
    attnrun_runtime_info info() const { return {}; }
};

class model {
public:
    model(const runtime &, const attnrun_source &source)
    {
        ort_options *options;
        ort_allocator *allocator;
        std::size_t n;
        char *name;
        check(api().create_env(3, "front", &env_));
        check(api().create_options(&options));
        check(api().set_threads(options, 1));
        check(api().create_session(env_, source.path, options, &session_));
        check(api().default_allocator(&allocator));
        check(api().input_count(session_, &n));
        for (std::size_t i = 0; i < n; i++) {
            check(api().input_name(session_, i, allocator, &name));
            names_.emplace_back(name);
        }
        check(api().output_name(session_, 0, allocator, &name));
        output_ = name;
    }
    attnrun_model_info info() const
    {
        attnrun_model_info made = {};
        made.n_inputs = static_cast<std::int32_t>(names_.size());
        return made;
    }
    attnrun_value_info input(std::int32_t i) const
    {
        attnrun_value_info made = {};
        made.name = names_[static_cast<std::size_t>(i)].c_str();
        return made;
    }
    attnrun_model_need plan(const std::vector<tensor> &) const { return {}; }

private:
    friend class context;
    ort_env *env_;
    ort_session *session_; /* as long as the process */
    std::vector<std::string> names_;
    std::string output_;
};

class context {
public:
    explicit context(const model &of) : model_(of), inputs_(of.names_.size())
    {
        check(api().cpu_memory(1, 0, &memory_));
    }
    void choose_outputs(span<const std::int32_t>) {}
    void reserve(const std::vector<tensor> &) {}
    void set_input(std::int32_t i, const tensor &x) { inputs_[static_cast<std::size_t>(i)] = x; }
    void run()
    {
        std::vector<ort_value *> values;
        std::vector<const char *> names;
        for (std::size_t i = 0; i < inputs_.size(); i++) {
            const attnrun_tensor &x = inputs_[i].raw();
            values.push_back(nullptr);
            check(api().tensor_of(memory_, x.data, static_cast<std::size_t>(inputs_[i].bytes()),
                                  x.dims, static_cast<std::size_t>(x.rank), x.dtype,
                                  &values.back()));
            names.push_back(model_.names_[i].c_str());
        }
        const char *const output = model_.output_.c_str();
        if (made_ != nullptr)
            api().release_value(made_);
        made_ = nullptr;
        ort_status *status = api().run(model_.session_, nullptr, names.data(), values.data(),
                                       values.size(), &output, 1, &made_);
        for (ort_value *value : values)
            api().release_value(value);
        check(status);
    }
    tensor output(std::int32_t) const
    {
        ort_shape *shape;
        std::size_t rank;
        std::int64_t dims[ATTNRUN_MAX_RANK];
        check(api().tensor_shape(made_, &shape));
        check(api().rank(shape, &rank));
        check(api().dims(shape, dims, rank));
        api().release_shape(shape);
        tensor made = tensor::shaped(ATTNRUN_F32, span<const std::int64_t>(dims, rank));
        check(api().tensor_data(made_, &made.raw().data));
        return made;
    }

private:
    const model &model_;
    ort_memory *memory_;
    std::vector<tensor> inputs_;
    ort_value *made_ = nullptr;
};

} // namespace ort_front

#define attnrun ort_front /* for the source that includes this; attnrun_… stay as they are */

#endif
