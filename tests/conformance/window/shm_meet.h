// What tests of the shm road share: options of a fresh meeting place, and ranks that meet as
// threads of this process.
#pragma once

#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "transport/shm/shm_window.h"

namespace kolo::internal {

// A place nobody else uses: of this process, and new with every call.
inline std::string fresh_place() {
  static std::atomic<int> count{0};
  return "test|" + std::to_string(::getpid()) + "|" + std::to_string(++count);
}

inline ShmOptions shm_options(int rank, int size, const std::string& place,
                              std::size_t bytes = 1 << 20) {
  ShmOptions options;
  options.rank = rank;
  options.size = size;
  options.place = place;
  options.identity = {"test job", "a secret of sufficient length"};
  options.bytes = bytes;
  return options;
}

using MetWindow = Result<std::unique_ptr<Window>>;

inline std::vector<MetWindow> meet_in_threads(const std::vector<ShmOptions>& options) {
  std::vector<std::future<MetWindow>> futures;
  for (const ShmOptions& one : options) {
    futures.push_back(std::async(std::launch::async, [one] { return meet_shm(one); }));
  }
  std::vector<MetWindow> met;
  for (auto& future : futures) met.push_back(future.get());
  return met;
}

}  // namespace kolo::internal
