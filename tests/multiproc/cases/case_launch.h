// Launching situations: case_ranks under kolorun, with the settings of all situations, over the
// transport KOLO_TEST_TRANSPORT (shm if not set). Every rank checks that its road is that one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {

using Flags = std::vector<std::string>;

const std::string& case_ranks();  // paths
const std::string& kolorun();
std::string transport_under_test();

// kolorun's arguments up to the program, the transport aside.
std::vector<std::string> kolorun_with_settings(int ranks);
// The same over `transport`, and the ranks' wish for that road.
Flags over(const std::string& transport);

// What this machine can still give without swapping.
std::size_t available_bytes();
// Why a test of that size cannot be done now; empty: it can.
std::string obstacle_to_sizes(std::size_t bytes, bool needs_time);

Outcome launch(int ranks, const std::string& id, const Flags& flags = {},
               double timeout_seconds = 60);
// Ends well on all ranks, with nothing to say.
void expect_well(int ranks, const std::string& id, const Flags& flags = {},
                 double timeout_seconds = 60);
// By all algorithms that differ over the transport.
void expect_well_by_all_algorithms(int ranks, const std::string& id, const Flags& more = {});

}  // namespace kolo::test
