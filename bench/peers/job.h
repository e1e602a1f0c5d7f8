// One round: starts a job of one system, waits for it within a limit, and reads its results.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/peers/settings.h"

namespace kolo::bench {

// What is missing to run `peer`, for people; empty: nothing.
std::string missing(const std::string& peer);

// Runs one job of `peer` and returns its results, a JSON object for each size or rank. If the job
// fails or hangs, ends the program with the end of its output.
std::vector<nlohmann::json> run_job(const std::string& peer, const Settings& settings);

}  // namespace kolo::bench
