// What a context's parts are given: pure functions of its configuration and road.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "coordinator/sequencer.h"
#include "core/context_road.h"
#include "core/executor.h"
#include "core/wait_policy.h"

namespace kolo::internal {

SequencerOptions sequencer_options(const Config& config);
Executor::Options executor_options(const Config& config, const Road& road);
DeviceLane::Options lane_options(const Config& config, const Road& road);
WaitPolicy wait_policy(const Config& config, int local_size);

// By rank.
std::vector<int> hosts_of(const PeerTable& table);
std::vector<std::string> host_names_of(const PeerTable& table);
// Ranks of this rank's host.
int count_local(const Road& road);

// The channels of every stream, by peer; the road's own.
std::vector<std::vector<Channel*>> channels_of(const Fabric& fabric);
// One set of collectives for each stream, over the best road. Who asks for the ring gets it. What
// is referred to outlives them.
Executor::Streams streams_of(const Config& config, const Road& road,
                             const std::vector<std::vector<Channel*>>& channels,
                             const ReductionOrder& order, const HostMap& map);

}  // namespace kolo::internal
