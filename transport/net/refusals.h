// RefusalLog: what is said of strangers who were refused, and how often: at most one line per
// source and 10 s, with their number. Pure: no clock, no output. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"

namespace kolo::internal {

enum class RefusalKind {
  kNotKolo,      // other bytes than a handshake's
  kOtherJob,     // of kolo, but of another job or version
  kWrongSecret,  // a wrong proof, or none after it saw this side's
  kUnwanted,     // proved, but not expected here
  kLate,         // no proof in time
  kClosed,       // ended by the peer before its proof
  kPushedOut,    // made room for others
};
inline constexpr std::size_t kRefusalKinds = 7;

// How many were refused, by kind.
struct RefusalCounts {
  std::array<std::uint64_t, kRefusalKinds> by_kind{};

  RefusalCounts& operator+=(const RefusalCounts& other);
  [[nodiscard]] std::uint64_t of(RefusalKind kind) const {
    return by_kind[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::uint64_t total() const;
  // {"not_kolo":0,"other_job":0,"wrong_secret":2,...}
  [[nodiscard]] std::string json() const;
};

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
