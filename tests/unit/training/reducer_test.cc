// broadcast_parameters, GradientReducer, sync_batch_norm and clipping of sharded gradients, on
// ranks as threads, against plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kolo/kolo.hpp"
#include "tests/unit/count_allocations.h"
#include "tests/unit/training/ranks.h"
#include "tests/unit/training/refused.h"

namespace {

using kolo::Context;
using kolo::GradientReducer;
using kolo::Op;
using kolo::Tensor;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using training_test::expect_refused;
using training_test::on_ranks;
using Floats = std::vector<float>;

constexpr int kRanks = 3;

// Small whole numbers, so that sums are exact in any order.
float value_of(int rank, int step, std::size_t tensor, std::size_t i) {
  return static_cast<float>((rank + 1) * 8 + step * 4 + static_cast<int>(tensor * 3 + i) % 16);
}

TEST(BroadcastParameters, EveryRankGetsTheRoots) {
  on_ranks(kRanks, [](Context& context) {
    const int rank = context.rank();
    for (int root = 0; root < kRanks; ++root) {
      Floats weights(1000, static_cast<float>(rank));
      std::vector<double> scale = {rank + 0.5};
      std::vector<std::int64_t> steps(3, rank);
      Floats none;
      std::vector<Tensor> parameters = {
          {"weights", weights}, {"scale", scale}, {"steps", steps}, {"none", none}};
      std::rotate(parameters.begin(), parameters.begin() + rank, parameters.end());
      kolo::broadcast_parameters(context, parameters, root);
      EXPECT_THAT(weights, Each(static_cast<float>(root)));
      EXPECT_THAT(scale, ElementsAre(root + 0.5));
      EXPECT_THAT(steps, Each(root));
    }
    kolo::broadcast_parameters(context, {});
  });
}

TEST(BroadcastParameters, ARefusedTensorRefusesAllOfThemAndTheJobGoesOn) {
  on_ranks(2, [](Context& context) {
    Floats weights = {static_cast<float>(context.rank())};
    const std::vector<Tensor> parameters = {{"fine", weights}, {std::string(5000, 'x'), weights}};
    expect_refused([&] { kolo::broadcast_parameters(context, parameters); }, "name");
    EXPECT_THAT(weights, ElementsAre(static_cast<float>(context.rank())));
    kolo::broadcast_parameters(context, {{"fine", weights}}, 1);
    EXPECT_THAT(weights, ElementsAre(1));
  });
}

TEST(BroadcastParameters, TakesAListAsItIsWritten) {
  on_ranks(2, [](Context& context) {
    Floats weight = {1.0f + static_cast<float>(context.rank())};
    std::vector<double> bias = {3.0 + context.rank()};
    kolo::broadcast_parameters(context, {{"weight", weight}, {"bias", bias}}, 1);
    EXPECT_THAT(weight, ElementsAre(2));
    EXPECT_THAT(bias, ElementsAre(4));
    kolo::broadcast_parameters(context, {{"weight", weight}});

    weight[0] = static_cast<float>(context.rank());
    GradientReducer one(context, {{"one", weight}});
    one.wait();
    EXPECT_THAT(weight, ElementsAre(0.5f));
    GradientReducer both(context, {{"weight", weight}, {"bias", bias}}, {.op = Op::sum});
    both.wait();
    EXPECT_THAT(weight, ElementsAre(1));
    EXPECT_THAT(bias, ElementsAre(8));
  });
}

struct Gradients {
  Gradients() {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      buffers[i].resize(1 + 700 * i);
      tensors.emplace_back("layer" + std::to_string(i), buffers[i]);
    }
  }
  std::vector<Floats> buffers = std::vector<Floats>(5);
  std::vector<Tensor> tensors;
};

void expect_reduced(const Gradients& gradients, int first_step, int micro_steps, double divisor) {
  for (std::size_t t = 0; t < gradients.buffers.size(); ++t) {
    for (std::size_t i = 0; i < gradients.buffers[t].size(); ++i) {
      double sum = 0.0;
      for (int rank = 0; rank < kRanks; ++rank) {
        for (int step = first_step; step < first_step + micro_steps; ++step) {
          sum += static_cast<double>(value_of(rank, step, t, i));
        }
      }
      ASSERT_NEAR(gradients.buffers[t][i], sum / divisor, 1e-4) << "tensor " << t << " at " << i;
    }
  }
}

