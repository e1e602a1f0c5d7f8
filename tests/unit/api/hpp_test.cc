// kolo.hpp on ranks as threads: every collective by spans, process sets, outputs of the library's,
// joins; and the sizes that do not fit, of which the other ranks never hear.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kolo/kolo.hpp"
#include "tests/unit/training/ranks.h"
#include "tests/unit/training/refused.h"

namespace {

using kolo::Context;
using kolo::Op;
using kolo::Options;
using kolo::ProcessSet;
using kolo::Ragged;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using training_test::expect_refused;
using training_test::on_ranks;
using Ints = std::vector<int>;

constexpr int kRanks = 3;

TEST(Hpp, ReduceScatter) {
  on_ranks(kRanks, [](Context& context) {
    const int rank = context.rank();
    const Ints input = {1, 2, 3, 4, 5, 6};
    Ints output(2);
    context.reduce_scatter(input, output, Op::sum);
    EXPECT_THAT(output, ElementsAre(3 * (2 * rank + 1), 3 * (2 * rank + 2)));
    output.assign(2, 0);
    context.reduce_scatter_async(input, output, Op::max, Options().name("r")).wait();
    EXPECT_THAT(output, ElementsAre(2 * rank + 1, 2 * rank + 2));

    const Options ragged = Options().recv_counts({1, 0, 5});
    Ints mine(ragged.recv_counts()[static_cast<std::size_t>(rank)]);
    context.reduce_scatter(input, mine, Op::sum, ragged);
    EXPECT_EQ(mine,
              (std::vector<Ints>{{3}, {}, {6, 9, 12, 15, 18}}[static_cast<std::size_t>(rank)]));

    Ints seven(7);
    expect_refused([&] { context.reduce_scatter(seven, output, Op::sum); }, "6 elements, not 7");
    expect_refused([&] { context.reduce_scatter(seven, mine, Op::sum, ragged); }, "not 7");
  });
}

TEST(Hpp, Alltoall) {
  on_ranks(kRanks, [](Context& context) {
    const int rank = context.rank();
    const Ints input = {10 * rank, 10 * rank + 1, 10 * rank + 2};
    Ints output(3);
    context.alltoall(input, output);
    EXPECT_THAT(output, ElementsAre(rank, 10 + rank, 20 + rank));
    output.assign(3, 0);
    context.alltoall_async(input, output, Options().name("a")).wait();
    EXPECT_THAT(output, ElementsAre(rank, 10 + rank, 20 + rank));

    // Rank r sends r + 1 elements to everybody.
    const std::size_t sent = static_cast<std::size_t>(rank) + 1;
    const Ints more(3 * sent, rank);
    Ints six(6);
    const Options ragged = Options().send_counts({sent, sent, sent}).recv_counts({1, 2, 3});
    context.alltoall(more, six, ragged);
    EXPECT_THAT(six, ElementsAre(0, 1, 1, 2, 2, 2));

    Ints four(4);
    const Ints eleven(11);
    expect_refused([&] { context.alltoall(input, four); }, "differ in size");
    expect_refused([&] { context.alltoall(four, four); }, "one block for each of 3 ranks");
    expect_refused([&] { context.alltoall(eleven, six, ragged); }, "sum of send_counts");
    expect_refused([&] { context.alltoall(more, four, ragged); }, "sum of recv_counts");
  });
}

TEST(Hpp, OutputsOfTheLibrary) {
  on_ranks(kRanks, [](Context& context) {
    const int rank = context.rank();
    const Ints input(static_cast<std::size_t>(rank), rank);
    Ragged<int> all = context.allgather_ragged_async(input, Options().name("all"));
    while (!all.wait_for(std::chrono::milliseconds(1))) EXPECT_EQ(all.size(), 0u);
    all.wait();  // a second time harms nothing
    EXPECT_TRUE(all.test());
    EXPECT_THAT(std::span<int>(all), ElementsAre(1, 2, 2));
    EXPECT_EQ(all.blocks(), 3u);
    EXPECT_THAT(std::span(all.counts(), 3), ElementsAre(0, 1, 2));
    EXPECT_THAT(all.block(0), ElementsAre());
    EXPECT_THAT(all.block(2), ElementsAre(2, 2));
    all = context.allgather_ragged(std::span(input).first(0));
    EXPECT_NE(all.data(), nullptr);
    EXPECT_EQ(all.size(), 0u);
    const Ragged<int> moved = std::move(all);
    EXPECT_NE(moved.data(), nullptr);

    // To rank s go s elements.
    const Ints blocks = {rank, rank, rank};
    Ragged<int> mine = context.alltoall_ragged_async(blocks, Options().send_counts({0, 1, 2}));
    while (!mine.test()) EXPECT_EQ(mine.size(), 0u);
    EXPECT_EQ(mine.size(), 3 * static_cast<std::size_t>(rank));
    for (std::size_t from = 0; from < 3; ++from) {
      EXPECT_THAT(mine.block(from), Each(static_cast<int>(from)));
    }

    // Without counts: a block of one size to each.
    const Ints even = {10 * rank, 10 * rank + 1, 10 * rank + 2};
    mine = context.alltoall_ragged(even);
    EXPECT_THAT(std::span<int>(mine), ElementsAre(rank, 10 + rank, 20 + rank));
    mine = context.alltoall_ragged_async(even, Options().name("even"));
    mine.wait();
    EXPECT_THAT(std::span(mine.counts(), 3), Each(1u));
    const Ints four(4);
    expect_refused([&] { (void)context.alltoall_ragged(four); }, "and has 4 elements");
    expect_refused([&] { (void)context.alltoall_ragged_async(four); }, "and has 4 elements");
    const Options three = Options().send_counts({0, 1, 2});
    expect_refused([&] { (void)context.alltoall_ragged(four, three); }, "sum of send_counts");
  });
}

TEST(Hpp, CountsThatAreNotOneForEachRank) {
  on_ranks(kRanks, [](Context& context) {
    const ProcessSet lower = context.create_process_set({0, 1});
    const Ints input(4);
    Ints output(4);
    for (const std::vector<std::size_t>& counts :
         {std::vector<std::size_t>{4}, {2, 2}, {1, 1, 1, 1}}) {
      const std::string entries = std::to_string(counts.size()) + " entries, but there are 3 ranks";
      const std::string sent = "send_counts has " + entries;
      const std::string received = "recv_counts has " + entries;
      const Options receive = Options().recv_counts(counts);
      const Options send = Options().send_counts(counts);
      const Options three = Options().send_counts({2, 1, 1}).recv_counts(counts);
      const int* const from = input.data();
      int* const to = output.data();
      expect_refused([&] { context.reduce_scatter(input, output, Op::sum, receive); }, received);
      expect_refused([&] { context.reduce_scatter(from, to, 4, Op::sum, receive); }, received);
      expect_refused([&] { (void)context.reduce_scatter_async(from, to, 4, Op::sum, receive); },
                     received);
      expect_refused([&] { context.allgather(input, output, receive); }, received);
      expect_refused([&] { context.allgather(from, to, 4, receive); }, received);
      expect_refused([&] { (void)context.allgather_async(from, to, 4, receive); }, received);
      expect_refused([&] { context.alltoall(input, output, three); }, received);
      expect_refused([&] { context.alltoall(from, to, 4, send); }, sent);
      expect_refused([&] { (void)context.alltoall_async(from, to, 4, three); }, received);
      expect_refused([&] { (void)context.alltoall_ragged(input, send); }, sent);
      expect_refused([&] { (void)context.alltoall_ragged(from, 4, send); }, sent);
    }
    // Those of a set are as many as its ranks, not as the job's.
    if (context.place(lower) >= 0) {
      const Options wrong = Options().send_counts({2, 1, 1}).on(lower);
      expect_refused([&] { (void)context.alltoall_ragged(input, wrong); }, "there are 2 ranks");
      const Options right = Options().send_counts({3, 1}).on(lower);
      EXPECT_EQ(context.alltoall_ragged(input, right).size(), context.rank() == 0 ? 6u : 2u);
    }
  });
}

TEST(Hpp, AnOutputThatFailedHoldsNothing) {
  on_ranks(2, [](Context& context) {
    const std::vector<float> floats = {1};
    const std::vector<double> doubles = {1};
    try {
      if (context.rank() == 0) {
        (void)context.allgather_ragged(floats, Options().name("x"));
      } else {
        (void)context.allgather_ragged(doubles, Options().name("x"));
      }
      ADD_FAILURE() << "no error";
    } catch (const kolo::Error& error) {
      EXPECT_EQ(error.status(), KOLO_MISMATCH) << error.what();
    }
    EXPECT_EQ(context.allgather_ragged(floats, Options().name("x")).size(), 2u);
  });
}

TEST(Hpp, ProcessSets) {
  on_ranks(kRanks, [](Context& context) {
    const int rank = context.rank();
    EXPECT_THAT(context.ranks(), ElementsAre(0, 1, 2));
    EXPECT_EQ(context.place(), rank);
    const ProcessSet outer = context.create_process_set({2, 0}, Options().name("outer"));
    EXPECT_NE(outer, ProcessSet());
    EXPECT_THAT(context.ranks(outer), ElementsAre(0, 2));
    EXPECT_EQ(context.place(outer), rank == 1 ? -1 : rank / 2);
    ProcessSet upper;
    context.create_process_set_async({1, 2}, upper).wait();
    EXPECT_NE(upper, outer);
    if (rank != 1) {
      const Ints input = {rank};
      Ints both(2);
      context.allgather(input, both, Options().on(outer));
      EXPECT_THAT(both, ElementsAre(0, 2));
      EXPECT_EQ(context.allgather_ragged(input, Options().on(outer)).blocks(), 2u);
      Ints sum = {rank};
      context.allreduce(sum, Op::sum, Options().on(outer));
      EXPECT_THAT(sum, ElementsAre(2));
      Ints three(3);
      expect_refused([&] { context.allgather(input, three, Options().on(outer)); }, "not 3");
    }
    if (rank != 0) {
      Ints value = {rank};
      context.broadcast(value, 2, Options().on(upper));
      EXPECT_THAT(value, ElementsAre(2));
    }
    context.destroy_process_set(outer);
    context.destroy_process_set_async(upper).wait();
    expect_refused([&] { (void)context.ranks(outer); }, "process set");
    expect_refused([&] { (void)context.create_process_set({0, 3}); }, "3");
  });
}

TEST(Hpp, JoinAndResult) {
  on_ranks(kRanks, [](Context& context) {
    const int rank = context.rank();
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step <= rank; ++step) {
        kolo_result told = {};
        std::vector<float> value = {static_cast<float>(rank)};
        if (step == 2) value[0] = std::numeric_limits<float>::infinity();
        context.allreduce(value, Op::avg, Options().name("value").result(&told));
        EXPECT_EQ(told.participants, kRanks - step);
        EXPECT_EQ(told.nonfinite, step == 2 ? 1 : 0);
        if (step < 2) {
          EXPECT_EQ(value[0], step == 0 ? 1.0f : 1.5f);
        }
      }
      if (epoch == 0) {
        EXPECT_EQ(context.join(), 2);
      } else {
        std::int32_t last_rank = -1;
        context.join_async(&last_rank).wait();
        EXPECT_EQ(last_rank, 2);
      }
    }
  });
}

TEST(Hpp, Adasum) {
  on_ranks(2, [](Context& context) {
    // Two that agree are averaged, two that are orthogonal are added.
    std::vector<double> equal = {3, 4};
    context.allreduce(equal, Op::adasum);
    EXPECT_THAT(equal, ElementsAre(testing::DoubleEq(3), testing::DoubleEq(4)));
    std::vector<double> orthogonal = {context.rank() == 0 ? 1.0 : 0.0,
                                      context.rank() == 0 ? 0.0 : 2.0};
    context.allreduce(orthogonal, Op::adasum);
    EXPECT_THAT(orthogonal, ElementsAre(testing::DoubleEq(1), testing::DoubleEq(2)));
  });
}

}  // namespace
