// World: drives the ranks of a job, in this thread in a seeded random order, or each in its own.
#pragma once

#include <xmmintrin.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/conformance/job.h"

namespace kolo::internal {

class World {
 public:
  World(const CollectiveRoad& road, const std::vector<int>& host_index, std::uint64_t seed)
      : job_(road.make(host_index, seed)), threads_(road.threads) {}

  [[nodiscard]] int size() const { return job_->size(); }
  std::mt19937_64& random() { return job_->random(); }
  CollectiveJob& job() { return *job_; }
  // The floating-point environment of whoever drives the ranks.
  void set_mxcsr(unsigned mxcsr) { mxcsr_ = mxcsr; }

  // Starts `start(rank)` on every rank, each at a time of its own, and drives them to their ends.
  // The statuses in rank order; nothing if that took too long.
  using Start = std::function<Operation&(std::size_t rank)>;
  // Called when a rank's operation is done, by who drives it: its tensors are its own again.
  using Ended = std::function<void(std::size_t rank)>;
  std::optional<std::vector<Status>> run(
      const Start& start, const Ended& ended = [](std::size_t) {}) {
    return threads_ ? run_on_threads(start, ended) : run_on_one(start, ended);
  }

 private:
  std::optional<std::vector<Status>> run_on_one(const Start& start, const Ended& ended) {
    const auto n = static_cast<std::size_t>(size());
    std::vector<Operation*> operations(n);
    std::vector<std::optional<Status>> ends(n);
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(mxcsr_);
    const bool over = drive_until(
        [&] {
          return std::all_of(ends.begin(), ends.end(), [](auto& e) { return e.has_value(); });
        },
        [&] {
          const std::size_t r = random()() % n;
          if (ends[r]) return;
          if (operations[r] == nullptr) operations[r] = &start(r);
          const Result<Progress> progress = operations[r]->advance();
          if (!progress) {
            ends[r] = progress.status();
          } else if (*progress == Progress::kDone) {
            ends[r] = Status::ok();
            ended(r);
          } else if (*progress == Progress::kBlocked) {
            job_->idle(r);
          }
        });
    _mm_setcsr(saved);
    if (!over) return std::nullopt;
    std::vector<Status> statuses;
    for (auto& end : ends) statuses.push_back(*end);
    return statuses;
  }

  std::optional<std::vector<Status>> run_on_threads(const Start& start, const Ended& ended) {
    std::vector<Status> statuses(static_cast<std::size_t>(size()));
    std::vector<int> over(statuses.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < statuses.size(); ++r) {
      threads.emplace_back([&, r] {
        _mm_setcsr(mxcsr_);
        Operation& operation = start(r);
        over[r] = drive_until([&] { return over[r] != 0; },
                              [&] {
                                const Result<Progress> progress = operation.advance();
                                if (!progress) statuses[r] = progress.status();
                                if (progress.is_ok() && *progress == Progress::kDone) ended(r);
                                if (!progress || *progress == Progress::kDone) {
                                  over[r] = 1;
                                } else if (*progress == Progress::kBlocked) {
                                  job_->idle(r);
                                }
                              })
                      ? 1
                      : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (std::find(over.begin(), over.end(), 0) != over.end()) return std::nullopt;
    return statuses;
  }

  std::unique_ptr<CollectiveJob> job_;
  bool threads_;
  unsigned mxcsr_ = _mm_getcsr();
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr unsigned kSanitizedSlowdown = 5;
#else
inline constexpr unsigned kSanitizedSlowdown = 1;
#endif

}  // namespace kolo::internal
