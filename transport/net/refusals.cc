#include "transport/net/refusals.h"

#include <utility>

namespace kolo::internal {

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
