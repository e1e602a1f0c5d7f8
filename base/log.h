// Logger: levelled one-line messages to stderr or to a callback. One per context, passed down by
// reference; safe from any thread. A line reads "kolo[rank 2] warning: ...".
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace kolo::internal {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

class Logger {
 public:
  using Sink = std::function<void(LogLevel, std::string_view text)>;

  explicit Logger(LogLevel level = LogLevel::kWarning) : level_(level) {}

  void set_level(LogLevel level);
  void set_rank(int rank);   // shown in every later line
  void set_sink(Sink sink);  // replaces stderr; an empty one restores it
  void log(LogLevel level, std::string_view text);
  // Something to know that is neither wrong nor a matter of levels: always shown, as "kolo: ...".
  void notice(std::string_view text);
  void error(std::string_view text) { log(LogLevel::kError, text); }
  void warning(std::string_view text) { log(LogLevel::kWarning, text); }
  void info(std::string_view text) { log(LogLevel::kInfo, text); }
  void debug(std::string_view text) { log(LogLevel::kDebug, text); }

 private:
  void write(LogLevel level, const char* label, std::string_view text);

  std::mutex mutex_;
  LogLevel level_;
  int rank_ = -1;
  Sink sink_;
};

}  // namespace kolo::internal
