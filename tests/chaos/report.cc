#include "tests/chaos/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kolo::chaos {
namespace {

// The value below which a share of the sorted values lies.
double quantile(const std::vector<double>& sorted, double share) {
  const auto place =
      static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(place, 1, sorted.size()) - 1];
}

std::string line_of(const std::string& name, std::vector<double> values) {
  char line[160];
  if (values.empty()) {
    std::snprintf(line, sizeof line, "%-22s %7d\n", name.c_str(), 0);
    return line;
  }
  std::sort(values.begin(), values.end());
  std::snprintf(line, sizeof line, "%-22s %7zu %10.3f %10.3f %10.3f %10.3f\n", name.c_str(),
                values.size(), quantile(values, 0.5), quantile(values, 0.99),
                quantile(values, 0.999), values.back());
  return line;
}

}  // namespace

void Report::add(const Observed& observed, const std::vector<std::string>& complaints) {
  constexpr double kNanosPerMs = 1e6;
  const Plan& plan = observed.plan;
  Row& row = rows_[std::string(word_of(plan.fault)) + ", " + word_of(plan.moment)];
  ++row.trials;
  if (complaints.empty())
    ++row.right;
  else
    ++failures_;
  if (plan.fault == Fault::kNone) ++row.missed;
  std::vector<double> told;
  for (const Latency& latency : latencies(observed)) {
    (latency.called_later ? row.later_ms : told)
        .push_back(static_cast<double>(latency.ns) / kNanosPerMs);
  }
  row.told_ms.insert(row.told_ms.end(), told.begin(), told.end());
  if (told.empty()) return;
  const auto [first, last] = std::minmax_element(told.begin(), told.end());
  first_ms_.push_back(*first);
  last_ms_.push_back(*last);
}

std::string Report::table() const {
  std::string text = "fault, moment           trials   right\n";
  std::vector<double> told;
  std::vector<double> later;
  for (const auto& [name, row] : rows_) {
    char line[160];
    std::snprintf(line, sizeof line, "%-22s %7d %7d\n", name.c_str(), row.trials, row.right);
    text += line;
    told.insert(told.end(), row.told_ms.begin(), row.told_ms.end());
    later.insert(later.end(), row.later_ms.begin(), row.later_ms.end());
  }
  text += "\nms until it is told      count        p50        p99      p99.9        max\n";
  for (const auto& [name, row] : rows_) {
    if (!row.told_ms.empty()) text += line_of(name, row.told_ms);
  }
  text += line_of("all, from the fault", told);
  text += line_of("the first of a trial", first_ms_);
  text += line_of("the last of a trial", last_ms_);
  text += line_of("calls made after it", later);
  return text;
}

}  // namespace kolo::chaos
