// The agent of a host (kolorun --agent): starts the ranks of its host, relays their output, their
// meeting and signals, and leaves none of them behind.
//
// It speaks frames (transport/rendezvous/agent_codec.h) on stdin and stdout. When stdin ends, it
// kills its ranks' process groups and ends: so a lost ssh or a killed kolorun leaves no orphan. Its
// own death kills the ranks by their parent-death signal.
#pragma once

#include <string>
#include <vector>

namespace kolo::internal {

// Runs until the job is over; the exit code. `environment` is this process's own.
int run_agent(std::vector<std::string> environment);

}  // namespace kolo::internal
