// RankGroup: the rank processes of one host, each the leader of a process group of its own.
//
// Ended leaders are looked at but not reaped, so that their numbers cannot be given to strangers
// while signals may still be sent to their groups. One thread, the one that spawned them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "base/clock.h"
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

  void add(int rank, pid_t pid) { members_.push_back({rank, pid, true, false, std::nullopt}); }

  // Who has ended since the last look, in order of death as far as it can be told.
  std::vector<End> look(Nanos now);
  // To every process group. `ends_job`: what dies from now on was told to.
  void signal(int number, bool ends_job);

  [[nodiscard]] bool any_running() const;
  // Whether anything in any of the groups is alive.
  [[nodiscard]] bool any_left() const;

 private:
  struct Member {
    int rank;
    pid_t pid;
    bool running;
    bool told_to_end;
    std::optional<Nanos> ending_since;
  };
  void note_ending(Nanos now);
  std::vector<Member> members_;
};

}  // namespace kolo::internal
