// Counts calls by name, waits of the host by thread, and uses that the real libraries leave
// undefined.
//
// Threads: any. Ownership: owns its counters and the texts.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace fakegpu {

class Census {
 public:
  void count_call(std::string_view function);
  long calls(std::string_view function);
  long calls_of_this_thread(std::string_view function);

  void count_host_wait();
  // Of the thread with this id; 0: of all; -1: of the calling thread.
  long host_waits(long thread_id);

  // Prints it and keeps the text.
  void misuse(const std::string& text);
  long misuses();
  const char* misuse_text(long index);
  void forgive();

 private:
  using ThreadAndFunction = std::pair<long, std::string>;

  std::mutex mutex_;
  std::map<std::string, long, std::less<>> calls_;
  std::map<ThreadAndFunction, long> calls_by_thread_;
  std::map<long, long> host_waits_;
  std::deque<std::string> misuses_;  // references stay good
  std::size_t forgiven_ = 0;
};

}  // namespace fakegpu
