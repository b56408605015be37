/* embed_server.cpp - embeddings over HTTP:
 *
 *     embed_server model.onnx [--port N] [--contexts N] [--batch N] [--tokens N]
 *                             [--wait-us N] [--queue N] [--ragged 0|1]
 *
 * The model is a text encoder: ids i64[B,S] and, where it has them, a mask and token types, both
 * i64[B,S], to f32[B,S,W] (averaged over the tokens of each text here) or f32[B,W]. Texts come as
 * numbers of tokens; vectors go out with length 1.
 *
 *     POST /embed    {"ids": [101, 7592, 102]}  ->  {"embedding": [0.1, ...]}
 *     GET  /health   200 "ok", 503 while it stops
 *     GET  /metrics  counters, for Prometheus
 *
 *   threads of HTTP ──▶ queue (at most --queue, else 503) ──▶ --contexts threads, each with a
 *                                                            context of its own
 *
 * A context takes what waits, up to --batch texts, --wait-us after the first one came at the
 * latest, pads them to the longest and runs them, on their tokens alone where the model is an
 * encoder that can (not with --ragged 0). Before anything is packed the plan of the
 * largest batch says what memory all of that takes; the runtime's budget is that, so that the
 * process holds no more. SIGTERM and SIGINT end it once every text that was taken is answered.
 *
 *     c++ -std=c++17 embed_server.cpp $(pkg-config --cflags --libs attnrun cpp-httplib) */
#include <attnrun.hpp>
#include <httplib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <limits>
#include <malloc.h>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace
{

using clock_type = std::chrono::steady_clock;

constexpr int PATIENCE_SECONDS =
    20; /* with a client that says nothing; a stop waits as long */

struct options {
    std::string model;
    long port = 8080, contexts = 2, batch = 16, tokens = 256, wait_us = 2000, queue = 256,
         ragged = 1;
};

struct request {
    std::vector<std::int64_t> ids;
    std::promise<std::vector<float>> answer;
    clock_type::time_point came;
};

struct counters {
    std::atomic<std::uint64_t> answered{ 0 }, refused{ 0 }, failed{ 0 }, batches{ 0 },
        padded{ 0 }, tokens{ 0 }, microseconds{ 0 };
};

/* ---- requests that wait ---- */

class waiting
{
  public:
    waiting(std::size_t limit, std::size_t batch, std::chrono::microseconds wait)
        : limit_(limit), batch_(batch), wait_(wait)
    {
    }
    /* False where the queue is full, or closed. */
    bool put(std::unique_ptr<request> one)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (closed_ || queue_.size() >= limit_)
            return false;
        queue_.push_back(std::move(one));
        changed_.notify_all();
        return true;
    }
    /* The next batch; empty once the queue is closed and all is taken. */
    std::vector<std::unique_ptr<request>> take()
    {
        std::vector<std::unique_ptr<request>> taken;
        std::unique_lock<std::mutex> lock(mutex_);
        do {
            changed_.wait(lock, [this] { return closed_ || !queue_.empty(); });
            if (queue_.empty())
                return taken;
            changed_.wait_until(lock, queue_.front()->came + wait_, [this] {
                return hurries_ || queue_.size() >= batch_ || queue_.empty();
            });
        } while (queue_.empty()); /* another context was faster */
        while (!queue_.empty() && taken.size() < batch_) {
            taken.push_back(std::move(queue_.front()));
            queue_.pop_front();
        }
        return taken;
    }
    /* What waits, and what is still put, goes at once, however small the batch. */
    void hurry()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        hurries_ = true;
        changed_.notify_all();
    }
    void close()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        hurries_ = closed_ = true;
        changed_.notify_all();
    }
    std::size_t size()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return queue_.size();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::unique_ptr<request>> queue_;
    std::size_t limit_, batch_;
    std::chrono::microseconds wait_;
    bool hurries_ = false, closed_ = false;
};

/* ---- the model ---- */

enum part { IDS, MASK, TYPES };

/* By its name; the first input is the ids in any case. */
part part_of(std::int32_t index, const std::string &name)
{
    if (index == 0 ||
        name.find("ids") == name.size() - std::min<std::size_t>(3, name.size()))
        return name.find("type") == std::string::npos ? IDS : TYPES;
    return name.find("mask") != std::string::npos ? MASK : TYPES;
}

