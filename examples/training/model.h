// A small network with batch normalisation, in plain loops: 64 inputs - hidden, normalised, ReLU -
// 10 classes, softmax with cross entropy. It knows nothing of other ranks: what it needs of them
// comes through Hooks. Gradients are kept in f16, times the scale of the loss. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

extern "C" {
#include "digits/dataset.h"
}

// Parameters by number.
enum : std::size_t { kWeights1, kGamma, kBeta, kWeights2, kBias2, kParameters };
const char* parameter_name(std::size_t parameter);

struct Hooks {
  // Gets the sum and the sum of squares of every channel over this rank's batch of `count`; makes
  // them mean and variance over all ranks' batches, and returns the size of these.
  std::function<double(std::span<double>, std::span<double>, double)> normalise;
  // Adds up over the ranks, in place.
  std::function<void(std::span<double>)> sum;
  // The gradient of that parameter is complete: the last layer's first.
  std::function<void(std::size_t)> gradient_ready;
};

class Model {
 public:
  Model(std::size_t hidden, std::uint64_t seed);

  // Forward and backward over the images at `places`: adds to `gradients` those of the mean of
  // their losses, times `loss_scale`. Returns the sum of their losses.
  double backward(const examples& from, std::span<const std::size_t> places, double loss_scale,
                  const Hooks& hooks);
  // The class that it takes these features [kFeatures] for, by the running statistics.
  int classify(const float* features) const;

  std::vector<std::vector<float>> parameters;    // [kParameters]
  std::vector<std::vector<_Float16>> gradients;  // [kParameters], alike
  std::vector<double> running_mean;              // [hidden]
  std::vector<double> running_variance;          // [hidden]

 private:
  void forward(const examples& from, std::span<const std::size_t> places, const Hooks& hooks);
  void add_gradient(std::size_t parameter, std::span<const float> values);

  std::size_t hidden_;
  // Of the batch in work, [batch][width]; mean and deviation by channel.
  std::vector<float> inputs_;
  std::vector<float> normal_;         // (sum - mean) / deviation
  std::vector<float> activations_;    // after the ReLU
  std::vector<float> probabilities_;  // by class
  std::vector<double> mean_;
  std::vector<double> variance_;
  double batch_of_all_ = 0.0;  // images over all ranks
};
