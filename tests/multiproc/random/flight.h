// Flight: one operation on this rank, from its memory to the check of what came out.
//
// Built and checked by one thread; submitted by any one, or in another's callback. A failed check
// prints what, where and the command that does it again, and ends the process.
#pragma once

#include <kolo/kolo.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/multiproc/random/memory.h"
#include "tests/multiproc/random/program.h"
#include "tests/multiproc/random/values.h"

namespace kolo::programs {

inline constexpr int kFailed = 90;
inline constexpr std::int64_t kLimitMs = 20'000;

// This rank, and what it runs now.
struct Here {
  kolo_context* context = nullptr;
  int rank = 0;
  int size = 1;
  std::vector<int> hosts;  // by rank
  std::string replay;      // a command
  const Program* program = nullptr;
  Abilities abilities;
  std::vector<std::int32_t> psets;  // by index of Program::sets
};

[[noreturn]] void fail(const Here& here, const std::string& what);
void expect(const Here& here, kolo_status got, kolo_status want, const std::string& what);

enum class Finish {
  kWait,
  kTest,
  kCallback,  // and the request is given up
  kBoth,      // a callback and a wait
  kBlock,     // no request
  kGroup,     // a member without a request of its own
};

class Flight {
 public:
  // `run.operation` is the operation as all agree, and outlives this.
  Flight(Here& here, Run run, Finish finish, Rng& random);
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight();

  // What must come; before the submission.
  void set_expected(kolo_status status, bool refused_here) {
    expected_ = status;
    refused_here_ = refused_here;
  }
  void add_follower(Flight* follower) { followers_.push_back(follower); }

  // The call; of a persistent one the first time, then its start. Before each further start:
  // renew, with the key of its new values.
  void submit();
  void renew(std::uint64_t key);
  // Until it is complete, however that is learnt.
  void finish();
  void check();

  [[nodiscard]] const Operation& operation() const { return *run_.operation; }
  [[nodiscard]] Finish how() const { return finish_; }
  [[nodiscard]] bool refused() const { return refused_here_ && is_wrong(operation(), here_.rank); }
  // A plain wait that can be done for it, by kolo_wait_all.
  [[nodiscard]] bool waits_plainly() const {
    return finish_ == Finish::kWait && expected_ == KOLO_OK && !finished_ &&
           !operation().persistent && !operation().allocate;
  }
  [[nodiscard]] kolo_request& request() { return request_; }
  void set_finished(kolo_status status) {
    status_ = status;
    finished_ = true;
  }
  [[nodiscard]] const std::byte* output() const { return static_cast<std::byte*>(written_); }
  [[nodiscard]] std::string text() const;

 private:
  static void on_done(kolo_status status, const char* text, void* user);
  void make_memory(Rng& random);
  void fill();
  kolo_options options();
  kolo_status call(const kolo_options& options, kolo_request* request);
  kolo_status call_set(const kolo_options& options, kolo_request* request);
  void await_callback();
  void check_output();
  void check_input() const;
  void check_result() const;
  void check_allocated();
  void check_untouched() const;
  void check_set() const;
  void compare(const std::byte* got) const;
  [[nodiscard]] std::size_t count_argument() const;
  [[nodiscard]] bool has_callback() const {
    return finish_ == Finish::kCallback || finish_ == Finish::kBoth;
  }

  Here& here_;
  Run run_;
  Operation mine_;
  std::size_t place_;
  Finish finish_;
  bool in_place_ = false;
  bool null_input_ = false;
  Block input_;  // in place: the larger of both
  Block output_;
  const void* read_ = nullptr;
  void* written_ = nullptr;
  Bytes input_before_;
  Bytes output_before_;
  std::string label_;
  std::vector<std::int64_t> shape_;
  std::vector<std::size_t> send_counts_;
  std::vector<std::size_t> receive_counts_;
  std::vector<std::int32_t> set_ranks_;
  bool asks_result_ = false;
  kolo_result result_ = {};
  kolo_request request_ = KOLO_REQUEST_NULL;
  std::atomic<bool> submitted_{false};
  std::atomic<int> calls_{0};
  std::atomic<kolo_status> told_{KOLO_INTERNAL};
  int submissions_ = 0;
  bool finished_ = false;
  kolo_status status_ = KOLO_INTERNAL;
  kolo_status expected_ = KOLO_OK;
  bool refused_here_ = false;
  std::vector<Flight*> followers_;
};

}  // namespace kolo::programs
