// The argument vector that starts an agent on a host. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts.h"
#include "launcher/options.h"

namespace kolo::internal {

// `word` so that a POSIX shell reads it as exactly that word.
std::string shell_quote(std::string_view word);

// How the agent of a host is started.
enum class Road {
  kFork,     // a child of ours
  kSsh,      // ssh, whose far end is a shell
  kCommand,  // --launcher-exec: CMD host words..., no shell
};

Road road_to(const Host& host, const LaunchOptions& options, std::string_view own_name);

// The whole vector, `agent` being the path of kolorun over there. Nothing secret is in it.
std::vector<std::string> agent_command(Road road, const Host& host, const LaunchOptions& options,
                                       const std::string& agent);

}  // namespace kolo::internal
