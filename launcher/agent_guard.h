// AgentGuard: the parent process of an agent, there for the case that the agent is killed.
//
// The kernel then ends the ranks (their parent-death signal), but not what they have started. All
// that becomes the guard's child, so that it can be ended without a doubt about process numbers.
// If it is the guard that is killed, the agent gets SIGTERM, and leaves nothing behind.
#pragma once

#include <functional>

namespace kolo::internal {

// Runs `agent` in a child of this process, which must have no other thread, and returns its exit
// code in both processes; dies as the agent did if that was by a signal.
int run_guarded(const std::function<int()>& agent);

}  // namespace kolo::internal