// Six steps of `micro_steps` backward passes; every rank has its own order of the gradients.
void train(Context& context, kolo::ReducerSettings settings, double divisor) {
  Gradients gradients;
  GradientReducer reducer(context, gradients.tensors, settings);
  std::mt19937 random(static_cast<std::uint32_t>(context.rank()));
  std::vector<std::size_t> order = {0, 1, 2, 3, 4};
  for (int step = 0; step < 6; ++step) {
    const int first = step * settings.micro_steps;
    for (Floats& buffer : gradients.buffers) std::fill(buffer.begin(), buffer.end(), 0.0f);
    for (int micro = 0; micro < settings.micro_steps; ++micro) {
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t t : order) {
        for (std::size_t i = 0; i < gradients.buffers[t].size(); ++i) {
          gradients.buffers[t][i] += value_of(context.rank(), first + micro, t, i);
        }
        EXPECT_EQ(reducer.ready(t), micro + 1 == settings.micro_steps);
      }
    }
    if (step % 2 == 0) reducer.wait(order[0]);
    reducer.wait();
    expect_reduced(gradients, first, settings.micro_steps, divisor);
  }
}

TEST(GradientReducer, IsTheMeanOverRanksAndMicroSteps) {
  for (const int micro_steps : {1, 2, 4}) {
    on_ranks(kRanks, [&](Context& context) {
      train(context, {.micro_steps = micro_steps}, kRanks * micro_steps);
    });
  }
}

TEST(GradientReducer, SumsIfAskedTo) {
  on_ranks(kRanks, [](Context& context) { train(context, {.op = Op::sum}, 1.0); });
}

TEST(GradientReducer, GradientsMayBeReadyOnAnyThread) {
  on_ranks(kRanks, [](Context& context) {
    Gradients gradients;
    GradientReducer reducer(context, gradients.tensors, {.micro_steps = 2});
    for (int step = 0; step < 20; ++step) {
      for (Floats& buffer : gradients.buffers) std::fill(buffer.begin(), buffer.end(), 0.0f);
      std::vector<std::thread> hooks;
      for (std::size_t t = 0; t < gradients.buffers.size(); ++t) {
        hooks.emplace_back([&, t] {
          for (int micro = 0; micro < 2; ++micro) {
            for (std::size_t i = 0; i < gradients.buffers[t].size(); ++i) {
              gradients.buffers[t][i] += value_of(context.rank(), 2 * step + micro, t, i);
            }
            reducer.ready(t);
          }
        });
      }
      for (std::thread& hook : hooks) hook.join();
      reducer.wait();
      expect_reduced(gradients, 2 * step, 2, 2.0 * kRanks);
    }
  });
}

// The rarest is what a step itself does, as in the steady test of core: buffers grow with what
// happens to be fused.
TEST(GradientReducer, AStepAllocatesNothing) {
  std::atomic<std::size_t> fewest = std::numeric_limits<std::size_t>::max();
  const auto train = [&](Context& context) {
    Gradients gradients;
    const auto tensors = std::span(gradients.tensors).subspan(1);
    GradientReducer reducer(context, tensors, {.micro_steps = 2});
    for (int step = 0; step < 60; ++step) {
      context.barrier(kolo::Options().name("step"));
      const std::size_t before = kolo::internal::allocations_so_far();
      for (std::size_t i = 0; i < 2 * tensors.size(); ++i) reducer.ready(i % tensors.size());
      reducer.wait();
      const std::size_t made = kolo::internal::allocations_so_far() - before;
      if (context.rank() == 0) fewest = std::min(fewest.load(), made);
    }
  };
  on_ranks(2, train, "shm");
  EXPECT_EQ(fewest, 0u);
}

TEST(GradientReducer, WaitSubmitsWhatTheStepDidNotUse) {
  on_ranks(kRanks, [](Context& context) {
    Floats used = {3};
    Floats unused = {0};  // on rank 0 it is used
    if (context.rank() == 0) unused[0] = 6;
    const std::vector<Tensor> tensors = {{"used", used}, {"unused", unused}};
    GradientReducer reducer(context, tensors);
    reducer.ready(0);
    if (context.rank() == 0) reducer.ready(1);
    reducer.wait();
    EXPECT_THAT(used, ElementsAre(3));
    EXPECT_THAT(unused, ElementsAre(2));
  });
}