/* One context with its buffers: inputs of the largest batch, an output that runs write to. */
class encoder
{
  public:
    encoder(const attnrun::model &model, const options &given) : context_(model)
    {
        const std::size_t room = static_cast<std::size_t>(given.batch * given.tokens);
        for (std::int32_t i = 0; i < model.info().n_inputs; i++) {
            parts_.push_back(part_of(i, model.input(i).name));
            buffers_.emplace_back(room);
        }
        const std::int32_t first = 0;
        context_.choose_outputs(attnrun::span<const std::int32_t>(&first, 1));
        context_.reserve(shapes(model, given.batch, given.tokens));
    }

    static std::vector<attnrun::tensor> shapes(const attnrun::model &model,
                                               std::int64_t batch, std::int64_t tokens)
    {
        return std::vector<attnrun::tensor>(
            static_cast<std::size_t>(model.info().n_inputs),
            attnrun::tensor::shaped(ATTNRUN_I64, { batch, tokens }));
    }

    std::vector<std::vector<float>>
    run(const std::vector<std::unique_ptr<request>> &texts)
    {
        std::size_t longest = 1;
        for (const auto &text : texts)
            longest = std::max(longest, text->ids.size());
        const std::array<std::int64_t, 2> shape = {
            static_cast<std::int64_t>(texts.size()), static_cast<std::int64_t>(longest)
        };
        for (std::size_t i = 0; i < parts_.size(); i++) {
            fill(buffers_[i], parts_[i], texts, longest);
            attnrun::tensor input = attnrun::tensor::shaped(ATTNRUN_I64, shape);
            input.raw().data = buffers_[i].data();
            context_.set_input(static_cast<std::int32_t>(i), input);
        }
        context_.run();
        return vectors(context_.output(0), texts, longest);
    }

  private:
    static void fill(std::vector<std::int64_t> &buffer, part what,
                     const std::vector<std::unique_ptr<request>> &texts,
                     std::size_t longest)
    {
        for (std::size_t b = 0; b < texts.size(); b++)
            for (std::size_t s = 0; s < longest; s++) {
                const bool there = s < texts[b]->ids.size();
                buffer[b * longest + s] = !there || what == TYPES ? 0
                                          : what == MASK          ? 1
                                                                  : texts[b]->ids[s];
            }
    }

    static std::vector<std::vector<float>>
    vectors(const attnrun::tensor &out,
            const std::vector<std::unique_ptr<request>> &texts, std::size_t longest)
    {
        const attnrun::span<float> values = out.data<float>();
        const std::size_t width =
            static_cast<std::size_t>(out.shape()[out.shape().size() - 1]);
        const bool each = out.shape().size() == 3; /* a vector of each token */
        std::vector<std::vector<float>> made;
        for (std::size_t b = 0; b < texts.size(); b++) {
            std::vector<double> sum(width, 0);
            const std::size_t rows = each ? texts[b]->ids.size() : 1;
            const float *from = values.data() + b * width * (each ? longest : 1);
            for (std::size_t s = 0; s < rows; s++)
                for (std::size_t w = 0; w < width; w++)
                    sum[w] += static_cast<double>(from[s * width + w]);
            double square = 0;
            for (double v : sum)
                square += v * v;
            const double scale = square > 0 ? 1 / std::sqrt(square) : 0;
            made.emplace_back(width);
            for (std::size_t w = 0; w < width; w++)
                made.back()[w] = static_cast<float>(sum[w] * scale);
        }
        return made;
    }

    attnrun::context context_;
    std::vector<part> parts_;
    std::vector<std::vector<std::int64_t>> buffers_;
};

