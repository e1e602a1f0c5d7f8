// Process sets, join, and collectives with counts of their own, through contexts as threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/core/ranks.h"

namespace kolo::internal {
namespace {

Submission create_of(const std::vector<std::int64_t>& ranks, std::int32_t& number,
                     std::string_view name = {}) {
  Submission submission;
  submission.kind = OpKind::kCreateSet;
  submission.name = name;
  submission.has_shape = true;
  submission.shape = ranks;
  submission.number = &number;
  return submission;
}

std::int32_t make_set(Context& context, const std::vector<std::int64_t>& ranks) {
  std::int32_t number = -1;
  const Status status = context.run(create_of(ranks, number));
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  return number;
}

Status destroy_set(Context& context, std::int32_t set) {
  const std::int64_t id = set;
  Submission submission;
  submission.kind = OpKind::kDestroySet;
  submission.has_shape = true;
  submission.shape = {&id, 1};
  return context.run(submission);
}

Submission in_set(Submission submission, std::int32_t set) {
  submission.process_set = set;
  return submission;
}

class Sets : public testing::TestWithParam<const char*> {
 protected:
  Ranks ranks_of(int size) { return Ranks(size, {{"transport", GetParam()}}); }
};
INSTANTIATE_TEST_SUITE_P(Roads, Sets, testing::Values("shm", "tcp"));

TEST_P(Sets, SumAmongTheirRanksOnly) {
  auto ranks = ranks_of(4);
  ranks.on_all([](Context& context) {
    const std::int32_t odd = make_set(context, {1, 3});
    const std::int32_t high = make_set(context, {1, 2, 3});
    EXPECT_EQ(odd, 1);
    EXPECT_EQ(high, 2);
    for (int round = 0; round < 20; ++round) {
      for (const auto& [set, total] : {std::pair(odd, 1000 + 1'000'000'000), std::pair(high, 0)}) {
        const auto members = *context.ranks_of(set);
        if (std::count(members.begin(), members.end(), context.rank()) == 0) continue;
        std::vector<std::int32_t> values(1000, context.rank());
        const Status status = context.run(in_set(sum_of("x", values), set));
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        EXPECT_EQ(values[999], std::accumulate(members.begin(), members.end(), 0));
        std::vector<std::int32_t> one = {context.rank()};
        ASSERT_TRUE(context.run(in_set(sum_of("tiny", one), set)).is_ok());
        EXPECT_EQ(one[0], std::accumulate(members.begin(), members.end(), 0)) << total;
      }
      probe(context);
    }
  });
}

// Each rank submits to its sets in an order of its own.
TEST_P(Sets, OverlapInAnyOrder) {
  auto ranks = ranks_of(3);
  ranks.on_all([](Context& context) {
    std::vector<std::int32_t> sets = {make_set(context, {0, 1}), make_set(context, {1, 2}),
                                      make_set(context, {0, 2}), 0};
    for (int round = 0; round < 30; ++round) {
      std::vector<std::vector<std::int32_t>> values(4, std::vector<std::int32_t>(5000, 1));
      std::vector<RequestId> requests;
      for (int i = 0; i < 4; ++i) {
        const auto at = static_cast<std::size_t>((i * (context.rank() == 1 ? 3 : 1) + round) % 4);
        const auto members = *context.ranks_of(sets[at]);
        if (std::count(members.begin(), members.end(), context.rank()) == 0) continue;
        requests.push_back(submit(context, in_set(sum_of("g", values[at]), sets[at])));
      }
      for (const RequestId request : requests) ASSERT_TRUE(finish(context, request).is_ok());
      for (std::size_t at = 0; at < 4; ++at) {
        const auto members = *context.ranks_of(sets[at]);
        if (std::count(members.begin(), members.end(), context.rank()) == 0) continue;
        ASSERT_EQ(values[at][17], static_cast<std::int32_t>(members.size()));
      }
    }
  });
}

TEST_P(Sets, WhoIsOutsideIsToldSo) {
  auto ranks = ranks_of(3);
  ranks.on_all([](Context& context) {
    const std::int32_t set = make_set(context, {0, 2});
    std::vector<std::int32_t> values = {1};
    const Status status = context.run(in_set(sum_of("x", values), set));
    if (context.rank() == 1) {
      expect_code(status, StatusCode::kInvalidArgument);
      EXPECT_NE(status.text().find("not in process set"), std::string::npos) << status.text();
    } else {
      EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    expect_code(context.run(in_set(sum_of("x", values), 77)), StatusCode::kInvalidArgument);
    probe(context);
  });
}

TEST_P(Sets, DifferentRanksAreAMismatch) {
  auto ranks = ranks_of(3);
  ranks.on_all([](Context& context) {
    std::int32_t number = -1;
    const std::vector<std::int64_t> mine = {0, context.rank() == 1 ? 2 : 1};
    const Status status = context.run(create_of(mine, number));
    expect_code(status, StatusCode::kMismatch);
    EXPECT_EQ(number, -1);
    EXPECT_EQ(make_set(context, {0, 1}), 1);
  });
}

TEST_P(Sets, EndWithWorkInFlight) {
  auto ranks = ranks_of(3);
  ranks.on_all([](Context& context) {
    for (int round = 0; round < 5; ++round) {
      const std::int32_t set = make_set(context, {0, 1, 2});
      std::vector<std::int32_t> done(3000, 1);
      std::vector<std::int32_t> lost(3000, 1);
      const RequestId finished = submit(context, in_set(sum_of("done", done), set));
      RequestId waiting = 0;
      if (context.rank() != 2) waiting = submit(context, in_set(sum_of("lost", lost), set));
      const Status destroyed = destroy_set(context, set);
      ASSERT_TRUE(destroyed.is_ok()) << destroyed.to_string();
      EXPECT_TRUE(finish(context, finished).is_ok());
      EXPECT_EQ(done[2999], 3);
      if (waiting != 0) {
        expect_code(finish(context, waiting), StatusCode::kAborted);
        EXPECT_EQ(lost[0], 1);
      }
      expect_code(context.run(in_set(sum_of("late", done), set)), StatusCode::kInvalidArgument);
    }
    probe(context);
  });
}

TEST_P(Sets, ReduceScatterAndAlltoall) {
  auto ranks = ranks_of(3);
  ranks.on_all([](Context& context) {
    const std::int32_t set = context.size() == 3 ? make_set(context, {0, 1, 2}) : 0;
    for (const std::int32_t pset : {0, set}) {
      for (int round = 0; round < 3; ++round) {
        std::vector<std::int32_t> input(3000);
        std::iota(input.begin(), input.end(), context.rank());
        std::vector<std::int32_t> block(1000);
        Submission scatter = in_set(sum_of("rs", block), pset);
        scatter.kind = OpKind::kReduceScatter;
        scatter.input = input.data();
        ASSERT_TRUE(context.run(scatter).is_ok());
        EXPECT_EQ(block[5], 3 * (context.rank() * 1000 + 5) + 3);
        std::vector<std::int32_t> all(3000);
        Submission exchange = in_set(sum_of("a2a", all), pset);
        exchange.kind = OpKind::kAlltoall;
        exchange.input = input.data();
        exchange.count = 1000;
        ASSERT_TRUE(context.run(exchange).is_ok());
        for (int from = 0; from < 3; ++from) {
          EXPECT_EQ(all[static_cast<std::size_t>(from) * 1000 + 7],
                    from + context.rank() * 1000 + 7);
        }
      }
    }
  });
}

TEST_P(Sets, TheLibraryAllocatesWhatComes) {
  auto ranks = ranks_of(3);
  ranks.on_all([](Context& context) {
    for (std::size_t round = 0; round < 3; ++round) {
      const auto rank = static_cast<std::size_t>(context.rank());
      std::vector<std::int32_t> rows(rank * (round + 1), context.rank());
      Submission gather = sum_of("rows", rows);
      gather.kind = OpKind::kAllgather;
      gather.output = nullptr;
      gather.allocate = true;
      const RequestId request = submit(context, gather);
      ASSERT_TRUE(finish(context, request).is_ok());
      const auto output = context.output(request);
      ASSERT_TRUE(output.is_ok()) << output.status().to_string();
      ASSERT_EQ(output->count, 3 * (round + 1));
      EXPECT_EQ(output->counts[0], 0U);
      EXPECT_EQ(output->counts[2], 2 * (round + 1));
      const auto* values = static_cast<const std::int32_t*>(output->memory);
      EXPECT_EQ(values[0], 1);
      EXPECT_EQ(values[output->count - 1], 2);
      EXPECT_TRUE(context.release(request).is_ok());
      // Rank r sends s + round elements to rank s.
      const std::size_t sends[] = {round, 1 + round, 2 + round};
      std::vector<std::int32_t> sent(3 + 3 * round, context.rank());
      Submission exchange = sum_of("some", sent);
      exchange.kind = OpKind::kAlltoall;
      exchange.output = nullptr;
      exchange.allocate = true;
      exchange.send_counts = sends;
      const RequestId second = submit(context, exchange);
      ASSERT_TRUE(finish(context, second).is_ok());
      const auto got = context.output(second);
      ASSERT_TRUE(got.is_ok());
      EXPECT_EQ(got->count, 3 * (rank + round));
      EXPECT_EQ(got->counts[1], rank + round);
      EXPECT_TRUE(context.release(second).is_ok());
    }
  });
}

// Rank r has r + 1 batches.
TEST_P(Sets, JoinLetsTheOthersGoOn) {
  auto ranks = ranks_of(3);
  ranks.on_all([](Context& context) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int batch = 0; batch <= context.rank(); ++batch) {
        std::vector<std::int32_t> step = {1};
        ASSERT_TRUE(context.run(sum_of({}, step)).is_ok());
        EXPECT_EQ(step[0], 3 - batch);
        for (const std::size_t count : {std::size_t{3}, std::size_t{5000}}) {
          std::vector<float> values(count, 6.0F);
          std::int32_t participants = -1;
          Submission average;
          const std::string name = "g" + std::to_string(count);
          average.name = name;
          average.input = average.output = values.data();
          average.count = count;
          average.op = ReduceOp::kAvg;
          average.participants = &participants;
          const Status status = context.run(average);
          ASSERT_TRUE(status.is_ok()) << status.to_string();
          EXPECT_EQ(values[count - 1], 6.0F);
          EXPECT_EQ(participants, 3 - batch);
        }
      }
      Submission join;
      std::int32_t last = -1;
      join.number = &last;
      const Status joined = context.run_join(join);
      ASSERT_TRUE(joined.is_ok()) << joined.to_string();
      EXPECT_EQ(last, 2);
      ASSERT_TRUE(context.run(barrier()).is_ok());
      probe(context);
    }
  });
}

TEST_P(Sets, NonFiniteValuesAreCounted) {
  auto ranks = ranks_of(2);
  ranks.on_all([](Context& context) {
    for (const std::size_t count : {std::size_t{4}, std::size_t{1'000'000}}) {
      std::vector<float> values(count, 1.0F);
      if (context.rank() == 1) values[2] = values[count - 1] = INFINITY;
      std::int64_t nonfinite = -1;
      Submission sum;
      sum.name = count == 4 ? "small" : "large";
      sum.input = sum.output = values.data();
      sum.count = count;
      sum.nonfinite = &nonfinite;
      ASSERT_TRUE(context.run(sum).is_ok());
      EXPECT_EQ(nonfinite, 2);
    }
  });
}

// The others of its host neither wait for an idle rank, leader or not, nor does the host's log fill
// because of it: twice as many operations as the log has room for.
TEST_P(Sets, GoOnWhileTheOthersAreIdle) {
  auto ranks = ranks_of(3);
  const int rounds = std::string_view(GetParam()) == "shm" ? 20'000 : 500;
  ranks.on_all([](Context& context) {
    EXPECT_EQ(make_set(context, {1, 2}), 1);
    EXPECT_EQ(make_set(context, {0, 1}), 2);
  });
  for (const auto& [set, members] :
       {std::pair(1, std::pair(1, 2)), std::pair(2, std::pair(0, 1))}) {
    const auto body = [&, set = set](Context& context) {
      std::vector<std::int32_t> values(64);
      for (int round = 0; round < rounds; ++round) {
        values[0] = 1;
        const Status status = context.run(in_set(sum_of("x", values), set));
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        ASSERT_EQ(values[0], 2);
        values.assign(64, 0);
      }
    };
    std::thread other(body, std::ref(ranks[members.first]));
    body(ranks[members.second]);
    other.join();
  }
  ranks.on_all([](Context& context) { probe(context); });
}

// A set of ranks that had one before takes over what that one used, next to the world's work.
TEST_P(Sets, TheSameRanksAgainBesideTheWorld) {
  auto ranks = ranks_of(3);
  ranks.on_all([](Context& context) {
    for (int again = 0; again < 4; ++again) {
      const std::int32_t set = make_set(context, {0, 1, 2});
      EXPECT_EQ(set, again + 1);
      for (int round = 0; round < 5; ++round) {
        std::vector<std::vector<std::int32_t>> values;
        for (int i = 0; i < 8; ++i) values.emplace_back(100'000, i);
        std::vector<RequestId> requests;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const std::string name = "x" + std::to_string(i);
          const std::int32_t pset = i % 2 == 0 ? set : 0;
          requests.push_back(submit(context, in_set(sum_of(name, values[i]), pset)));
        }
        for (const RequestId request : requests) {
          const Status status = finish(context, request);
          ASSERT_TRUE(status.is_ok()) << status.to_string();
        }
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(values[i][99'999], 3 * static_cast<std::int32_t>(i));
        }
      }
      ASSERT_TRUE(destroy_set(context, set).is_ok());
    }
  });
}

// Rank 0 orders for the set {1, 2}, and leaves: what is pending there ends, whether known or new,
// inline or not, a join or a destroy. Rank 3 is needed by nobody: without it the set goes on.
TEST_P(Sets, EndWithTheRankThatOrdersForThem) {
  for (const int leaver : {0, 3}) {
    auto ranks = ranks_of(4);
    std::vector<RequestId> pending;
    std::vector<std::vector<std::int32_t>> values;
    for (const std::size_t count : {1, 1, 2000, 2000, 1'000'000}) values.emplace_back(count, 1);
    std::vector<std::vector<std::int32_t>> theirs = values;
    const auto body = [&](Context& context) {
      const std::int32_t set = make_set(context, {1, 2});
      if (context.rank() != 1 && context.rank() != 2) return;
      for (const std::size_t known : {std::size_t{0}, std::size_t{2}}) {
        for (int i = 0; i < 3; ++i) {
          std::vector<std::int32_t> some(values[known].size(), 1);
          const std::string name = "x" + std::to_string(known);
          ASSERT_TRUE(context.run(in_set(sum_of(name, some), set)).is_ok());
        }
      }
      if (context.rank() == 2) return;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::string name = "x" + std::to_string(i);
        pending.push_back(submit(context, in_set(sum_of(name, values[i]), set)));
      }
    };
    ranks.on_all(body);
    ASSERT_TRUE(ranks[leaver].shutdown().is_ok());
    if (leaver == 0) {
      for (const RequestId request : pending) {
        expect_code(finish(ranks[1], request), StatusCode::kAborted);
      }
      expect_code(ranks[2].run(in_set(sum_of("late", values[0]), 1)), StatusCode::kAborted);
    } else {
      std::vector<RequestId> others;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::string name = "x" + std::to_string(i);
        others.push_back(submit(ranks[2], in_set(sum_of(name, theirs[i]), 1)));
      }
      for (const RequestId request : pending) EXPECT_TRUE(finish(ranks[1], request).is_ok());
      for (const RequestId request : others) EXPECT_TRUE(finish(ranks[2], request).is_ok());
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i].back(), 2);
        EXPECT_EQ(theirs[i].back(), 2);
      }
      expect_code(ranks[1].run(barrier()), StatusCode::kAborted);
      expect_code(ranks[1].health(), StatusCode::kAborted);
    }
  }
}

