// The same bits over every road: random inputs reduced over channels in one shot and directly, over
// a window in one shot, in two and without copies, and over hosts that share windows, with and
// without fusion. The hash of the results must be one, and that of the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>

#include "tests/conformance/hosts_job.h"
#include "tests/conformance/inproc_mesh.h"
#include "tests/conformance/reference.h"
#include "tests/conformance/world.h"

namespace kolo::internal {
namespace {

constexpr std::uint64_t kSeed = 4242;

Mesh in_memory(int size, std::uint64_t seed) {
  return inproc_mesh(size, {.seed = seed, .max_move_bytes = 50000, .stall_percent = 10});
}

std::uint64_t hash(const std::byte* bytes, std::size_t count) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < count; ++i) {
    value = (value ^ static_cast<std::uint64_t>(bytes[i])) * 0x100000001b3u;
  }
  return value;
}

struct Tensors {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  std::vector<std::size_t> counts;                      // [tensor]
  std::vector<std::vector<reference::Bytes>> contents;  // [tensor][rank]
};

// All tensors, fused or one by one, in place or not by chance; a hash for each.
std::vector<std::uint64_t> reduce(World& world, Algorithm algorithm, const Tensors& tensors,
                                  bool fused) {
  const auto n = static_cast<std::size_t>(world.size());
  const std::size_t count = tensors.counts.size();
  std::vector<std::vector<Piece>> lists(n);
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t t = 0; t < count; ++t) {
      const reference::Bytes& bytes = tensors.contents[t][r];
      std::byte* input = world.job().memory(r, bytes.size());
      std::memcpy(input, bytes.data(), bytes.size());
      const bool in_place = world.random()() % 2 == 0;
      lists[r].push_back({.input = input,
                          .output = in_place ? input : world.job().memory(r, bytes.size()),
                          .count = tensors.counts[t],
                          .prescale = tensors.prescale});
    }
  }
  const std::size_t groups = fused ? 1 : count;
  for (std::size_t g = 0; g < groups; ++g) {
    const auto statuses = world.run([&](std::size_t r) -> Operation& {
      const std::span<const Piece> pieces(lists[r]);
      return world.job().allreduce(r, algorithm, fused ? pieces : pieces.subspan(g, 1),
                                   {tensors.dtype, tensors.op});
    });
    EXPECT_TRUE(statuses.has_value());
  }
  std::vector<std::uint64_t> hashes;
  for (std::size_t t = 0; t < count; ++t) {
    const std::size_t bytes = tensors.contents[t][0].size();
    hashes.push_back(hash(static_cast<const std::byte*>(lists[0][t].output), bytes));
    for (std::size_t r = 1; r < n; ++r) {
      EXPECT_EQ(hash(static_cast<const std::byte*>(lists[r][t].output), bytes), hashes.back())
          << "rank " << r << " has other bits than rank 0";
    }
  }
  world.job().release();
  return hashes;
}

struct Way {
  std::string name;
  CollectiveRoad road;
  Algorithm algorithm = Algorithm::kDirect;
};

std::vector<Way> ways(bool one_host) {
  const CollectiveRoad channels = over_channels({.name = "channels", .make = in_memory});
  std::vector<Way> all = {
      {"channels, one-shot", channels, Algorithm::kOneshot},
      {"channels, direct", channels, Algorithm::kDirect},
      {"hosts", over_hosts("hosts", TensorsIn::kHeap, {}, false)},
      {"hosts, arenas", over_hosts("hosts", TensorsIn::kEither, {}, false)},
  };
  if (one_host) {
    all.push_back({"window", over_windows("window", TensorsIn::kHeap, false)});
    all.push_back({"window, arenas", over_windows("window", TensorsIn::kArena, false)});
    all.push_back({"window, some in arenas", over_windows("window", TensorsIn::kEither, false)});
  }
  return all;
}

Tensors random_tensors(std::size_t ranks, std::mt19937_64& random) {
  constexpr std::array kTypes = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16,
                                 DataType::kFloat64, DataType::kInt64};
  Tensors tensors;
  tensors.dtype = kTypes[random() % kTypes.size()];
  tensors.op = random() % 3 == 0 ? ReduceOp::kAvg : ReduceOp::kSum;
  if (is_floating(tensors.dtype) && random() % 2 == 0) tensors.prescale = 0.3;
  for (std::size_t limit : {30u, 4000u, 200000u}) {
    tensors.counts.push_back(1 + random() % limit);
    auto& of_ranks = tensors.contents.emplace_back();
    for (std::size_t r = 0; r < ranks; ++r) {
      of_ranks.push_back(reference::random_elements(tensors.dtype, tensors.counts.back(), random));
    }
  }
  return tensors;
}

TEST(Bits, AreTheSameOverEveryRoadAlgorithmAndFusion) {
  const std::vector<std::vector<int>> layouts = {
      {0, 0}, {0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2, 3}, {0, 0, 1}, {0, 0, 0, 1, 1}, {0, 1, 1, 1}};
  for (std::size_t l = 0; l < layouts.size(); ++l) {
    const std::vector<int>& hosts = layouts[l];
    std::mt19937_64 random(kSeed + l);
    const bool one_host = std::count(hosts.begin(), hosts.end(), hosts[0]) == std::ssize(hosts);
    std::vector<Way> all = ways(one_host);
    std::vector<std::unique_ptr<World>> worlds;
    for (const Way& way : all)
      worlds.push_back(std::make_unique<World>(way.road, hosts, kSeed + l));
    for (unsigned round = 0; round < 10 / kSanitizedSlowdown; ++round) {
      const Tensors tensors = random_tensors(hosts.size(), random);
      std::vector<std::uint64_t> expected;
      for (std::size_t t = 0; t < tensors.counts.size(); ++t) {
        const reference::Bytes bytes = reference::allreduce({.dtype = tensors.dtype,
                                                             .op = tensors.op,
                                                             .prescale = tensors.prescale,
                                                             .postscale = 1.0,
                                                             .host_index = hosts},
                                                            tensors.contents[t]);
        expected.push_back(hash(bytes.data(), bytes.size()));
      }
      for (std::size_t w = 0; w < all.size(); ++w) {
        for (bool fused : {false, true}) {
          EXPECT_EQ(reduce(*worlds[w], all[w].algorithm, tensors, fused), expected)
              << all[w].name << (fused ? ", fused" : "") << ", layout " << l << ", round " << round
              << ", " << data_type_name(tensors.dtype) << ", seed " << kSeed + l;
        }
      }
    }
  }
}

// A layout's bits are not those of another, unless every host has the same power of two of ranks.
TEST(Bits, DoNotDependOnTheLayoutOfPowersOfTwo) {
  std::mt19937_64 random(kSeed * 3);
  const Tensors tensors = random_tensors(4, random);
  std::map<std::vector<std::uint64_t>, int> seen;
  for (const std::vector<int>& hosts :
       {std::vector{0, 0, 0, 0}, std::vector{0, 0, 1, 1}, std::vector{0, 1, 2, 3}}) {
    World world(over_hosts("hosts", TensorsIn::kHeap, {}, false), hosts, kSeed);
    ++seen[reduce(world, Algorithm::kDirect, tensors, false)];
  }
  EXPECT_EQ(seen.size(), 1u);
}

}  // namespace
}  // namespace kolo::internal
