// The environment of a rank. Pure functions over "NAME=value" entries, whose bytes are arbitrary.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/hosts.h"
#include "launcher/options.h"
#include "transport/rendezvous/agent_codec.h"

namespace kolo::internal {

using Environment = std::vector<std::string>;

// Replaces or adds.
void set_variable(Environment& environment, std::string_view name, std::string_view value);
[[nodiscard]] std::optional<std::string_view> find_variable(const Environment& environment,
                                                            std::string_view name);

struct JobFacts {
  std::string job;
  Secret secret;  // 64 hex digits
};

// What every rank of the job gets on top of what its agent has: exports, assignments, settings.
// `remote`: also this environment itself, but for what belongs to a machine or a login (HOME,
// SSH_*, ...), listed in `left_out`. A -x VAR that is not set is listed in `unset`.
struct SharedEnvironment {
  Environment entries;
  std::vector<std::string> left_out;
  std::vector<std::string> unset;
};
SharedEnvironment shared_environment(const Environment& own, const LaunchOptions& options,
                                     bool remote);

// The rank's identity, in KOLO_* and in torchrun's names. `addresses` are comma-separated. Where
// to meet (KOLO_RENDEZVOUS, MASTER_*) is added by the agent, which knows its port, and so is the
// secret, which is in no list for longer than it must.
Environment rank_identity(const Placement& placement, std::size_t host_index, int local_rank,
                          const JobFacts& facts, std::string_view addresses);

// KOLO_RENDEZVOUS, MASTER_ADDR, MASTER_PORT for "host:port".
Environment meeting_variables(std::string_view endpoint);

// `inherited` with the identity of an outer job taken out, overlaid by the lists in turn.
Environment compose(const Environment& inherited, const std::vector<const Environment*>& layers);

// What is wrong with a name or value: a line without '=', an empty name, a NUL byte.
[[nodiscard]] bool is_valid_entry(std::string_view entry);

}  // namespace kolo::internal
