// Whatever ranks can disagree about, whichever of them are wrong, at first sight, known and in
// slots: one MISMATCH on all ranks that says who sent what, and the next operation is right. And
// what else names get used for: other kinds, and more of them than the cache holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/sim/random.h"
#include "tests/unit/coordinator/cluster.h"
#include "tests/unit/coordinator/slot_cluster.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The same few words over either kind of cluster.
class Job {
 public:
  Job(int size, bool slots, const SequencerOptions& options = {}) {
    std::vector<int> hosts(static_cast<std::size_t>(size));
    if (slots) {
      slotted_ = std::make_unique<SlotCluster>(Topology(hosts), options);
    } else {
      for (std::size_t r = 0; r < hosts.size(); ++r) hosts[r] = static_cast<int>(r % 2);
      plain_ = std::make_unique<Cluster>(Topology(hosts), options);
    }
  }
  void submit(int rank, Ticket ticket, const UnitPtr& unit) {
    if (slotted_) {
      slotted_->submit(rank, ticket, unit);
    } else {
      EXPECT_TRUE(plain_->submit(rank, ticket, unit).is_ok());
    }
  }
  void settle() { slotted_ ? slotted_->settle() : plain_->settle(); }
  // How the submission ended; INTERNAL: it has not.
  Status end_of(int rank, Ticket ticket) {
    auto& ended = slotted_ ? (*slotted_)[rank].ended : (*plain_)[rank].ended;
    if (const auto found = ended.find(ticket); found != ended.end()) return found->second;
    if (plain_) {
      for (const Plan& plan : (*plain_)[rank].plans) {
        for (const PlannedUnit& planned : plan.units) {
          if (planned.ticket == ticket) return Status::ok();
        }
      }
    }
    return {StatusCode::kInternal, "it has not ended"};
  }
  bool is_broken(int rank) {
    return !(slotted_ ? (*slotted_)[rank].broken : (*plain_)[rank].broken).empty();
  }

 private:
  std::unique_ptr<SlotCluster> slotted_;
  std::unique_ptr<Cluster> plain_;
};

TensorSpec member(const std::string& name, DataType dtype = DataType::kFloat32) {
  return spec_of(name, {4}, dtype);
}

struct Difference {
  std::string text;  // of the error
  UnitPtr right;
  UnitPtr wrong;
};

Difference differs(const std::string& text, TensorSpec right, TensorSpec wrong) {
  return {text, share(single(std::move(right))), share(single(std::move(wrong)))};
}

TensorSpec with(TensorSpec spec, void (*change)(TensorSpec&)) {
  change(spec);
  return spec;
}

std::vector<Difference> differences(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<Difference> all;
  const TensorSpec sum = member("x");
  all.push_back(differs("operation differs", sum,
                        with(sum, [](TensorSpec& spec) { spec.kind = OpKind::kReduceScatter; })));
  all.push_back(differs("operation differs", sum,
                        with(sum, [](TensorSpec& spec) { spec.kind = OpKind::kAlltoall; })));
  all.push_back(differs("dtype differs: ", sum, member("x", DataType::kBfloat16)));
  all.push_back(differs("op differs: ", sum,
                        with(sum, [](TensorSpec& spec) { spec.op = ReduceOp::kAdasum; })));
  all.push_back(differs("shape differs: ", sum, spec_of("x", {2, 2})));
  all.push_back(differs("shape differs: ", sum, spec_of("x", {5})));
  all.push_back(
      differs("scale differs: ", sum, with(sum, [](TensorSpec& spec) { spec.prescale = 0.5; })));
  all.push_back(
      differs("scale differs: ", sum, with(sum, [](TensorSpec& spec) { spec.postscale = 0.5; })));
  const TensorSpec rows = with(sum, [](TensorSpec& spec) { spec.kind = OpKind::kAllgather; });
  all.push_back(
      differs("allocate differs: ", rows, with(rows, [](TensorSpec& spec) { spec.open = true; })));
  const TensorSpec root = with(sum, [](TensorSpec& spec) { spec.kind = OpKind::kBroadcast; });
  all.push_back(
      differs("root differs: ", root, with(root, [](TensorSpec& spec) { spec.root = 1; })));
  TensorSpec blocks = with(sum, [](TensorSpec& spec) { spec.kind = OpKind::kReduceScatter; });
  TensorSpec other_blocks = blocks;
  blocks.counts.assign(ranks, 2);
  other_blocks.counts = blocks.counts;
  ++other_blocks.counts.front();
  --other_blocks.counts.back();
  all.push_back(differs("counts by rank differs: ", blocks, other_blocks));
  TensorSpec sent = with(sum, [](TensorSpec& spec) { spec.kind = OpKind::kAlltoall; });
  TensorSpec sent_by_rank = sent;
  sent_by_rank.counts.assign(ranks, 1);
  sent_by_rank.count = ranks;
  all.push_back(differs("counts by rank differs: ", sent, sent_by_rank));
  const TensorSpec other_type = member("b", DataType::kInt32);
  all.push_back({"group members differ: ", group("x", {member("a"), member("b")}),
                 group("x", {member("a"), member("c")})});
  all.push_back({"member 'b': dtype differs: ", group("x", {member("a"), member("b")}),
                 group("x", {member("a"), other_type})});
  all.push_back(
      {"group members differ: no group", share(single(member("x"))), group("x", {member("x")})});
  return all;
}