/* A context's thread: batches until the queue is closed. */
void serve(encoder &own, waiting &queue, counters &count)
{
    for (auto texts = queue.take(); !texts.empty(); texts = queue.take()) {
        std::size_t longest = 0, tokens = 0;
        for (const auto &text : texts) {
            longest = std::max(longest, text->ids.size());
            tokens += text->ids.size();
        }
        try {
            auto made = own.run(texts);
            for (std::size_t i = 0; i < texts.size(); i++)
                texts[i]->answer.set_value(std::move(made[i]));
        } catch (...) {
            for (auto &text : texts)
                text->answer.set_exception(std::current_exception());
        }
        count.batches++;
        count.tokens += tokens;
        count.padded += longest * texts.size() - tokens;
    }
}

/* ---- HTTP ---- */

/* {"ids": [1, 2, 3]}; false where the text is anything else. */
bool read_ids(const std::string &body, std::size_t most, std::vector<std::int64_t> &ids)
{
    const char *at = body.c_str();
    const auto skip = [&at](const char *word) {
        at += std::strspn(at, " \t\r\n");
        const std::size_t n = std::strlen(word);
        if (std::strncmp(at, word, n) != 0)
            return false;
        at += n;
        return true;
    };
    if (!skip("{") || !skip("\"ids\"") || !skip(":") || !skip("["))
        return false;
    do {
        char *end;
        at += std::strspn(at, " \t\r\n");
        if (*at < '0' || *at > '9' || ids.size() == most)
            return false;
        errno = 0;
        ids.push_back(std::strtoll(at, &end, 10));
        if (errno != 0)
            return false;
        at = end;
    } while (skip(","));
    if (!skip("]") || !skip("}"))
        return false;
    at += std::strspn(at, " \t\r\n");
    return *at == 0;
}

void answer(httplib::Response &response, int status, const std::string &text)
{
    response.status = status;
    response.set_content("{\"error\": \"" + text + "\"}\n", "application/json");
}

void embed(const httplib::Request &asked, httplib::Response &response,
           const options &given, waiting &queue, counters &count)
{
    auto one = std::make_unique<request>();
    one->came = clock_type::now();
    if (!read_ids(asked.body, static_cast<std::size_t>(given.tokens), one->ids)) {
        count.refused++;
        return answer(response, 400,
                      "the body is not {\\\"ids\\\": [numbers]} of 1 to " +
                          std::to_string(given.tokens) + " tokens");
    }
    const auto came = one->came;
    std::future<std::vector<float>> made = one->answer.get_future();
    if (!queue.put(std::move(one))) {
        count.refused++;
        return answer(response, 503, "too many requests wait");
    }
    try {
        std::string text = "{\"embedding\": [";
        char number[32];
        const char *comma = "";
        for (float v : made.get()) {
            std::snprintf(number, sizeof number, "%s%.9g", comma, static_cast<double>(v));
            text += number;
            comma = ", ";
        }
        response.set_content(text + "]}\n", "application/json");
        count.answered++;
    } catch (const attnrun::error &e) {
        count.failed++;
        const bool asker = e.status() == ATTNRUN_E_RANGE || e.status() == ATTNRUN_E_INPUT;
        answer(response, asker ? 400 : 500, attnrun_status_name(e.status()));
    }
    count.microseconds += static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(clock_type::now() - came)
            .count());
}

std::string metrics(const attnrun::runtime &runtime, waiting &queue,
                    const counters &count)
{
    const attnrun_runtime_info info = runtime.info();
    std::string text;
    const auto line = [&text](const char *name, const char *kind, std::uint64_t value) {
        text += std::string("# TYPE embed_") + name + " " + kind + "\nembed_" + name +
                " " + std::to_string(value) + "\n";
    };
    line("answered_total", "counter", count.answered);
    line("refused_total", "counter", count.refused);
    line("failed_total", "counter", count.failed);
    line("batches_total", "counter", count.batches);
    line("tokens_total", "counter", count.tokens);
    line("padding_tokens_total", "counter", count.padded);
    line("answer_microseconds_total", "counter", count.microseconds);
    line("waiting", "gauge", queue.size());
    line("memory_bytes", "gauge", info.used_memory);
    line("memory_peak_bytes", "gauge", info.peak_memory);
    line("memory_budget_bytes", "gauge", info.max_memory);
    return text;
}

/* ---- the program ---- */

