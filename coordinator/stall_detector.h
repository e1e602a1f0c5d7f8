// StallDetector: who is late, on which unit, since when. Pure: told what waits and the time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "coordinator/unit.h"

namespace kolo::internal {

struct LateUnit {
  UnitPtr unit;
  Nanos since{0};
  std::vector<int> missing;
};

class StallDetector {
 public:
  struct Verdict {
    std::string warning;           // empty: nothing to say now
    std::vector<UnitKey> expired;  // older than the abort limit
  };

  // Durations; kNever switches that part off.
  StallDetector(Nanos warning, Nanos abort) : warning_(warning), abort_(abort) {}

  // `waiting`: all incomplete units. Each is warned of once, then again after ten times as long;
  // at most one warning a second, of at most ten names.
  Verdict observe(const std::vector<LateUnit>& waiting, Nanos now);
  // When observe() may have something to say about a unit that waits since `since`.
  [[nodiscard]] Nanos next_look(Nanos since, Nanos now) const;

 private:
  Nanos warning_;
  Nanos abort_;
  std::map<UnitKey, Nanos> warned_;  // when each was last warned of
  Nanos last_warning_ = -1h;
};

}  // namespace kolo::internal
