// The bits test's reference: plain loops in one process, written without kolo. An all-reduce adds
// in a fixed tree: over the ranks of each host, then over the hosts. The left part of a tree of n
// is the largest power of two below n.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::bits {

// `hosts`: how many ranks each host has, in rank order.
std::string reference_hash(const std::vector<int>& hosts, std::uint64_t seed);

}  // namespace kolo::bits
