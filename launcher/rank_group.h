// RankGroup: the rank processes of one host, each the leader of a process group of its own.
//
// Ended leaders are looked at but not reaped, so that their numbers cannot be given to strangers
// while signals may still be sent to their groups. Who ended first is the kernel's word: the order
// in which their pidfds became readable. One thread, the one that spawned them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "launcher/spawn.h"

namespace kolo::internal {

class RankGroup {
 public:
  struct End {
    int rank = 0;
    int wait_status = 0;
    Nanos time{};
    bool told_to_end = false;
  };

  RankGroup();

  void add(int rank, pid_t pid);
  // Who has ended since the last look, in order of death.
  std::vector<End> look(Nanos now);
  // To every process group. `ends_job`: what dies from now on was told to.
  void signal(int number, bool ends_job, Nanos now);

  [[nodiscard]] bool any_running() const;
  // Whether anything in any of the groups is alive.
  [[nodiscard]] bool any_left() const;

 private:
  struct Member {
    int rank = 0;
    pid_t pid = 0;
    UniqueFd pidfd;  // in watch_; closed where the kernel has none
    bool running = true;
    bool told_to_end = false;
    std::optional<Nanos> ending_since;
  };
  std::vector<std::size_t> in_order_of_death();
  void note_ending(Nanos now);
  UniqueFd watch_;  // epoll: its queue keeps the order
  std::vector<Member> members_;
};

}  // namespace kolo::internal
