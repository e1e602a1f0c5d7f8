// Census: what a trial could leave behind on this machine. A process of a trial is known by the
// variable CHAOS_TRIAL in its environment; sockets are looked for in network namespaces that belong
// to the trials alone.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace kolo::chaos {

inline constexpr const char* kTrialVariable = "CHAOS_TRIAL";

// The living processes of a trial.
std::vector<pid_t> processes_of(const std::string& trial);
// Listening and abstract sockets in a named network namespace, as text.
std::vector<std::string> sockets_in(const std::string& network);
// kolo's names under /dev/shm.
std::vector<std::string> shared_files();
std::size_t own_descriptors();

}  // namespace kolo::chaos
