// Starting a child process, and seeing what is left of process groups.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace kolo::internal {

struct SpawnRequest {
  std::vector<std::string> arguments;    // the program is searched for on the PATH of `environment`
  std::vector<std::string> environment;  // "NAME=value"
  std::string directory;                 // empty: stay
  int in = -1;                           // descriptors to become 0, 1, 2; -1: /dev/null
  int out = -1;
  int err = -1;
  int kept = -1;                  // one more that the child gets, under its own number
  bool dies_with_parent = false;  // SIGKILL when the thread that spawned it ends
};

struct Spawned {
  pid_t pid = 0;
  int error_number = 0;  // 0, or why there is no child (the program's own errors: see program.h)
  bool in_directory = false;  // the error is the directory's
};

// Raises this process's soft limit of descriptors, of which every rank takes some here; children
// get the limit that was given. To be called first of all.
void raise_descriptor_limit();

// The child leads a process group of its own, has every signal at its default and unblocked, and
// no descriptor but 0, 1, 2 and `kept` (all of ours are close-on-exec).
Spawned spawn(const SpawnRequest& request);

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
Result<Pipe> make_pipe();  // close-on-exec; RESOURCE when descriptors have run out

// Of `groups`, those with a member that is alive (a zombie is not).
std::set<pid_t> living_groups(const std::set<pid_t>& groups);

// Whether process `pid` is ending: every thread of it is past its last instruction, or about to be
// killed. Its memory may take long to be given back; until then wait() does not see it.
bool is_ending(pid_t pid);

// Our children now, as /proc has them.
std::vector<pid_t> list_children();

}  // namespace kolo::internal
