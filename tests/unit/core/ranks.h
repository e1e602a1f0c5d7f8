// Ranks: the contexts of a job as threads of one process, over loopback, with no launcher.
//
// Contexts are made and ended all at once, each on a thread of its own; on_all() runs a body as
// every rank at once. One thread uses a Ranks.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/context.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {

using Settings = std::map<std::string, std::string>;

class Ranks {
 public:
  explicit Ranks(int size, Settings settings = {}) : size_(size), settings_(std::move(settings)) {
    auto server = RendezvousServer::start("127.0.0.1:0", size, {kJob, kSecret}, 20s);
    EXPECT_TRUE(server.is_ok()) << server.status().to_string();
    server_ = *std::move(server);
    contexts_.resize(static_cast<std::size_t>(size));
    start();
  }
  ~Ranks() { stop(); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  [[nodiscard]] int size() const { return size_; }
  Context& operator[](int rank) { return *contexts_[static_cast<std::size_t>(rank)]; }

  void start() {
    in_parallel([this](int rank) {
      auto context = Context::create(config_of(rank), [](LogLevel, std::string_view) {});
      ASSERT_TRUE(context.is_ok()) << context.status().to_string();
      contexts_[static_cast<std::size_t>(rank)] = *std::move(context);
    });
  }
  // Destroys them, which shuts down those that have not been.
  void stop() {
    in_parallel([this](int rank) { contexts_[static_cast<std::size_t>(rank)].reset(); });
  }
  void destroy(int rank) { contexts_[static_cast<std::size_t>(rank)].reset(); }
  void on_all(const std::function<void(Context&)>& body) {
    in_parallel([&](int rank) { body((*this)[rank]); });
  }

 private:
  static constexpr const char* kJob = "unit test";
  static constexpr const char* kSecret = "a secret of sufficient length";

  Config config_of(int rank) const {
    Config config;
    Settings all = {{"rank", std::to_string(rank)},
                    {"size", std::to_string(size_)},
                    {"local_rank", std::to_string(rank)},
                    {"local_size", std::to_string(size_)},
                    {"launcher", "test"},
                    {"rendezvous", server_->endpoint()},
                    {"job", kJob},
                    {"secret", kSecret},
                    {"start_timeout_ms", "20000"}};
    for (const auto& [key, value] : settings_) all[key] = value;
    for (const auto& [key, value] : all) EXPECT_TRUE(config.set(key, value).is_ok()) << key;
    return config;
  }
  void in_parallel(const std::function<void(int)>& body) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

  int size_;
  Settings settings_;
  std::unique_ptr<RendezvousServer> server_;
  std::vector<std::unique_ptr<Context>> contexts_;
};

// An all-reduce SUM in place.
// The name must outlive the submission.
inline Submission sum_of(std::string_view name, std::vector<std::int32_t>& values) {
  Submission submission;
  submission.name = name;
  submission.input = values.data();
  submission.output = values.data();
  submission.count = values.size();
  submission.dtype = DataType::kInt32;
  return submission;
}

inline Submission barrier(std::string_view name = {}) {
  Submission submission;
  submission.kind = OpKind::kBarrier;
  submission.name = name;
  return submission;
}

inline RequestId submit(Context& context, const Submission& submission) {
  const auto request = context.submit(submission);
  EXPECT_TRUE(request.is_ok()) << request.status().to_string();
  return request ? *request : 0;
}

// Waits; the operation must end.
inline Status finish(Context& context, RequestId request, Nanos limit = 20s) {
  bool done = false;
  Status status = context.wait(request, limit, done);
  EXPECT_TRUE(done) << status.to_string();
  return status;
}

inline void expect_code(const Status& status, StatusCode code) {
  EXPECT_EQ(status.code(), code) << status.to_string();
}

inline void probe(Context& context) {
  std::vector<std::int32_t> values = {context.rank() + 1};
  const Status status = context.run(sum_of("probe", values));
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(values[0], context.size() * (context.size() + 1) / 2);
}

}  // namespace kolo::internal
