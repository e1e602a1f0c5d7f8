#include "base/log.h"

#include <cstdio>

namespace kolo::internal {
namespace {

constexpr const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
  }
  return "?";
}

}  // namespace

void Logger::set_level(LogLevel level) {
  const std::lock_guard lock(mutex_);
  level_ = level;
}

void Logger::set_rank(int rank) {
  const std::lock_guard lock(mutex_);
  rank_ = rank;
}

void Logger::set_sink(Sink sink) {
  const std::lock_guard lock(mutex_);
  sink_ = std::move(sink);
}

void Logger::log(LogLevel level, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (level <= level_) write(level, level_name(level), text);
}

void Logger::notice(std::string_view text) {
  const std::lock_guard lock(mutex_);
  write(LogLevel::kInfo, "", text);
}

void Logger::write(LogLevel level, const char* label, std::string_view text) {
  if (sink_) {
    sink_(level, text);
    return;
  }
  std::string line = "kolo";
  if (rank_ >= 0) line += "[rank " + std::to_string(rank_) + "]";
  if (*label != '\0') line += std::string(" ") + label;
  line += ": " + std::string(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write, so that lines stay whole
}

}  // namespace kolo::internal
