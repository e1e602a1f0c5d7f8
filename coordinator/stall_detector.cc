#include "coordinator/stall_detector.h"

#include <algorithm>
#include <cstdio>

namespace kolo::internal {
namespace {

constexpr Nanos kBetweenWarnings = 1s;
constexpr int kReminderFactor = 10;
constexpr std::size_t kNamesShown = 10;
constexpr std::size_t kNameBytesShown = 100;
constexpr std::size_t kLineBytes = 1900;  // with the words around it, a warning is below 2 KiB

std::string seconds_text(Nanos duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string line_of(const LateUnit& late, Nanos now) {
  std::string name = unit_text(*late.unit);
  if (name.size() > kNameBytesShown) name = name.substr(0, kNameBytesShown) + "...'";
  return name + " missing on " + ranks_text(late.missing) + " for " +
         seconds_text(now - late.since);
}

std::string warning_text(const std::vector<const LateUnit*>& late, Nanos now) {
  std::string text = "stall: " + std::to_string(late.size()) +
                     (late.size() == 1 ? " operation waits" : " operations wait") +
                     " for ranks that have not submitted: ";
  std::size_t shown = 0;
  for (; shown < late.size() && shown < kNamesShown; ++shown) {
    const std::string line = (shown == 0 ? "" : "; ") + line_of(*late[shown], now);
    if (text.size() + line.size() > kLineBytes) break;
    text += line;
  }
  if (shown < late.size()) text += "; ...";
  return text + ". Those ranks are late, or the ranks disagree about names";
}

}  // namespace

StallDetector::Verdict StallDetector::observe(const std::vector<LateUnit>& waiting, Nanos now) {
  Verdict verdict;
  std::map<UnitKey, Nanos> still_warned;
  std::vector<const LateUnit*> late;
  bool due = false;
  for (const LateUnit& unit : waiting) {
    const Nanos age = now - unit.since;
    if (abort_ != kNever && age >= abort_) verdict.expired.push_back(unit.unit->key);
    if (warning_ == kNever) continue;
    const auto warned = warned_.find(unit.unit->key);
    if (warned != warned_.end() && warned->second >= unit.since) {
      still_warned.insert(*warned);
      if (now - warned->second < kReminderFactor * warning_) continue;
    }
    if (age >= warning_) due = true;
    if (age >= warning_ / 2) late.push_back(&unit);
  }
  warned_ = std::move(still_warned);
  if (due && now - last_warning_ >= kBetweenWarnings) {
    last_warning_ = now;
    for (const LateUnit* unit : late) warned_[unit->unit->key] = now;
    verdict.warning = warning_text(late, now);
  }
  return verdict;
}

Nanos StallDetector::next_look(Nanos since, Nanos now) const {
  Nanos next = kNever;
  if (warning_ != kNever) {
    next = since + warning_;
    if (next <= now) next = now + kBetweenWarnings;  // reminders need no better precision
  }
  if (abort_ != kNever) next = std::min(next, since + abort_);
  return next;
}

}  // namespace kolo::internal
