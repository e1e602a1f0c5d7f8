#include "tests/fakegpu/census.h"

#include <unistd.h>

#include <cstdio>

namespace fakegpu {

void Census::count_call(std::string_view function) {
  const std::lock_guard lock(mutex_);
  auto found = calls_.find(function);
  if (found == calls_.end()) found = calls_.emplace(function, 0).first;
  ++found->second;
  ++calls_by_thread_[{gettid(), std::string(function)}];
}

long Census::calls(std::string_view function) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(function);
  return found == calls_.end() ? 0 : found->second;
}

long Census::calls_of_this_thread(std::string_view function) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_by_thread_.find({gettid(), std::string(function)});
  return found == calls_by_thread_.end() ? 0 : found->second;
}

void Census::count_host_wait() {
  const std::lock_guard lock(mutex_);
  ++host_waits_[gettid()];
}

long Census::host_waits(long thread_id) {
  const std::lock_guard lock(mutex_);
  long sum = 0;
  for (const auto& [thread, count] : host_waits_) {
    if (thread_id == 0 || thread == (thread_id == -1 ? gettid() : thread_id)) sum += count;
  }
  return sum;
}

void Census::misuse(const std::string& text) {
  std::fprintf(stderr, "fakegpu: misuse (process %d): %s\n", getpid(), text.c_str());
  const std::lock_guard lock(mutex_);
  misuses_.push_back(text);
}

long Census::misuses() {
  const std::lock_guard lock(mutex_);
  return static_cast<long>(misuses_.size() - forgiven_);
}

const char* Census::misuse_text(long index) {
  const std::lock_guard lock(mutex_);
  const std::size_t at = forgiven_ + static_cast<std::size_t>(index);
  return index < 0 || at >= misuses_.size() ? "" : misuses_[at].c_str();
}

void Census::forgive() {
  const std::lock_guard lock(mutex_);
  forgiven_ = misuses_.size();
}

}  // namespace fakegpu
