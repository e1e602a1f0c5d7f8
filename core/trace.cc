#include "core/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/json_text.h"

namespace kolo::internal {
namespace {

constexpr const char* kPhaseNames[] = {"enqueue", "ready", "ordered", "start", "done"};
// Nestable asynchronous events: begin, instants in between, end.
constexpr char kPhaseTypes[] = {'b', 'n', 'n', 'n', 'e'};

}  // namespace

Result<std::unique_ptr<Trace>> Trace::open(const std::string& directory, int rank,
                                           std::uint64_t generation, Logger& logger) {
  const std::string path =
      directory + "/kolo-rank" + std::to_string(rank) + ".g" + std::to_string(generation) + ".json";
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) {
    return resource_error("timeline: cannot create the folder '" + directory +
                          "': " + std::strerror(errno) + ". Set KOLO_TIMELINE to a writable one");
  }
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.is_open()) {
    return resource_error("timeline: cannot write '" + path + "': " + std::strerror(errno) +
                          ". Set KOLO_TIMELINE to a writable folder");
  }
  char first[128];
  std::snprintf(first, sizeof first,
                "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,"
                "\"args\":{\"name\":\"rank %d\"}}",
                rank, rank);
  std::unique_ptr<Trace> trace(new Trace(std::move(file), path, rank, logger));
  trace->write(first);
  trace->records_.reserve(kFlushRecords);
  trace->names_.reserve(kFlushNameBytes);
  return trace;
}

Trace::~Trace() {
  flush();
  write("\n]\n");
}

void Trace::record(Phase phase, std::uint64_t id, std::string_view name, Nanos when) {
  const std::lock_guard lock(mutex_);
  records_.push_back({when.count(), id, phase, static_cast<std::uint32_t>(names_.size()),
                      static_cast<std::uint32_t>(name.size())});
  names_ += name;
  if (records_.size() >= kFlushRecords || names_.size() >= kFlushNameBytes) flush_locked();
}

void Trace::flush() {
  const std::lock_guard lock(mutex_);
  flush_locked();
}

void Trace::flush_locked() {
  std::string lines;
  if (file_.is_open()) {
    for (const Record& record : records_) append_line(record, lines);
  }
  records_.clear();
  names_.clear();
  write(lines);
}

void Trace::write(std::string_view bytes) {
  while (file_.is_open() && !bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      const char* why = std::strerror(written == 0 ? ENOSPC : errno);
      file_.reset();
      logger_.warning("timeline: '" + path_ + "' cannot be written any more: " + why +
                      ". The trace ends here, the job goes on");
    }
  }
}

void Trace::append_line(const Record& record, std::string& lines) const {
  const auto phase = static_cast<std::size_t>(record.phase);
  lines += ",\n{\"name\":\"";
  append_json_escaped({names_.data() + record.name_begin, record.name_bytes}, lines);
  char rest[192];
  std::snprintf(rest, sizeof rest,
                "\",\"cat\":\"kolo\",\"ph\":\"%c\",\"id\":%llu,\"pid\":%d,\"tid\":0,"
                "\"ts\":%lld.%03lld,\"args\":{\"phase\":\"%s\"}}",
                kPhaseTypes[phase], static_cast<unsigned long long>(record.id), rank_,
                static_cast<long long>(record.nanos / 1000),
                static_cast<long long>(record.nanos % 1000), kPhaseNames[phase]);
  lines += rest;
}

}  // namespace kolo::internal
