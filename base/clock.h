// Time as an argument: pure code takes a Nanos `now`; only edges hold a Clock.
#pragma once

#include <chrono>

namespace kolo::internal {

using Nanos = std::chrono::nanoseconds;  // since an arbitrary start; never the wall clock
using namespace std::chrono_literals;

inline constexpr Nanos kNever = Nanos::max();

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Nanos now() const = 0;
};

// CLOCK_MONOTONIC. Safe from any thread.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
};

// A clock that moves only when told: for tests and the simulator. One thread.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }
  void set(Nanos to) { now_ = to; }

 private:
  Nanos now_{0};
};

}  // namespace kolo::internal
