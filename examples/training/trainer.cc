// A data-parallel trainer in C++ with all that kolo/training.hpp has: it learns the handwritten
// digits of examples/digits with f16 gradients, batch normalisation over all ranks and uneven data.
//
//   kolorun -np 3 trainer [--epochs N] [--seed N] [--data FILE]
//
// Steps: (1) broadcast_parameters: all start from rank 0's weights. Per epoch: (2) ShardSampler
// deals the images; (3) per step, two backward passes, whose gradients GradientReducer reduces as
// they appear, then LossScaler, clip_by_global_norm and the weights; (4) join(): the ranks need not
// have the same number of steps, and the last one's weights go to all; (5) half of the ranks, a
// process set, see how well it does.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <kolo/kolo.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "training/model.h"

namespace {

constexpr std::size_t kHidden = 96;
constexpr std::size_t kStepImages = 32;  // of each rank
constexpr int kMicroSteps = 2;           // backward passes in a step
constexpr std::size_t kLeastImages = 4;  // fewer are too few for batch normalisation
constexpr float kLearningRate = 0.05f;
constexpr float kMomentum = 0.9f;
constexpr double kMaxNorm = 1.0;
constexpr float kFaintInk = 17.0f;  // images with less ink are left out

struct Settings {
  std::size_t epochs = 16;
  std::uint64_t seed = 1;
  std::string data = KOLO_DIGITS_DATA;
};

struct FreeDataset {
  void operator()(dataset* data) const {
    dataset_free(data);
    delete data;
  }
};
using Dataset = std::unique_ptr<dataset, FreeDataset>;

class Trainer {
 public:
  Trainer(kolo::Context& context, const Settings& settings, Dataset data)
      : context_(context),
        data_(std::move(data)),
        // Other ranks begin with other weights on purpose: the broadcast must replace them.
        model_(kHidden, settings.seed + static_cast<std::uint64_t>(context.rank())),
        velocity_(zeros_like(model_.parameters)),
        unscaled_(zeros_like(model_.parameters)),
        sampler_(context, data_->train.count, settings.seed, kolo::Tail::keep),
        reducer_(context, gradients(), {.op = kolo::Op::avg, .micro_steps = kMicroSteps}),
        scaler_({.scale = 1 << 22, .growth_steps = 100}),  // too much at first, as one never knows
        hooks_(make_hooks()) {
    make_process_sets();
    kolo::broadcast_parameters(context_, state());
  }

  void epoch(std::size_t number) {
    std::vector<std::size_t> images = sampler_.shard(number);
    std::erase_if(images, [this](std::size_t image) { return is_faint(image); });
    // Which rank has how many images left is nobody's business:
    std::int64_t steps = 0;
    for (std::span<const std::size_t> rest = images; rest.size() >= kLeastImages; ++steps) {
      const std::size_t count = std::min(rest.size(), kStepImages);
      step(rest.first(count));
      rest = rest.subspan(count);
    }
    const int last_rank = context_.join();
    kolo::broadcast_parameters(context_, state(), last_rank);

    std::vector<std::int64_t> steps_by_rank(static_cast<std::size_t>(context_.size()));
    context_.allgather(&steps, steps_by_rank.data(), 1);
    if (context_.rank() == 0) {
      std::printf("epoch %2zu  steps by rank:", number);
      for (const std::int64_t of_rank : steps_by_rank) {
        std::printf(" %lld", static_cast<long long>(of_rank));
      }
      std::printf("  loss scale %.0f\n", scaler_.scale());
    }
  }

  // The first half of the ranks look at images that the model has never seen, the others at those
  // that it was trained on.
  void evaluate() {
    const bool is_tester = my_set_ == testers_;
    const examples& from = is_tester ? data_->test : data_->train;
    const auto ranks = context_.ranks(my_set_).size();
    const auto place = static_cast<std::size_t>(context_.place(my_set_));
    double correct = 0.0;
    for (std::size_t i = place; i < from.count; i += ranks) {
      if (model_.classify(from.features + i * kFeatures) == from.labels[i]) ++correct;
    }
    context_.allreduce(&correct, &correct, 1, kolo::Op::sum,
                       kolo::Options().name("correct").on(my_set_));
    if (place == 0) {
      std::printf("accuracy %.4f on %s\n", correct / static_cast<double>(from.count),
                  is_tester ? "images it has never seen" : "images it was trained on");
    }
  }

  // Whether all ranks have the same weights, bit for bit.
  bool compare_weights() {
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const std::vector<float>& parameter : model_.parameters) {
      for (const std::byte byte : std::as_bytes(std::span(parameter))) {
        hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
      }
    }
    std::uint64_t least = hash;
    std::uint64_t most = hash;
    context_.allreduce(&hash, &least, 1, kolo::Op::min);
    context_.allreduce(&hash, &most, 1, kolo::Op::max);
    if (context_.rank() == 0) {
      std::printf("%d steps clipped, %d skipped\n", clipped_, skipped_);
      std::printf("weights %016llx (%s)\n", static_cast<unsigned long long>(hash),
                  least == most ? "equal on all ranks" : "DIFFERENT on other ranks");
    }
    return least == most;
  }

 private:
  static std::vector<std::vector<float>> zeros_like(const std::vector<std::vector<float>>& like) {
    std::vector<std::vector<float>> zeros;
    for (const std::vector<float>& one : like) zeros.emplace_back(one.size());
    return zeros;
  }

