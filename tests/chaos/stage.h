// Stage: where trials of one road take place, and the director of them: starts the ranks, does to
// them what the plan says, waits, and looks at what is left. Single-host roads get a network
// namespace of their own where that is possible, so that sockets can be counted. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/chaos/judge.h"
#include "tests/multihost/hosts.h"
#include "tests/multiproc/launcher/process.h"

namespace kolo::chaos {

class Stage {
 public:
  // `hosts`: network namespaces to make; 0: none, in this one.
  explicit Stage(int hosts);

  // Blocks until the end of the trial, or its time limit.
  Observed perform(const Plan& plan);

 private:
  struct Job {
    std::string trial;  // its name in the census
    std::vector<std::unique_ptr<test::Child>> processes;
  };

  Job start(const Plan& plan, const std::string& board);
  [[nodiscard]] std::vector<std::string> enter(int host) const;
  [[nodiscard]] std::vector<std::string> kolorun_arguments(const Plan& plan) const;
  [[nodiscard]] test::RunOptions options_of(const Plan& plan, const std::string& trial) const;
  void add_identity(const Plan& plan, int rank, test::RunOptions& options) const;

  bool strike(const Plan& plan, Board& board) const;
  void change_wire(const Plan& plan, bool broken) const;
  void end(Job& job, Observed& observed);
  void take_census(const Job& job, Observed& observed) const;

  std::unique_ptr<test::Hosts> hosts_;
  int trials_ = 0;
};

}  // namespace kolo::chaos
