#include "core/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace kolo::internal {
namespace {

// Beside those that grow with the ranks: pollers, timers, wake-ups, listeners, the way up to the
// leader, the timeline; and what is open for a moment while ranks meet.
constexpr std::size_t kOwn = 24;

std::size_t number(const Config& config, std::string_view key) {
  return static_cast<std::size_t>(config.integer(key));
}

// No more than the limit are counted, as without a free descriptor nothing can be.
std::size_t open_descriptors(std::size_t limit) {
  std::error_code error;
  std::size_t count = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++count;
  }
  return error ? limit : count - 1;  // one was open for counting
}

}  // namespace

std::size_t descriptors_of(const Config& config) {
  const std::size_t size = number(config, "size");
  if (size == 1) return kOwn;
  const std::size_t peers = size - 1;
  const std::string transport = config.text("transport");
  const bool by_mpi = transport.ends_with("mpi");
  const bool shares = transport != "tcp" && transport != "mpi";
  // A host's leader holds a connection with each of its ranks, the root one with each leader.
  const bool leads = number(config, "local_rank") == 0 || number(config, "rank") == 0;
  const bool serves = number(config, "rank") == 0 && !config.is_set("launcher");
  const std::size_t neighbours =
      config.is_set("local_size") ? number(config, "local_size") - 1 : peers;
  // The ranks of a host meet over connections of their own.
  return kOwn + neighbours + (by_mpi ? 0 : peers * number(config, "streams")) +
         (leads ? peers : 1) + (shares ? neighbours : 0) + (serves ? size : 0);
}

Status make_room_for_descriptors(const Config& config) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return Status::ok();  // the kernel has the last word
  const std::size_t own = descriptors_of(config);
  const std::size_t open = open_descriptors(limit.rlim_cur);
  const std::size_t need = open + own;
  if (need <= limit.rlim_cur) return Status::ok();
  if (need > limit.rlim_max) {
    return resource_error("too few descriptors: the hard limit is " +
                          std::to_string(limit.rlim_max) + " open files, " + std::to_string(open) +
                          " are open, and rank " + config.text("rank") + " of " +
                          config.text("size") + " needs " + std::to_string(own) +
                          " more; raise the limit to " + std::to_string(need) +
                          " or more (ulimit -Hn), or lower KOLO_STREAMS");
  }
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, limit.rlim_cur + own);
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return Status::ok();
  return resource_error("the soft limit of open files could not be raised to " +
                        std::to_string(limit.rlim_cur) + ": " +
                        std::generic_category().message(errno) + "; raise it (ulimit -n)");
}

}  // namespace kolo::internal