TEST(GradientReducer, CountsWhatIsNotFinite) {
  on_ranks(kRanks, [](Context& context) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    Floats one(100, 1.0f);
    Floats two(70000, 1.0f);
    const std::vector<Tensor> tensors = {{"one", one}, {"two", two}};
    GradientReducer reducer(context, tensors);
    for (const bool broken : {false, true, false}) {
      one.assign(one.size(), 1.0f);
      two.assign(two.size(), 1.0f);
      if (broken && context.rank() == 1) one[7] = kInfinity;
      if (broken && context.rank() == 2) two[7] = two[69999] = std::nanf("");
      for (const std::size_t i : {0u, 1u}) reducer.ready(i);
      reducer.wait();
      EXPECT_EQ(reducer.nonfinite(), broken ? 3 : 0);
      EXPECT_EQ(reducer.participants(), kRanks);
    }
  });
}

TEST(GradientReducer, WorksInAProcessSet) {
  on_ranks(kRanks, [](Context& context) {
    const kolo::ProcessSet outer = context.create_process_set({0, 2});
    Floats gradient = {static_cast<float>(context.rank())};
    const std::vector<Tensor> tensors = {{"g", gradient}};
    if (context.rank() != 1) {
      GradientReducer reducer(context, tensors, {.op = Op::sum, .set = outer});
      reducer.ready(0);
      reducer.wait();
      EXPECT_THAT(gradient, ElementsAre(2));
      EXPECT_EQ(reducer.participants(), 2);
      kolo::broadcast_parameters(context, tensors, 2, outer);
    } else {
      expect_refused([&] { GradientReducer(context, tensors, {.set = outer}); }, "1");
    }
    EXPECT_THAT(gradient, ElementsAre(context.rank() == 1 ? 1 : 2));
    context.destroy_process_set(outer);
  });
}

TEST(GradientReducer, Adasum) {
  on_ranks(2, [](Context& context) {
    Floats gradient = {1, 2, 3};
    const std::vector<Tensor> tensors = {{"g", gradient}};
    GradientReducer reducer(context, tensors, {.op = Op::adasum});
    reducer.wait();  // of two equal ones: their average
    EXPECT_THAT(gradient, testing::Pointwise(testing::FloatNear(1e-6f), Floats{1, 2, 3}));
  });
}

TEST(GradientReducer, RanksThatHaveJoinedDoNotCount) {
  on_ranks(kRanks, [](Context& context) {
    const int rank = context.rank();
    Floats gradient(1);
    const std::vector<Tensor> tensors = {{"g", gradient}};
    GradientReducer reducer(context, tensors);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step <= rank; ++step) {
        std::vector<double> sums = {rank + 1.0};
        std::vector<double> squares = {(rank + 1.0) * (rank + 1.0)};
        EXPECT_EQ(kolo::sync_batch_norm(context, sums, squares, 1.0, kolo::Options().name("n")),
                  kRanks - step);
        EXPECT_EQ(sums[0], (step + 1 + kRanks) / 2.0);  // of step + 1 to the number of ranks
        gradient[0] = static_cast<float>(rank);
        reducer.ready(0);
        reducer.wait();
        EXPECT_EQ(gradient[0], static_cast<float>(step + kRanks - 1) / 2.0f);
        EXPECT_EQ(reducer.participants(), kRanks - step);
      }
      EXPECT_EQ(context.join(), kRanks - 1);
      kolo::broadcast_parameters(context, tensors, kRanks - 1);
      EXPECT_EQ(gradient[0], static_cast<float>(kRanks - 1));
    }
  });
}

TEST(GradientReducer, AfterAMismatchTheNextStepIsRight) {
  on_ranks(2, [](Context& context) {
    Floats same = {1};
    Floats differs(context.rank() == 0 ? 2 : 3, 1.0f);
    const std::vector<Tensor> tensors = {{"differs", differs}, {"same", same}};
    GradientReducer reducer(context, tensors, {.op = Op::sum});
    for (int step = 0; step < 2; ++step) {
      try {
        reducer.wait();
        ADD_FAILURE() << "no error";
      } catch (const kolo::Error& error) {
        EXPECT_EQ(error.status(), KOLO_MISMATCH);
        EXPECT_THAT(error.what(), HasSubstr("gradients/differs"));
      }
      EXPECT_THAT(differs, Each(1));
      EXPECT_THAT(same, ElementsAre(step == 0 ? 2 : 4));  // complete before the error was thrown
    }
  });
}