void expect_mismatch(Job& job, int size, Ticket ticket, const std::string& text,
                     const std::vector<int>& wrong) {
  for (int rank = 0; rank < size; ++rank) {
    const Status status = job.end_of(rank, ticket);
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_EQ(status.text(), job.end_of(0, ticket).text()) << "the same on all ranks";
    const std::string who = text == "group members differ: no group" ? "no group" : text;
    EXPECT_THAT(status.text(),
                AllOf(HasSubstr("'x'"), HasSubstr(who), HasSubstr("on " + ranks_text(wrong))));
    EXPECT_FALSE(job.is_broken(rank));
  }
}

void expect_ran(Job& job, int size, Ticket ticket) {
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_TRUE(job.end_of(rank, ticket).is_ok()) << job.end_of(rank, ticket).to_string();
  }
}

void submit_all(Job& job, int size, Ticket ticket, const UnitPtr& unit) {
  for (int rank = 0; rank < size; ++rank) job.submit(rank, ticket, unit);
  job.settle();
}

// `seen`: how often the right unit runs first.
void check_difference(const Difference& one, int size, bool slots, int seen) {
  Job job(size, slots);
  Ticket ticket = 0;
  for (int i = 0; i < seen; ++i) submit_all(job, size, ++ticket, one.right);
  for (unsigned mask = 1; mask + 1 < 1U << size; ++mask) {
    std::vector<int> wrong;
    ++ticket;
    for (int rank = 0; rank < size; ++rank) {
      const bool is_wrong = (mask >> rank & 1) != 0;
      if (is_wrong) wrong.push_back(rank);
      job.submit(rank, ticket, is_wrong ? one.wrong : one.right);
    }
    job.settle();
    expect_mismatch(job, size, ticket, one.text, wrong);
    for (int i = 0; i < std::max(seen, 1); ++i) {
      submit_all(job, size, ++ticket, one.right);
      expect_ran(job, size, ticket);
    }
  }
}

class Matrix : public ::testing::TestWithParam<int> {};

TEST_P(Matrix, EveryDifferenceOfEverySubset) {
  const int size = GetParam();
  for (const Difference& one : differences(size)) {
    for (const bool slots : {false, true}) {
      for (const int seen : {0, 2}) {
        SCOPED_TRACE(one.text + (slots ? ", slots" : ", frames") + ", seen " +
                     std::to_string(seen) + " times");
        check_difference(one, size, slots, seen);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Matrix, ::testing::Values(2, 3, 4, 5),
                         ::testing::PrintToStringParamName());

class Names : public ::testing::TestWithParam<bool> {};

// A peer's cache has no word for some kinds.
TEST_P(Names, OfAKnownAllreduceServeAReduceScatterOfTheSameShape) {
  constexpr int kSize = 3;
  Job job(kSize, GetParam());
  const TensorSpec sum = spec_of("x", {12});
  TensorSpec scatter = sum;
  scatter.kind = OpKind::kReduceScatter;
  Ticket ticket = 0;
  for (int round = 0; round < 3; ++round) {
    for (const TensorSpec& spec : {sum, scatter}) {
      for (int i = 0; i < 3; ++i) {
        submit_all(job, kSize, ++ticket, share(single(spec)));
        expect_ran(job, kSize, ticket);
      }
    }
  }
}

TEST_P(Names, MoreThanTheCacheHoldsInRandomOrderAreNeverMistaken) {
  constexpr int kSize = 3;
  constexpr std::uint64_t kSeed = 17;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  SequencerOptions options;
  options.cache_capacity = 2;
  Job job(kSize, GetParam(), options);
  Rng rng(kSeed);
  for (Ticket ticket = 1; ticket < 2000; ++ticket) {
    const int number = rng.chance(50) ? rng.below(3) : rng.below(50);
    const std::string name = "n" + std::to_string(number);
    const UnitPtr right = allreduce(name, 0, 1 + number);
    const int wrong = rng.chance(10) ? rng.below(kSize) : -1;
    std::vector<int> ranks = {0, 1, 2};
    rng.shuffle(ranks);
    for (const int rank : ranks) {
      job.submit(rank, ticket, rank == wrong ? allreduce(name, 0, 100) : right);
      if (rng.chance(30)) job.settle();
    }
    job.settle();
    for (const int rank : ranks) {
      ASSERT_EQ(job.end_of(rank, ticket).code(),
                wrong < 0 ? StatusCode::kOk : StatusCode::kMismatch)
          << name << ": " << job.end_of(rank, ticket).to_string();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Roads, Names, ::testing::Bool(), [](const auto& which) {
  return std::string(which.param ? "Slots" : "Frames");
});

}  // namespace
}  // namespace kolo::internal
