#include "tests/fakegpu/faults.h"

#include <charconv>

namespace fakegpu {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool read_number(std::string_view text, long& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

struct Word {
  std::string_view text;
  Effect effect;
};
constexpr Word kWords[] = {{"oom", Effect::kOutOfMemory}, {"error", Effect::kError},
                           {"sticky", Effect::kSticky},   {"delay", Effect::kDelay},
                           {"hang", Effect::kHang},       {"never", Effect::kNever},
                           {"block", Effect::kBlock},     {"async-error", Effect::kAsyncError}};

}  // namespace

bool Faults::parse(std::string_view text, Rule& rule) {
  if (text == "rank-never-arrives") {
    rule = {"collective", 1, {Effect::kNever, 0}};
    return true;
  }
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() < 3 || parts.size() > 4 || parts[0].empty()) return false;
  rule.function = parts[0] == "comm" ? "collective" : parts[0];
  if (parts[1] != "*" && (!read_number(parts[1], rule.nth) || rule.nth == 0)) return false;
  for (const Word& word : kWords) {
    if (word.text == parts[2]) rule.fault.effect = word.effect;
  }
  if (rule.fault.is(Effect::kNone)) return false;
  return parts.size() == 3 ? !rule.fault.is(Effect::kDelay)
                           : read_number(parts[3], rule.fault.value);
}

bool Faults::set(std::string_view text) {
  std::vector<Rule> rules;
  if (!trimmed(text).empty()) {
    for (const std::string_view part : split(text, ',')) {
      if (!parse(trimmed(part), rules.emplace_back())) return false;
    }
  }
  const std::lock_guard lock(mutex_);
  rules_ = std::move(rules);
  calls_.clear();
  return true;
}

Fault Faults::next(std::string_view function) {
  const std::lock_guard lock(mutex_);
  if (rules_.empty()) return {};
  auto found = calls_.find(function);
  if (found == calls_.end()) found = calls_.emplace(function, 0).first;
  const long call = ++found->second;
  for (const Rule& rule : rules_) {
    if (rule.function == function && (rule.nth == 0 || rule.nth == call)) return rule.fault;
  }
  return {};
}

}  // namespace fakegpu
