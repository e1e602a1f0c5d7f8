// The snippets of docs/training.md: each runs here, on ranks as threads, and the page shows them as
// they are. Those in C are in snippets.c.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"
#include "tests/unit/training/ranks.h"
#include "tests/unit/training/snippets.h"

namespace {

using testing::Each;
using testing::ElementsAre;
using training_test::on_ranks;

TEST(TrainingPage, OverlapsGradientsWithTheBackwardPass) {
  on_ranks(2, [](kolo::Context& context) {
    std::vector<float> weight(8, 1.0f), bias(2, 1.0f), weight_gradient(8), bias_gradient(2);
    const auto backward = [&](std::span<const std::size_t>, auto&& hook) {
      std::fill(bias_gradient.begin(), bias_gradient.end(), 2.0f);
      hook(1);
      std::fill(weight_gradient.begin(), weight_gradient.end(), 2.0f);
      hook(0);
    };
    const auto step = [](std::vector<float>& values, const std::vector<float>& gradient) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] -= 0.25f * gradient[i];
    };

    const std::vector<kolo::Tensor> weights = {{"weight", weight}, {"bias", bias}};
    kolo::broadcast_parameters(context, weights);

    const kolo::ShardSampler sampler(context, /*examples=*/100, /*seed=*/1, kolo::Tail::drop);
    const std::vector<kolo::Tensor> gradients = {{"weight", weight_gradient},
                                                 {"bias", bias_gradient}};
    kolo::GradientReducer reducer(context, gradients);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      const std::vector<std::size_t> shard = sampler.shard(epoch);
      for (std::size_t first = 0; first < shard.size(); first += 25) {
        const auto batch = std::span(shard).subspan(first, 25);
        backward(batch, [&](std::size_t i) { reducer.ready(i); });
        reducer.wait();
        step(weight, weight_gradient);
        step(bias, bias_gradient);
      }
    }

    EXPECT_THAT(weight, Each(-1.0f));
    EXPECT_THAT(bias, Each(-1.0f));
  });
}

TEST(TrainingPage, ScalesAndClipsF16Gradients) {
#if defined(__FLT16_MANT_DIG__)
  on_ranks(2, [](kolo::Context& context) {
    std::vector<_Float16> gradient(4);
    std::vector<float> unscaled(4);
    float weight = 0.0f;
    int steps = 0;
    const std::vector<kolo::Tensor> gradients = {{"weight", gradient}};
    kolo::GradientReducer reducer(context, gradients);
    const auto backward = [&](double loss_scale) {
      for (auto& value : gradient) value = static_cast<_Float16>(static_cast<float>(loss_scale));
      reducer.ready(0);
    };
    const auto step = [&] {
      weight -= unscaled[0];
      ++steps;
    };
    kolo::LossScaler scaler({.scale = 131072});
    const auto train = [&] {
      const double scale = scaler.scale();
      backward(scale);
      reducer.wait();
      if (scaler.update(reducer.nonfinite())) {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          unscaled[i] = static_cast<float>(static_cast<double>(gradient[i]) / scale);
        }
        kolo::clip_by_global_norm(std::span(&unscaled, 1), /*max_norm=*/1.0);
        step();
      }
    };
    train();
    EXPECT_EQ(steps, 0);
    EXPECT_EQ(scaler.scale(), 65536);
    train();  // 65536 is too much as well
    train();
    EXPECT_EQ(steps, 1);
    EXPECT_EQ(weight, -0.5f);  // from (1, 1, 1, 1), whose norm is 2
  });
#endif
}

TEST(TrainingPage, NormalisesOverAllBatches) {
  on_ranks(2, [](kolo::Context& context) {
    const float rank = static_cast<float>(context.rank());
    const std::vector<float> batch = {rank, rank + 2.0f};
    constexpr std::size_t channels = 1;

    std::vector<double> sums(channels), squares(channels);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const double value = static_cast<double>(batch[i]);
      sums[i % channels] += value;
      squares[i % channels] += value * value;
    }
    const double count = static_cast<double>(batch.size() / channels);
    kolo::sync_batch_norm(context, sums, squares, count, kolo::Options().name("norm1"));
    const std::vector<double>& mean = sums;
    const std::vector<double>& variance = squares;

    EXPECT_THAT(mean, ElementsAre(1.5));
    EXPECT_THAT(variance, ElementsAre(1.25));
  });
}

TEST(TrainingPage, JoinsWhenTheDataHaveEnded) {
  on_ranks(3, [](kolo::Context& context) {
    std::vector<float> weight = {0}, gradient = {0};
    const std::vector<kolo::Tensor> weights = {{"weight", weight}};
    const std::vector<kolo::Tensor> gradients = {{"weight", gradient}};
    kolo::GradientReducer reducer(context, gradients);
    const int batches = 1 + context.rank();
    const auto train = [&](int) {
      gradient[0] = 6.0f;
      reducer.wait();
      EXPECT_EQ(gradient[0], 6.0f);  // the mean over those that take part
      weight[0] -= gradient[0];
    };

    for (int batch = 0; batch < batches; ++batch) train(batch);
    const int last_rank = context.join();
    kolo::broadcast_parameters(context, weights, last_rank);

    EXPECT_EQ(last_rank, 2);
    EXPECT_EQ(weight[0], -18.0f);
  });
}

