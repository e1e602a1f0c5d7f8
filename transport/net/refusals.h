// RefusalLog: what is said of strangers who were refused, and how often: at most one line per
// source and 10 s, with their number. Pure: no clock, no output. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"

namespace kolo::internal {

class RefusalLog {
 public:
  static constexpr Nanos kFirst = 500ms;  // gathered before a source's first line
  static constexpr Nanos kBetween = 10s;
  static constexpr std::size_t kMaxSources = 64;  // of more, all others count as one

  void note(const std::string& source, const std::string& reason, Nanos now);
  // The lines that are due.
  std::vector<std::string> take(Nanos now);
  // At the end: of the sources of which nothing was said yet.
  std::vector<std::string> take_last();
  [[nodiscard]] bool empty() const { return sources_.empty(); }

 private:
  struct Source {
    std::uint64_t count = 0;  // since the last line
    std::string reason;       // of the last
    Nanos due{};
    bool spoken = false;
  };
  static std::string line(const std::string& name, Source& source);

  std::map<std::string, Source> sources_;
};

}  // namespace kolo::internal
