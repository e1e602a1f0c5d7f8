// Random schedules: ranks that are threads, process sets that overlap, two devices for each rank,
// each rank's own order of submission, and delays wherever the fakes have any. Communicators that
// are made or used in different orders on two ranks wait for one another, until the test fails; and
// the fake NCCL keeps in which order each rank has begun them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/fakes.h"

namespace gpu_test {
namespace {

constexpr int kRanks = 3;
constexpr int kDevices = 2;  // of each rank

using Random = std::mt19937;

int draw(Random& random, int below) {
  return static_cast<int>(random() % static_cast<unsigned>(below));
}

struct Sum {
  std::string name;
  std::size_t set = 0;  // 0: the world
  std::size_t count = 0;
  int devices[kRanks] = {};  // by rank
  bool by_stream = false;
};

struct Schedule {
  std::vector<std::vector<std::int32_t>> sets = {{0, 1, 2}};
  std::vector<Sum> sums;
  std::string faults;

  explicit Schedule(Random& random) {
    const std::vector<std::vector<std::int32_t>> choice = {{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
    for (int i = draw(random, 4); i > 0; --i) {
      sets.push_back(choice[static_cast<std::size_t>(draw(random, 4))]);
    }
    for (int i = 4 + draw(random, 8); i > 0; --i) {
      Sum sum;
      sum.name = "sum " + std::to_string(i);
      sum.set = static_cast<std::size_t>(draw(random, static_cast<int>(sets.size())));
      sum.count = static_cast<std::size_t>(1 + draw(random, 5000));
      for (int rank = 0; rank < kRanks; ++rank) {
        sum.devices[rank] = rank + kRanks * draw(random, kDevices);
      }
      sum.by_stream = draw(random, 2) == 0;
      sums.push_back(sum);
    }
    const char* const plans[] = {"", "collective:*:delay:300",
                                 "ncclCommInitRankConfig:2:delay:3000",
                                 "ncclCommInitRankConfig:*:delay:1000,collective:3:delay:5000",
                                 "cudaEventRecord:7:delay:2000"};
    faults = plans[static_cast<std::size_t>(draw(random, 5))];
  }
};

bool is_in(const std::vector<std::int32_t>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

class Rank {
 public:
  Rank(kolo::Context& context, const Schedule& schedule, unsigned seed)
      : context_(context),
        schedule_(schedule),
        random_(seed * 1000 + static_cast<unsigned>(context.rank())) {
    for (const Sum& sum : schedule.sums) {
      const int device = sum.devices[context.rank()];
      data_.emplace_back(device, std::vector<float>(sum.count, 1.0F));
      streams_.emplace_back(std::make_unique<Stream>(device));
    }
    psets_.push_back(0);
    for (std::size_t i = 1; i < schedule.sets.size(); ++i) {
      std::int32_t pset = 0;
      must(kolo_pset_create(context.handle(), schedule.sets[i].data(), schedule.sets[i].size(),
                            &pset, nullptr, nullptr));
      psets_.push_back(pset);
    }
  }

  void run() {
    factors_.assign(data_.size(), 1.0F);
    for (int round = 0; round < 3; ++round) {
      if (round == 2) end_sets();
      run_round(round == 2);
    }
  }

 private:
  void run_round(bool world_only) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < data_.size(); ++i) {
      const std::size_t set = schedule_.sums[i].set;
      if (world_only && set != 0) continue;
      if (is_in(schedule_.sets[set], context_.rank())) order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<kolo_request> requests(data_.size(), KOLO_REQUEST_NULL);
    for (const std::size_t i : order) {
      const Sum& one = schedule_.sums[i];
      must(sum(context_, one.name, data_[i], streams_[i]->get(), &requests[i], psets_[one.set]));
    }
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::size_t i : order) {
      const Sum& one = schedule_.sums[i];
      if (one.by_stream) {
        must(kolo_stream_wait(context_.handle(), requests[i], streams_[i]->get(), KOLO_FOREVER));
      }
      must(kolo_wait(context_.handle(), &requests[i], KOLO_FOREVER));
      factors_[i] *= static_cast<float>(schedule_.sets[one.set].size());
      EXPECT_EQ(data_[i].read(streams_[i]->get()), std::vector<float>(one.count, factors_[i]))
          << one.name << " of set " << one.set << " on rank " << context_.rank();
    }
  }

  void end_sets() {
    for (std::size_t i = psets_.size(); i > 1; --i) {
      must(kolo_pset_destroy(context_.handle(), psets_[i - 1], nullptr, nullptr));
    }
  }

  kolo::Context& context_;
  const Schedule& schedule_;
  Random random_;
  std::vector<DeviceArray<float>> data_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::int32_t> psets_;
  std::vector<float> factors_;
};

// ---- The order of creations ---------------------------------------------------------------------

using Creations = std::map<long, std::vector<unsigned long long>>;  // unique ids, by thread

Creations creations() {
  Creations all;
  fakegpu_creation one{};
  for (long i = 0; fakes().creation_at(i, &one) == 0; ++i) all[one.thread].push_back(one.id);
  return all;
}

std::vector<unsigned long long> common(const std::vector<unsigned long long>& of,
                                       const std::vector<unsigned long long>& with) {
  std::vector<unsigned long long> result;
  std::ranges::copy_if(of, std::back_inserter(result), [&](unsigned long long id) {
    return std::ranges::find(with, id) != with.end();
  });
  return result;
}

// What any two ranks have made both of them; kolo makes all of a rank on one thread.
bool in_one_order(const Creations& all) {
  for (const auto& [thread, mine] : all) {
    for (const auto& [other, theirs] : all) {
      if (common(mine, theirs) != common(theirs, mine)) return false;
    }
  }
  return true;
}

TEST(Schedules, AnotherOrderIsSeen) {
  EXPECT_TRUE(in_one_order({{1, {10, 11, 12}}, {2, {10, 12}}, {3, {11, 12}}}));
  EXPECT_FALSE(in_one_order({{1, {10, 11, 12}}, {2, {12, 10}}, {3, {11, 12}}}));
}

TEST(Schedules, CommunicatorsAreMadeInOneOrder) {
  const char* const wish = std::getenv("KOLO_TEST_LONG");
  const char* const only = std::getenv("KOLO_TEST_SEED");
  const unsigned first = only == nullptr ? 1 : static_cast<unsigned>(std::atol(only));
  const unsigned count = only != nullptr ? 1 : wish != nullptr ? 1000 : 40;
  unsigned several = 0;  // ranks that had an order
  for (unsigned seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) +
                 "; again: KOLO_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    const Schedule schedule(random);
    EXPECT_EQ(fakes().set_faults(schedule.faults.c_str()), 0);
    fakes().forget_creations();
    on_ranks(kRanks, [&](kolo::Context& context) { Rank(context, schedule, seed).run(); });
    const Creations made = creations();
    EXPECT_LE(made.size(), kRanks) << "threads that make communicators";
    EXPECT_TRUE(in_one_order(made));
    for (const auto& [thread, ids] : made) several += ids.size() > 1 ? 1 : 0;
    if (HasFailure()) std::fprintf(stderr, "failed with seed %u\n", seed);
  }
  EXPECT_GT(several, count / 2);
  EXPECT_EQ(fakes().set_faults(""), 0);
  EXPECT_EQ(fakes().misuses(), 0) << fakes().misuse_text(0);
}

}  // namespace
}  // namespace gpu_test