TEST(TrainingPage, WorksInAProcessSet) {
  on_ranks(3, [](kolo::Context& context) {
    double correct = 1.0 + context.rank();

    const kolo::ProcessSet testers = context.create_process_set({0, 2});
    if (context.place(testers) >= 0) {
      context.allreduce(&correct, &correct, 1, kolo::Op::sum, kolo::Options().on(testers));
    }

    EXPECT_EQ(correct, context.rank() == 1 ? 2.0 : 4.0);
    context.destroy_process_set(testers);
  });
}

TEST(TrainingPage, SplitsTheJobByColor) {
  on_ranks(5, [](kolo::Context& context) {
    const int color = context.rank() % 2;
    std::vector<int> value = {context.rank()};

    std::vector<int> colors(static_cast<std::size_t>(context.size()));
    context.allgather(&color, colors.data(), 1);
    std::map<int, std::vector<int>> ranks_of;  // by colour, so in one order on all ranks
    for (int rank = 0; rank < context.size(); ++rank) {
      ranks_of[colors[static_cast<std::size_t>(rank)]].push_back(rank);
    }
    std::map<int, kolo::ProcessSet> sets;
    for (const auto& [its_color, ranks] : ranks_of) {
      sets[its_color] = context.create_process_set(ranks);
    }
    const int root = ranks_of[color].front();
    context.broadcast(value, root, kolo::Options().on(sets[color]));

    EXPECT_THAT(value, ElementsAre(color));
    EXPECT_EQ(context.place(sets[color]), context.rank() / 2);
    EXPECT_EQ(context.place(sets[1 - color]), -1);
  });
}

TEST(TrainingPage, ShardsTheOptimizer) {
  on_ranks(2, [](kolo::Context& context) {
    std::vector<float> gradient = {1, 2, 3, 4}, weight(4), my_gradient(2), my_weight(2);

    context.reduce_scatter(gradient, my_gradient, kolo::Op::avg);
    for (std::size_t i = 0; i < my_weight.size(); ++i) my_weight[i] -= 0.1f * my_gradient[i];
    context.allgather(my_weight, weight);

    EXPECT_THAT(weight, ElementsAre(-0.1f, -0.2f, testing::FloatEq(-0.3f), -0.4f));
  });
}

TEST(TrainingPage, MovesRaggedRows) {
  on_ranks(3, [](kolo::Context& context) {
    const std::size_t rank = static_cast<std::size_t>(context.rank());
    const std::vector<int> found(rank, context.rank());  // rank 0 found nothing

    const kolo::Ragged<int> all = context.allgather_ragged(found);
    const std::vector<int> everything(all.begin(), all.end());

    EXPECT_THAT(everything, ElementsAre(1, 2, 2));
    EXPECT_THAT(all.block(2), ElementsAre(2, 2));

    const std::vector<int> tokens(3 * (rank + 1), context.rank());
    const std::vector<std::size_t> for_expert(3, rank + 1);

    const auto mine = context.alltoall_ragged(tokens, kolo::Options().send_counts(for_expert));
    const std::span<int> from_rank_1 = mine.block(1);

    EXPECT_THAT(mine.size(), 6u);
    EXPECT_THAT(from_rank_1, ElementsAre(1, 1));
  });
}

TEST(TrainingPage, InC) {
  on_ranks(3, [](kolo::Context& context) {
    const int rank = context.rank();
    const kolo::ProcessSet outer = context.create_process_set({0, 2});
    EXPECT_EQ(place_in_set(context.handle(), outer.number), rank == 2 ? 1u : rank == 0 ? 0u : 2u);

    const std::vector<int> found(static_cast<std::size_t>(rank), 10 + rank);
    std::vector<int> sums(3);
    gather_rows(context.handle(), found.data(), found.size(), sums.data());
    EXPECT_THAT(sums, ElementsAre(0, 11, 24));

    std::vector<float> weight(5), bias(1);
    const auto backward = [](kolo_context* kolo, float* weights, float* biases) {
      std::fill(weights, weights + 5, weights[0] + static_cast<float>(kolo_rank(kolo)));
      biases[0] = 3;
    };
    train_persistently(context.handle(), weight.data(), bias.data(), weight.size(), 4, backward);
    EXPECT_THAT(weight, Each(4.0f));  // each step adds the mean of 0, 1 and 2
    EXPECT_THAT(bias, Each(3.0f));

    std::fill(weight.begin(), weight.end(), static_cast<float>(rank));
    be_told(context.handle(), weight.data(), weight.size(), [] {});
    EXPECT_THAT(weight, Each(1.0f));
  });
}

// A file without the blanks before its lines.
std::string text_of(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::string text;
  for (std::string line; std::getline(file, line);) {
    text += line.substr(std::min(line.find_first_not_of(' '), line.size())) + "\n";
  }
  return text;
}

// Every block of the page in that language is in the source; their number.
int shown_blocks(const std::string& language, const char* source_path) {
  const std::string source = text_of(source_path);
  const std::string page = text_of(KOLO_TRAINING_PAGE);
  const std::string open = "```" + language + "\n";
  int blocks = 0;
  for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    const std::string block = page.substr(at, page.find("```", at) - at);
    EXPECT_NE(source.find(block), std::string::npos) << "not in " << source_path << ":\n" << block;
    ++blocks;
  }
  return blocks;
}

TEST(TrainingPage, ShowsTheseSnippets) {
  EXPECT_GE(shown_blocks("cpp", KOLO_SNIPPETS), 9);
  EXPECT_GE(shown_blocks("c", KOLO_C_SNIPPETS), 5);
}

}  // namespace