/* Rows of padding are never read, so that a model may leave them out. */
attnrun::model open_model(const attnrun::runtime &runtime, const options &given)
{
    auto source = attnrun::sized<attnrun_source>();
    source.path = given.model.c_str();
    source.ragged = given.ragged != 0 ? ATTNRUN_RAGGED_ON : ATTNRUN_RAGGED_OFF;
    try {
        return attnrun::model(runtime, source);
    } catch (const attnrun::error &e) {
        if (source.ragged == ATTNRUN_RAGGED_OFF || e.status() != ATTNRUN_E_UNSUPPORTED)
            throw;
    }
    source.ragged = ATTNRUN_RAGGED_OFF; /* the model is no such encoder */
    return attnrun::model(runtime, source);
}

/* What all contexts take: the packed weights once, the rest of a context each. */
std::uint64_t memory_of(const options &given)
{
    const attnrun::runtime runtime(attnrun::sized<attnrun_runtime_options>());
    const attnrun::model model = open_model(runtime, given);
    const attnrun_model_need need =
        model.plan(encoder::shapes(model, given.batch, given.tokens));
    if (need.n_unbounded_steps > 0)
        throw std::runtime_error("the model has steps whose memory no plan bounds");
    const std::int64_t each =
        need.context_bytes + need.arena_bytes + need.side_heap_bytes;
    /* A context keeps plans of up to 16 shapes, and may hold an arena of an eighth more. A plan that
     * takes the place of another is made in its memory, which may be larger than it needs, and what
     * it was made with is kept for the next: twice the plans covers that. */
    const std::int64_t plans = 2 * 16 * need.context_bytes + need.arena_bytes / 8;
    return static_cast<std::uint64_t>(need.total_bytes + (given.contexts - 1) * each +
                                      given.contexts * plans);
}

bool read_options(int argc, char **argv, options &given)
{
    const struct {
        const char *name;
        long &value, max;
    } known[] = { { "--port", given.port, 65535 },
                  { "--contexts", given.contexts, 1000000 },
                  { "--batch", given.batch, 1000000 },
                  { "--tokens", given.tokens, 1000000 },
                  { "--wait-us", given.wait_us, 60000000 },
                  { "--queue", given.queue, 1000000 },
                  { "--ragged", given.ragged, 1 } };
    for (int i = 1; i < argc; i++) {
        bool found = false;
        for (const auto &option : known)
            if (std::strcmp(argv[i], option.name) == 0 && i + 1 < argc) {
                char *end;
                option.value = std::strtol(argv[++i], &end, 10);
                found = *end == 0 && option.value >= 0 && option.value <= option.max;
                break;
            }
        if (!found && (argv[i][0] == '-' || !given.model.empty()))
            return false;
        if (!found)
            given.model = argv[i];
    }
    return !given.model.empty() && given.contexts > 0 && given.batch > 0 &&
           given.tokens > 0;
}

/* Threads of HTTP, one for each connection that is open: made when there is no idle one. The
 * library's pool gives each connection to the thread that has waited longest, so that the stacks of
 * all become resident. */
class connections : public httplib::TaskQueue
{
    using queued = decltype(std::declval<httplib::TaskQueue &>().enqueue(nullptr));

  public:
    explicit connections(std::size_t most) : most_(most) {}
    queued enqueue(std::function<void()> one) override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        waiting_.push_back(std::move(one));
        if (idle_ < waiting_.size() && threads_.size() < most_)
            threads_.emplace_back([this] { work(); });
        changed_.notify_one();
        return static_cast<queued>(true);
    }
    void shutdown() override
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            closed_ = true;
            changed_.notify_all();
        }
        for (std::thread &thread : threads_)
            thread.join();
    }

  private:
    void work()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            idle_++;
            changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
            idle_--;
            if (waiting_.empty())
                return;
            const std::function<void()> one = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            one();
            lock.lock();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    std::vector<std::thread> threads_;
    std::size_t most_, idle_ = 0;
    bool closed_ = false;
};

/* The library's own limits lose requests under load: it closes a connection after 5 requests or 5
 * seconds, gives up on a body that is 5 seconds late, and lets the system refuse all but 5 of
 * those who connect at one time. */
