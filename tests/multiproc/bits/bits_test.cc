// One hash: what ranks compute together has the same bits over every road, by every algorithm that
// keeps the canonical order, however it is fused and in whatever order it is submitted; and they
// are those of plain loops in one process. Hosts are made by name; all of it is this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/multiproc/bits/plain.h"
#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using Hosts = std::vector<int>;  // ranks on each

constexpr std::uint64_t kSeed = 20261130;
const char* const kNames[] = {"a", "b", "c", "d"};

struct Scene {
  std::string transport;
  std::string road;
  Hosts hosts;
  bool by_mpiexec = false;
};

struct Setting {
  const char* algorithm;
  const char* fusion_bytes;
  int order_seed;
};

constexpr const char* kAlgorithms[] = {"auto", "oneshot", "direct"};
constexpr const char* kFusionBytes[] = {"0", "65536", "67108864"};

int ranks_of(const Hosts& hosts) {
  int ranks = 0;
  for (const int here : hosts) ranks += here;
  return ranks;
}

std::string list_of(const Hosts& hosts) {
  std::string list;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    list += (i == 0 ? "" : ",") + std::string(kNames[i]) + ":" + std::to_string(hosts[i]);
  }
  return list;
}

const std::string& reference_of(const Hosts& hosts) {
  static std::map<Hosts, std::string> known;
  std::string& hash = known[hosts];
  if (hash.empty()) hash = bits::reference_hash(hosts, kSeed);
  return hash;
}

std::vector<std::string> launcher_of(const Scene& scene) {
  const std::string ranks = std::to_string(ranks_of(scene.hosts));
#ifdef KOLO_MPIEXEC
  if (scene.by_mpiexec) {
    return {KOLO_MPIEXEC, "-launcher", "fork", "-hosts", list_of(scene.hosts), "-n", ranks};
  }
#endif
  std::vector<std::string> words = {KOLO_KOLORUN,   "-np",         ranks,
                                    "--label=none", "--transport", scene.transport};
  if (scene.hosts.size() > 1) {
    words.insert(words.end(), {"-H", list_of(scene.hosts), "--launcher", "fork"});
  }
  return words;
}

void expect_reference(const Scene& scene, const Setting& setting) {
  std::vector<std::string> command = launcher_of(scene);
  command.insert(command.end(),
                 {KOLO_BITS_RANKS, std::to_string(kSeed), std::to_string(setting.order_seed)});
  RunOptions options;
  options.timeout_seconds = 90;
  options.environment = {{"KOLO_ALGORITHM", setting.algorithm},
                         {"KOLO_FUSION_THRESHOLD_BYTES", setting.fusion_bytes},
                         {"KOLO_START_TIMEOUT_MS", "20000"}};
  if (scene.by_mpiexec) {
    options.environment["KOLO_TRANSPORT"] = scene.transport;
    options.environment["KOLO_ADDRESSES"] = "127.0.0.1";
  }
  const Outcome outcome = run(command, options);
  const std::string name = scene.transport + " on " + list_of(scene.hosts) + ", " +
                           setting.algorithm + ", fusion " + setting.fusion_bytes + ", order " +
                           std::to_string(setting.order_seed);
  ASSERT_EQ(outcome.exit_code, 0) << name << "\n" << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "") << name;
  const std::string line = "hash " + reference_of(scene.hosts) + " road " + scene.road;
  const std::vector<std::string> lines = lines_of(outcome.out);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), line), ranks_of(scene.hosts))
      << name << ": not \"" << line << "\" but\n"
      << outcome.out;
}

// All settings; else three, so that the `turn`s together meet every pair of algorithm and fusion.
std::vector<Setting> settings_of(std::size_t turn) {
  std::vector<Setting> settings;
  for (std::size_t a = 0; a < 3; ++a) {
    for (std::size_t f = 0; f < 3; ++f) {
      for (int order = 1; order <= 2; ++order) {
        const bool chosen = f == (a + turn) % 3 && order == 1 + static_cast<int>((a + turn) % 2);
        if (chosen || long_tests()) settings.push_back({kAlgorithms[a], kFusionBytes[f], order});
      }
    }
  }
  return settings;
}

void expect_reference_in_all(const std::vector<Scene>& scenes) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  for (std::size_t turn = 0; turn < scenes.size(); ++turn) {
    for (const Setting& setting : settings_of(turn)) expect_reference(scenes[turn], setting);
  }
}

TEST(Bits, ReferencesDifferOnlyWhereTheTreeDoes) {
  const std::string four = reference_of({4});
  EXPECT_EQ(reference_of({2, 2}), four);
  EXPECT_EQ(reference_of({1, 1, 1, 1}), four);
  EXPECT_NE(reference_of({3, 1}), four);  // so the order shows in the bits
  EXPECT_NE(reference_of({2, 1}), four);
  EXPECT_NE(bits::reference_hash({4}, kSeed + 1), four);
}

TEST(Bits, OnOneHost) {
  expect_reference_in_all({{"shm", "shm", {4}}, {"tcp", "tcp", {4}}, {"shm", "shm", {3}}});
}

TEST(Bits, OverHosts) {
  expect_reference_in_all({{"auto", "shm+tcp", {2, 2}},
                           {"tcp", "tcp", {2, 2}},
                           {"auto", "tcp", {1, 1, 1, 1}},
                           {"auto", "shm+tcp", {2, 1}},
                           {"tcp", "tcp", {2, 1}},
                           {"auto", "shm+tcp", {3, 1}}});
}

TEST(Bits, OverMpi) {
#ifdef KOLO_MPIEXEC
  expect_reference_in_all({{"mpi", "mpi", {4}},
                           {"shm+mpi", "shm+mpi", {2, 2}, true},
                           {"mpi", "mpi", {2, 2}, true},
                           {"mpi", "mpi", {1, 1, 1, 1}, true},
                           {"shm+mpi", "shm+mpi", {2, 1}, true},
                           {"mpi", "mpi", {2, 1}, true}});
#else
  GTEST_SKIP() << "built without MPICH (Debian packages mpich libmpich-dev)";
#endif
}

}  // namespace
}  // namespace kolo::test