TEST(GradientReducer, CallsThatAreWrong) {
  on_ranks(1, [](Context& context) {
    Floats gradient = {1};
    const std::vector<Tensor> tensors = {{"g", gradient}};
    expect_refused([&] { GradientReducer(context, tensors, {.micro_steps = 0}); }, "micro_steps");
    std::vector<std::int32_t> integers = {1};
    const std::vector<Tensor> scaled = {{"i", integers}};
    expect_refused([&] { GradientReducer(context, scaled, {.micro_steps = 2}); },
                   "gradient \"i\" holds integers");
    GradientReducer summing(context, scaled, {.op = Op::sum});
    summing.wait();
    const std::vector<Tensor> twice = {{"g", gradient}, {"i", integers}, {"g", gradient}};
    expect_refused([&] { GradientReducer(context, twice, {.op = Op::sum}); },
                   "gradient \"g\" is there twice");
    GradientReducer reducer(context, tensors);
    expect_refused([&] { reducer.ready(1); }, "no gradient 1");
    EXPECT_TRUE(reducer.ready(0));
    expect_refused([&] { reducer.ready(0); }, "\"g\"");
    reducer.wait();
    EXPECT_TRUE(reducer.ready(0));
    GradientReducer moved = std::move(reducer);
    moved.wait();
  });
}

TEST(SyncBatchNorm, IsTheMeanAndVarianceOfAllBatchesTogether) {
  constexpr std::size_t kChannels = 40;
  constexpr std::uint32_t kSeed = 11;
  const auto batch_of = [](int rank) {  // [rank * 5][channels]: rank 0 has none
    std::mt19937 random(kSeed + static_cast<std::uint32_t>(rank));
    std::normal_distribution<double> normal(2.0, 3.0);
    std::vector<double> batch(static_cast<std::size_t>(rank) * 5 * kChannels);
    for (double& value : batch) value = normal(random);
    return batch;
  };
  std::vector<double> all;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<double> batch = batch_of(rank);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  const double number = static_cast<double>(all.size() / kChannels);
  std::vector<double> mean(kChannels);
  std::vector<double> variance(kChannels);
  for (std::size_t i = 0; i < all.size(); ++i) mean[i % kChannels] += all[i] / number;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double distance = all[i] - mean[i % kChannels];
    variance[i % kChannels] += distance * distance / number;
  }
  on_ranks(kRanks, [&](Context& context) {
    const std::vector<double> batch = batch_of(context.rank());
    for (int pass = 0; pass < 3; ++pass) {
      std::vector<double> sums(kChannels);
      std::vector<double> squares(kChannels);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        sums[i % kChannels] += batch[i];
        squares[i % kChannels] += batch[i] * batch[i];
      }
      const double count = static_cast<double>(batch.size() / kChannels);
      EXPECT_EQ(kolo::sync_batch_norm(context, sums, squares, count, kolo::Options().name("norm1")),
                number);
      for (std::size_t c = 0; c < kChannels; ++c) {
        EXPECT_NEAR(sums[c], mean[c], 1e-12);
        EXPECT_NEAR(squares[c], variance[c], 1e-11);
      }
    }
  });
}

TEST(SyncBatchNorm, ItsEdges) {
  on_ranks(2, [](Context& context) {
    Floats sums = {5};
    Floats squares = {25};
    EXPECT_EQ(kolo::sync_batch_norm(context, sums, squares, 0.0), 0.0);  // nobody has an example
    EXPECT_THAT(sums, ElementsAre(0));
    EXPECT_THAT(squares, ElementsAre(0));
    sums = {0.1f};
    squares = {0.01f};  // of one value each: the variance is 0, and no rounding makes it negative
    EXPECT_EQ(kolo::sync_batch_norm(context, sums, squares, 1.0), 2.0);
    EXPECT_THAT(squares, Each(testing::Ge(0.0f)));
    Floats two = {1, 2};
    expect_refused([&] { kolo::sync_batch_norm(context, sums, two, 1.0); }, "2 sums of squares");
  });
}

TEST(ClipByGlobalNorm, OfGradientsThatLieOnSeveralRanks) {
  on_ranks(kRanks, [](Context& context) {
    // The norm of (2, 4, 4) is 6; each rank holds one of them.
    std::vector<Floats> mine = {{context.rank() == 0 ? 2.0f : 4.0f}};
    const float before = mine[0][0];
    EXPECT_DOUBLE_EQ(
        kolo::clip_by_global_norm(context, mine, 3.0, kolo::Options().name("norm of all")), 6.0);
    EXPECT_EQ(mine[0][0], before / 2);
  });
}

}  // namespace
