#include "tests/multiproc/cases/case_launch.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace kolo::test {

const std::string& case_ranks() {
  static const std::string path = KOLO_CASE_RANKS;
  return path;
}

const std::string& kolorun() {
  static const std::string path = KOLO_KOLORUN;
  return path;
}

std::string transport_under_test() {
  const char* transport = std::getenv("KOLO_TEST_TRANSPORT");
  return transport == nullptr ? "shm" : transport;
}

std::vector<std::string> kolorun_with_settings(int ranks) {
  return {kolorun(),
          "-np",
          std::to_string(ranks),
          "--start-timeout",
          "10",
          "--peer-timeout-seconds",
          "3",
          "--grace",
          "2",
          "--stall-check-warning-time-seconds",
          "1",
          "--stall-check-shutdown-time-seconds",
          "5"};
}

Flags over(const std::string& transport) {
  return {"--transport", transport, "-x", "KOLO_TEST_ROAD=" + transport};
}

std::size_t available_bytes() {
  std::size_t kilobytes = 0;
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %zu kB", &kilobytes) == 1) break;
  }
  if (file != nullptr) std::fclose(file);
  return kilobytes << 10;
}

std::string obstacle_to_sizes(std::size_t bytes, bool needs_time) {
  if (needs_time && !long_tests()) return "takes long; set KOLO_TEST_LONG=1";
  const std::size_t free = available_bytes();
  if (free >= bytes) return "";
  return "needs " + std::to_string(bytes >> 20) + " MiB of memory, and this machine has " +
         std::to_string(free >> 20);
}

Outcome launch(int ranks, const std::string& id, const Flags& flags, double timeout_seconds) {
  std::vector<std::string> arguments = kolorun_with_settings(ranks);
  for (const std::string& word : over(transport_under_test())) arguments.push_back(word);
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {case_ranks(), id});
  RunOptions options;
  options.timeout_seconds = timeout_seconds;
  return run(arguments, options);
}

void expect_well(int ranks, const std::string& id, const Flags& flags, double timeout_seconds) {
  const Outcome outcome = launch(ranks, id, flags, timeout_seconds);
  EXPECT_EQ(outcome.exit_code, 0) << id << "\n" << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "") << id;
}

void expect_well_by_all_algorithms(int ranks, const std::string& id, const Flags& more) {
  // A window has one way for each size; who asks for the ring gets it over sockets.
  std::vector<std::string> algorithms = {"auto"};
  if (transport_under_test() == "tcp") algorithms = {"auto", "oneshot", "direct", "ring"};
  for (const std::string& algorithm : algorithms) {
    SCOPED_TRACE(algorithm);
    Flags flags = {"--algorithm", algorithm};
    flags.insert(flags.end(), more.begin(), more.end());
    expect_well(ranks, id, flags);
  }
}

}  // namespace kolo::test
