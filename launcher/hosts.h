// Hosts and the placement of ranks on them. Pure functions and plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kolo::internal {

struct Host {
  std::string name;  // as ssh wants it: "alpha", "user@beta", "fd00::1" (without brackets)
  int slots = 1;
  bool operator==(const Host&) const = default;
};

// "a:4,user@b,[fd00::1]:2"; slots are 1 unless given. A host named twice has the sum of its slots.
Result<std::vector<Host>> parse_host_list(std::string_view text);

// A host a line, as Horovod ("a slots=4") and MPICH ("a:4") write it; '#' starts a comment. Errors
// name `file` and the line.
Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view file);

struct PlacementRequest {
  int rank_count = 0;      // 0: not given
  bool all_slots = false;  // one rank per slot
  int ranks_per_host = 0;  // 0: as many as the host's slots
  int local_cores = 1;     // what "all slots" means when no host is given
};

struct Placement {
  struct OnHost {
    Host host;
    int first_rank = 0;
    int rank_count = 0;  // at least 1: hosts without ranks are left out
  };
  std::vector<OnHost> hosts;  // in the order given; ranks in blocks
  int size = 0;
};

// Without hosts everything runs on localhost, which then never has too few slots.
Result<Placement> place_ranks(std::vector<Host> hosts, const PlacementRequest& request);

// Whether `name` means this machine without asking anyone: localhost, a loopback address, or
// `own_name`, the machine's own host name.
[[nodiscard]] bool names_this_machine(std::string_view name, std::string_view own_name);

}  // namespace kolo::internal