// Sets of many shapes that come and go, each used in an order of the rank's own.
TEST_P(Sets, ManyOverlapAndComeAndGo) {
  auto ranks = ranks_of(4);
  ranks.on_all([](Context& context) {
    std::minstd_rand random(static_cast<unsigned>(context.rank()) + 1);
    for (int round = 0; round < 4; ++round) {
      std::vector<std::int32_t> sets;
      for (int i = 0; i < 12; ++i) {
        const int mask = (i * 37 + round * 11) % 15 + 1;
        std::vector<std::int64_t> members;
        for (int rank = 0; rank < 4; ++rank) {
          if ((mask >> rank & 1) != 0) members.push_back(rank);
        }
        sets.push_back(make_set(context, members));
      }
      std::vector<std::int32_t> mine;
      for (const std::int32_t set : sets) {
        const auto members = *context.ranks_of(set);
        if (std::count(members.begin(), members.end(), context.rank()) > 0) mine.push_back(set);
      }
      std::shuffle(mine.begin(), mine.end(), random);
      std::vector<std::vector<std::int32_t>> values(mine.size(),
                                                    std::vector<std::int32_t>(120'000, 1));
      std::vector<RequestId> requests;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        requests.push_back(submit(context, in_set(sum_of("n", values[i]), mine[i])));
      }
      for (const RequestId request : requests) {
        const Status status = finish(context, request);
        ASSERT_TRUE(status.is_ok()) << status.to_string();
      }
      for (std::size_t i = 0; i < mine.size(); ++i) {
        ASSERT_EQ(values[i][119'999], static_cast<std::int32_t>(context.ranks_of(mine[i])->size()));
      }
      for (const std::int32_t set : sets) ASSERT_TRUE(destroy_set(context, set).is_ok());
    }
  });
}

// Equal vectors are averaged, orthogonal ones added; small and large, known and new, also of a set.
TEST_P(Sets, Adasum) {
  auto ranks = ranks_of(2);
  ranks.on_all([](Context& context) {
    const std::int32_t set = make_set(context, {0, 1});
    for (const std::int32_t pset : {0, set}) {
      for (const std::size_t count : {std::size_t{4}, std::size_t{100'000}}) {
        for (int round = 0; round < 3; ++round) {
          std::vector<float> same(count, 2.0F);
          std::vector<float> apart(count, 0.0F);
          for (std::size_t i = 0; i < count; ++i) {
            if (i % 2 == static_cast<std::size_t>(context.rank())) apart[i] = 3.0F;
          }
          for (auto* const values : {&same, &apart}) {
            Submission adasum;
            const std::string name = (values == &same ? "same" : "apart") + std::to_string(count);
            adasum.name = name;
            adasum.process_set = pset;
            adasum.op = ReduceOp::kAdasum;
            adasum.input = adasum.output = values->data();
            adasum.count = count;
            const Status status = context.run(adasum);
            ASSERT_TRUE(status.is_ok()) << status.to_string();
          }
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_NEAR(same[i], 2.0F, 1e-6F);
            ASSERT_NEAR(apart[i], 3.0F, 1e-6F);
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace kolo::internal
