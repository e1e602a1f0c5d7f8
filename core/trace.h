// Trace: one fixed-size record per phase of an operation, written as Chrome-trace JSON.
//
// One event a line: after a crash only the closing "]" may be missing. Records are kept in memory
// and written in whole lines by flush(), so that the hot path formats nothing. Off, it costs one
// branch. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace kolo::internal {

class Trace {
 public:
  enum class Phase : std::uint8_t { kEnqueue, kReady, kOrdered, kStart, kDone };

  // Creates `directory` if needed and kolo-rank<rank>.g<generation>.json in it.
  // RESOURCE, with the cause, if that cannot be done. What cannot be written later ends the trace,
  // not the job, with one warning to `logger`, which must outlive this.
  static Result<std::unique_ptr<Trace>> open(const std::string& directory, int rank,
                                             std::uint64_t generation, Logger& logger);
  ~Trace();  // flushes and closes the array

  // `id` pairs the phases of one operation.
  void record(Phase phase, std::uint64_t id, std::string_view name, Nanos when);
  void flush();

 private:
  static constexpr std::size_t kFlushRecords = 4096;
  static constexpr std::size_t kFlushNameBytes = std::size_t{256} << 10;
  struct Record {
    std::int64_t nanos;
    std::uint64_t id;
    Phase phase;
    std::uint32_t name_begin;  // in names_
    std::uint32_t name_bytes;
  };

  Trace(UniqueFd file, std::string path, int rank, Logger& logger)
      : file_(std::move(file)), path_(std::move(path)), rank_(rank), logger_(logger) {}
  void flush_locked();
  void write(std::string_view bytes);
  void append_line(const Record& record, std::string& lines) const;

  std::mutex mutex_;
  UniqueFd file_;  // closed once it has failed
  const std::string path_;
  const int rank_;
  Logger& logger_;
  std::vector<Record> records_;
  std::string names_;  // of the records, one after the other
};

// For call sites: records only if there is a trace.
inline void trace_phase(Trace* trace, Trace::Phase phase, std::uint64_t id, std::string_view name,
                        Nanos when) {
  if (trace != nullptr) trace->record(phase, id, name, when);
}

}  // namespace kolo::internal
