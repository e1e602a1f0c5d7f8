// Report: counts trials and their latencies, and prints them as a table. Pure but for the printing.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/chaos/judge.h"

namespace kolo::chaos {

class Report {
 public:
  void add(const Observed& observed, const std::vector<std::string>& complaints);
  // A line for each kind of fault; then how long the verdicts took.
  [[nodiscard]] std::string table() const;
  [[nodiscard]] int failures() const { return failures_; }

 private:
  struct Row {
    int trials = 0;
    int right = 0;
    int missed = 0;                // the victim was gone before it could be hit
    std::vector<double> told_ms;   // from the fault
    std::vector<double> later_ms;  // from a call that came after it
  };
  std::map<std::string, Row> rows_;  // by fault and moment
  std::vector<double> first_ms_;     // of each trial, from the fault: who was told first
  std::vector<double> last_ms_;      // ... and last
  int failures_ = 0;
};

}  // namespace kolo::chaos