  std::vector<kolo::Tensor> gradients() {
    std::vector<kolo::Tensor> tensors;
    for (std::size_t i = 0; i < kParameters; ++i) {
      tensors.emplace_back(parameter_name(i), model_.gradients[i]);
    }
    return tensors;
  }

  // All that must be equal on all ranks before a step.
  std::vector<kolo::Tensor> state() {
    std::vector<kolo::Tensor> tensors;
    for (std::size_t i = 0; i < kParameters; ++i) {
      tensors.emplace_back(parameter_name(i), model_.parameters[i]);
      tensors.emplace_back(std::string(parameter_name(i)) + "/velocity", velocity_[i]);
    }
    tensors.emplace_back("layer1/running mean", model_.running_mean);
    tensors.emplace_back("layer1/running variance", model_.running_variance);
    tensors.emplace_back("loss scaler", scaler_.state());
    return tensors;
  }

  Hooks make_hooks() {
    Hooks hooks;
    hooks.normalise = [this](std::span<double> sums, std::span<double> squares, double count) {
      return kolo::sync_batch_norm(context_, sums, squares, count, forward_);
    };
    hooks.sum = [this](std::span<double> sums) {
      context_.allreduce(sums, kolo::Op::sum, backward_);
    };
    hooks.gradient_ready = [this](std::size_t parameter) { reducer_.ready(parameter); };
    return hooks;
  }

  void make_process_sets() {
    const int size = context_.size();
    std::vector<std::int32_t> first_half;
    std::vector<std::int32_t> second_half;
    for (int rank = 0; rank < size; ++rank) {
      (2 * rank < size ? first_half : second_half).push_back(rank);
    }
    my_set_ = testers_ = context_.create_process_set(first_half);
    if (second_half.empty()) return;  // a job of one
    const kolo::ProcessSet others = context_.create_process_set(second_half);
    if (2 * context_.rank() >= size) my_set_ = others;
  }

  bool is_faint(std::size_t image) const {
    const float* const features = data_->train.features + image * kFeatures;
    float ink = 0.0f;
    for (std::size_t i = 0; i < kFeatures; ++i) ink += features[i];
    return ink < kFaintInk;
  }

  void step(std::span<const std::size_t> images) {
    for (auto& gradient : model_.gradients) {
      std::fill(gradient.begin(), gradient.end(), static_cast<_Float16>(0.0f));
    }
    const double scale = scaler_.scale();
    const std::size_t half = images.size() / kMicroSteps;
    for (std::size_t micro = 0; micro < kMicroSteps; ++micro) {
      const bool is_last = micro + 1 == kMicroSteps;
      const auto part = is_last ? images.subspan(micro * half) : images.subspan(micro * half, half);
      model_.backward(data_->train, part, scale, hooks_);
    }
    reducer_.wait();
    if (!scaler_.update(reducer_.nonfinite())) {  // the same on all ranks
      ++skipped_;
      return;
    }
    update_weights(1.0 / scale);
  }

  // Stochastic gradient descent with momentum.
  void update_weights(double unscale) {
    for (std::size_t p = 0; p < kParameters; ++p) {
      for (std::size_t i = 0; i < unscaled_[p].size(); ++i) {
        unscaled_[p][i] = static_cast<float>(static_cast<double>(model_.gradients[p][i]) * unscale);
      }
    }
    if (kolo::clip_by_global_norm(unscaled_, kMaxNorm) > kMaxNorm) ++clipped_;
    for (std::size_t p = 0; p < kParameters; ++p) {
      for (std::size_t i = 0; i < unscaled_[p].size(); ++i) {
        velocity_[p][i] = kMomentum * velocity_[p][i] + unscaled_[p][i];
        model_.parameters[p][i] -= kLearningRate * velocity_[p][i];
      }
    }
  }

  kolo::Context& context_;
  Dataset data_;
  Model model_;
  std::vector<std::vector<float>> velocity_;
  std::vector<std::vector<float>> unscaled_;  // the gradients, for the step
  kolo::ShardSampler sampler_;
  kolo::GradientReducer reducer_;
  kolo::LossScaler scaler_;
  const kolo::Options forward_ = kolo::Options().name("layer1/normalise");
  const kolo::Options backward_ = kolo::Options().name("layer1/normalise/back");
  Hooks hooks_;
  kolo::ProcessSet testers_;
  kolo::ProcessSet my_set_;
  int clipped_ = 0;
  int skipped_ = 0;
};

bool parse(int argc, char** argv, Settings& settings) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--epochs") {
      settings.epochs = std::strtoul(argv[i + 1], nullptr, 10);
    } else if (option == "--seed") {
      settings.seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (option == "--data") {
      settings.data = argv[i + 1];
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  if (!parse(argc, argv, settings)) {
    std::fputs("usage: [kolorun -np N] trainer [--epochs N] [--seed N] [--data FILE]\n", stderr);
    return 2;
  }
  try {
    kolo::Context context;
    Dataset data(new dataset{});
    if (dataset_load(settings.data.c_str(), data.get()) != 0) return 1;
    Trainer trainer(context, settings, std::move(data));
    for (std::size_t i = 1; i <= settings.epochs; ++i) trainer.epoch(i);
    trainer.evaluate();
    return trainer.compare_weights() ? 0 : 1;
  } catch (const kolo::Error& error) {
    std::fprintf(stderr, "trainer: %s\n", error.what());
    return 1;
  }
}
