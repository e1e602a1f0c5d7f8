// WaitPolicy: what a driver does while nothing moves: spin a little, then give the core away, then
// sleep. Where ranks outnumber cores it gives the core away at once: a spinner would hold up the
// very rank it waits for. Where a core that was given away comes back late, others want it: then a
// sleeper, who is woken, does better than one who asks again and again.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace kolo::internal {

class WaitPolicy {
 public:
  enum class Step { kSpin, kYield, kSleep };

  WaitPolicy(Nanos spin, Nanos yield) : spin_(spin), yield_(yield) {}

  // For ranks_on_host processes on `cores` cores.
  static WaitPolicy choose(int ranks_on_host, unsigned cores, Nanos spin) {
    const bool crowded = static_cast<unsigned>(ranks_on_host) > cores;
    return {crowded ? 0ns : spin, std::max<Nanos>(spin, 1ms)};
  }

  // `idle`: how long nothing has moved; `turn`: how long the last turn of it took.
  [[nodiscard]] Step next(Nanos idle, Nanos turn = Nanos::zero()) const {
    constexpr Nanos kLate = 200us;
    if (idle < spin_) return Step::kSpin;
    return idle < yield_ && turn < kLate ? Step::kYield : Step::kSleep;
  }

 private:
  Nanos spin_;
  Nanos yield_;
};

}  // namespace kolo::internal
