#include "transport/net/refusals.h"

#include <numeric>
#include <utility>

namespace kolo::internal {

RefusalCounts& RefusalCounts::operator+=(const RefusalCounts& other) {
  for (std::size_t kind = 0; kind < kRefusalKinds; ++kind) by_kind[kind] += other.by_kind[kind];
  return *this;
}

std::uint64_t RefusalCounts::total() const {
  return std::accumulate(by_kind.begin(), by_kind.end(), std::uint64_t{0});
}

std::string RefusalCounts::json() const {
  constexpr std::array<const char*, kRefusalKinds> kNames = {
      "not_kolo", "other_job", "wrong_secret", "unwanted", "late", "closed", "pushed_out"};
  std::string text = "{";
  for (std::size_t kind = 0; kind < kRefusalKinds; ++kind) {
    text += (kind == 0 ? "\"" : ",\"") + std::string(kNames[kind]) +
            "\":" + std::to_string(by_kind[kind]);
  }
  return text + "}";
}

void RefusalLog::note(const std::string& source, const std::string& reason, Nanos now) {
  const bool full = sources_.size() >= kMaxSources && !sources_.contains(source);
  const auto [at, is_new] = sources_.try_emplace(full ? "other addresses" : source);
  if (is_new) at->second.due = now + kFirst;
  ++at->second.count;
  at->second.reason = reason;
}

std::string RefusalLog::line(const std::string& name, Source& source) {
  source.spoken = true;
  return "refused " + std::to_string(std::exchange(source.count, 0)) + " connection(s) from " +
         name + " that did not prove the job's secret; the last: " + source.reason;
}

std::vector<std::string> RefusalLog::take(Nanos now) {
  std::vector<std::string> lines;
  for (auto at = sources_.begin(); at != sources_.end();) {
    Source& source = at->second;
    if (now < source.due) {
      ++at;
    } else if (source.count == 0) {  // quiet since the last line
      at = sources_.erase(at);
    } else {
      lines.push_back(line(at->first, source));
      source.due = now + kBetween;
      ++at;
    }
  }
  return lines;
}

std::vector<std::string> RefusalLog::take_last() {
  std::vector<std::string> lines;
  for (auto& [name, source] : sources_) {
    if (!source.spoken) lines.push_back(line(name, source));
  }
  sources_.clear();
  return lines;
}

}  // namespace kolo::internal
