// Job: one run of a program on its hosts, as kolorun's own process sees it: starts an agent per
// host, holds the meeting of the ranks, merges their output, forwards signals, and judges the end.
//
// One thread; run() blocks until nothing of the job is left.
#pragma once

#include <string>
#include <vector>

#include "launcher/hosts.h"
#include "launcher/options.h"
#include "launcher/rank_environment.h"

namespace kolo::internal {

struct JobPlan {
  LaunchOptions options;
  Placement placement;
  JobFacts facts;
  Environment environment;  // of this process
  std::string own_path;     // of this executable
  std::string own_name;     // of this machine
  std::string directory;    // where ranks start; empty: where the agents are
  Nanos start_timeout{};    // until the agents answer
  bool colour = false;
};

// The exit code for the caller's caller.
int run_job(JobPlan plan);

}  // namespace kolo::internal