void keep_connections(httplib::Server &server, std::size_t clients, socket_t &listening)
{
    server.new_task_queue = [clients] { return new connections(clients); };
    server.set_tcp_nodelay(true);
    server.set_keep_alive_max_count(std::numeric_limits<std::size_t>::max());
    server.set_keep_alive_timeout(PATIENCE_SECONDS);
    server.set_read_timeout(PATIENCE_SECONDS);
    server.set_write_timeout(PATIENCE_SECONDS);
    server.set_socket_options([&listening](socket_t socket) {
        const int yes = 1;
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        listening = socket;
    });
}

int run(const options &given)
{
    /* One heap for all threads of HTTP: one each would keep what it freed. */
    mallopt(M_ARENA_MAX, 1);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr); /* for all threads: main waits for them */

    auto wanted = attnrun::sized<attnrun_runtime_options>();
    wanted.threads = 1; /* a context each does better than sharing one run */
    wanted.max_memory = memory_of(given);
    const attnrun::runtime runtime(wanted);
    const attnrun::model model = open_model(runtime, given);
    std::deque<encoder> encoders;
    for (long i = 0; i < given.contexts; i++)
        encoders.emplace_back(model, given);

    counters count;
    waiting queue(static_cast<std::size_t>(given.queue),
                  static_cast<std::size_t>(given.batch),
                  std::chrono::microseconds(given.wait_us));
    std::vector<std::thread> threads;
    for (encoder &own : encoders)
        threads.emplace_back([&own, &queue, &count] { serve(own, queue, count); });

    std::atomic<bool> stopping{ false };
    httplib::Server server;
    const std::size_t clients = static_cast<std::size_t>(given.queue + 8);
    socket_t listening = INVALID_SOCKET;
    keep_connections(server, clients, listening);
    server.set_post_routing_handler(
        [&stopping](const httplib::Request &, httplib::Response &response) {
            if (stopping)
                response.set_header("Connection", "close");
        });
    server.set_payload_max_length(static_cast<std::size_t>(given.tokens) * 24 + 64);
    server.Post("/embed",
                [&](const httplib::Request &asked, httplib::Response &response) {
                    embed(asked, response, given, queue, count);
                });
    server.Get("/health", [&](const httplib::Request &, httplib::Response &response) {
        response.status = stopping ? 503 : 200;
        response.set_content(stopping ? "stopping\n" : "ok\n", "text/plain");
    });
    server.Get("/metrics", [&](const httplib::Request &, httplib::Response &response) {
        response.set_content(metrics(runtime, queue, count), "text/plain; version=0.0.4");
    });
    int port = static_cast<int>(given.port);
    if (port == 0)
        port = server.bind_to_any_port("127.0.0.1");
    else if (!server.bind_to_port("127.0.0.1", port))
        port = -1;
    if (port < 0)
        throw std::runtime_error("the port is taken");
    ::listen(listening, static_cast<int>(clients)); /* the library lets 5 wait */
    std::thread listener([&server] { server.listen_after_bind(); });
    std::printf("listening on 127.0.0.1:%d, at most %" PRIu64 " bytes\n", port,
                wanted.max_memory);
    std::fflush(stdout);

    int signal_number;
    sigwait(&ends, &signal_number);
    stopping = true;
    queue.hurry();
    server.stop(); /* takes no more connections, and waits for those that it has */
    listener.join();
    queue.close();
    for (std::thread &thread : threads)
        thread.join();
    std::printf("answered %" PRIu64 ", refused %" PRIu64 ", failed %" PRIu64 "\n",
                count.answered.load(), count.refused.load(), count.failed.load());
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    options given;
    if (!read_options(argc, argv, given)) {
        std::fprintf(stderr, "usage: embed_server model.onnx [--port N] [--contexts N] "
                             "[--batch N] [--tokens N] [--wait-us N] [--queue N] "
                             "[--ragged 0|1]\n");
        return 2;
    }
    try {
        return run(given);
    } catch (const attnrun::error &e) {
        std::fprintf(stderr, "embed_server: %s\n", e.what());
        return attnrun_status_exit(e.status());
    } catch (const std::exception &e) {
        std::fprintf(stderr, "embed_server: %s\n", e.what());
        return 1;
    }
}
