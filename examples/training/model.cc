#include "training/model.h"

#include <algorithm>
#include <cmath>

extern "C" {
#include "digits/random.h"
}

namespace {

constexpr double kEpsilon = 1e-5;  // keeps a channel without variance from dividing by 0
constexpr double kMomentum = 0.9;  // of the running statistics

// out[n][j] = sum over i of in[n][i] * weights[i][j], for rows n.
void multiply(const std::vector<float>& in, const std::vector<float>& weights, std::size_t rows,
              std::vector<float>& out) {
  const std::size_t in_width = in.size() / rows;
  const std::size_t out_width = weights.size() / in_width;
  out.assign(rows * out_width, 0.0f);
  for (std::size_t n = 0; n < rows; ++n) {
    for (std::size_t i = 0; i < in_width; ++i) {
      const float factor = in[n * in_width + i];
      for (std::size_t j = 0; j < out_width; ++j) {
        out[n * out_width + j] += factor * weights[i * out_width + j];
      }
    }
  }
}

// The gradient of such weights: [i][j], the sum over rows of in[n][i] * delta[n][j].
std::vector<float> outer_products(const std::vector<float>& in, const std::vector<float>& delta,
                                  std::size_t rows) {
  const std::size_t in_width = in.size() / rows;
  const std::size_t out_width = delta.size() / rows;
  std::vector<float> sums(in_width * out_width);
  for (std::size_t n = 0; n < rows; ++n) {
    for (std::size_t i = 0; i < in_width; ++i) {
      for (std::size_t j = 0; j < out_width; ++j) {
        sums[i * out_width + j] += in[n * in_width + i] * delta[n * out_width + j];
      }
    }
  }
  return sums;
}

void softmax(std::span<float> values) {
  const float largest = *std::max_element(values.begin(), values.end());
  float sum = 0.0f;
  for (float& value : values) sum += value = std::exp(value - largest);
  for (float& value : values) value /= sum;
}

float inverse_deviation(double variance) {
  return static_cast<float>(1.0 / std::sqrt(variance + kEpsilon));
}

}  // namespace

const char* parameter_name(std::size_t parameter) {
  static constexpr const char* kNames[kParameters] = {
      "layer1/weights", "layer1/gamma", "layer1/beta", "layer2/weights", "layer2/bias"};
  return kNames[parameter];
}

Model::Model(std::size_t hidden, std::uint64_t seed)
    : parameters(kParameters),
      running_mean(hidden, 0.0),
      running_variance(hidden, 1.0),
      hidden_(hidden),
      mean_(hidden),
      variance_(hidden) {
  const auto drawn = [&](std::size_t in_width, std::size_t out_width) {
    const float bound = std::sqrt(6.0f / static_cast<float>(in_width));
    std::vector<float> weights(in_width * out_width);
    for (float& weight : weights) weight = bound * (2.0f * random_unit(&seed) - 1.0f);
    return weights;
  };
  parameters[kWeights1] = drawn(kFeatures, hidden);
  parameters[kGamma].assign(hidden, 1.0f);
  parameters[kBeta].assign(hidden, 0.0f);
  parameters[kWeights2] = drawn(hidden, kClasses);
  parameters[kBias2].assign(kClasses, 0.0f);
  for (const auto& parameter : parameters) gradients.emplace_back(parameter.size());
}

void Model::forward(const examples& from, std::span<const std::size_t> places, const Hooks& hooks) {
  const std::size_t count = places.size();
  inputs_.resize(count * kFeatures);
  for (std::size_t n = 0; n < count; ++n) {
    std::copy_n(from.features + places[n] * kFeatures, kFeatures, &inputs_[n * kFeatures]);
  }
  multiply(inputs_, parameters[kWeights1], count, normal_);

  std::fill(mean_.begin(), mean_.end(), 0.0);
  std::fill(variance_.begin(), variance_.end(), 0.0);
  for (std::size_t i = 0; i < normal_.size(); ++i) {
    const double value = static_cast<double>(normal_[i]);
    mean_[i % hidden_] += value;
    variance_[i % hidden_] += value * value;
  }
  batch_of_all_ = hooks.normalise(mean_, variance_, static_cast<double>(count));
  for (std::size_t c = 0; c < hidden_; ++c) {
    running_mean[c] += (1.0 - kMomentum) * (mean_[c] - running_mean[c]);
    running_variance[c] += (1.0 - kMomentum) * (variance_[c] - running_variance[c]);
  }

  activations_.resize(normal_.size());
  for (std::size_t i = 0; i < normal_.size(); ++i) {
    const std::size_t c = i % hidden_;
    normal_[i] = (normal_[i] - static_cast<float>(mean_[c])) * inverse_deviation(variance_[c]);
    activations_[i] = std::max(0.0f, parameters[kGamma][c] * normal_[i] + parameters[kBeta][c]);
  }
  multiply(activations_, parameters[kWeights2], count, probabilities_);
  for (std::size_t n = 0; n < count; ++n) {
    const std::span<float> row = std::span(probabilities_).subspan(n * kClasses, kClasses);
    for (std::size_t j = 0; j < kClasses; ++j) row[j] += parameters[kBias2][j];
    softmax(row);
  }
}

double Model::backward(const examples& from, std::span<const std::size_t> places, double loss_scale,
                       const Hooks& hooks) {
  const std::size_t count = places.size();
  forward(from, places, hooks);

  // The second layer. Its gradients are handed over before the first layer's are even begun.
  double loss = 0.0;
  std::vector<float> delta = probabilities_;
  std::vector<float> bias(kClasses);
  const float scale = static_cast<float>(loss_scale / static_cast<double>(count));
  for (std::size_t n = 0; n < count; ++n) {
    float* const row = &delta[n * kClasses];
    const int label = from.labels[places[n]];
    loss -= std::log(static_cast<double>(row[label]) + 1e-30);
    row[label] -= 1.0f;
    for (std::size_t j = 0; j < kClasses; ++j) bias[j] += row[j] *= scale;
  }
  add_gradient(kWeights2, outer_products(activations_, delta, count));
  hooks.gradient_ready(kWeights2);
  add_gradient(kBias2, bias);
  hooks.gradient_ready(kBias2);

  // Back through ReLU and normalisation, whose mean and variance came from the images of all ranks:
  // so do these two sums.
  std::vector<float> hidden_delta(count * hidden_);
  std::vector<float> beta(hidden_);
  std::vector<float> gamma(hidden_);
  for (std::size_t i = 0; i < hidden_delta.size(); ++i) {
    const std::size_t c = i % hidden_;
    const float* const row = &delta[i / hidden_ * kClasses];
    for (std::size_t j = 0; j < kClasses && activations_[i] > 0.0f; ++j) {
      hidden_delta[i] += row[j] * parameters[kWeights2][c * kClasses + j];
    }
    beta[c] += hidden_delta[i];
    gamma[c] += hidden_delta[i] * normal_[i];
  }
  std::vector<double> sums(beta.begin(), beta.end());
  sums.insert(sums.end(), gamma.begin(), gamma.end());
  hooks.sum(sums);
  add_gradient(kGamma, gamma);
  hooks.gradient_ready(kGamma);
  add_gradient(kBeta, beta);
  hooks.gradient_ready(kBeta);
  for (std::size_t i = 0; i < hidden_delta.size(); ++i) {
    const std::size_t c = i % hidden_;
    const float mean = static_cast<float>(sums[c] / batch_of_all_);
    const float slope = static_cast<float>(sums[hidden_ + c] / batch_of_all_);
    hidden_delta[i] = parameters[kGamma][c] * inverse_deviation(variance_[c]) *
                      (hidden_delta[i] - mean - normal_[i] * slope);
  }
  add_gradient(kWeights1, outer_products(inputs_, hidden_delta, count));
  hooks.gradient_ready(kWeights1);
  return loss;
}

void Model::add_gradient(std::size_t parameter, std::span<const float> values) {
  std::vector<_Float16>& gradient = gradients[parameter];
  for (std::size_t i = 0; i < values.size(); ++i) {
    gradient[i] = static_cast<_Float16>(static_cast<float>(gradient[i]) + values[i]);
  }
}

int Model::classify(const float* features) const {
  const std::vector<float> input(features, features + kFeatures);
  std::vector<float> hidden;
  multiply(input, parameters[kWeights1], 1, hidden);
  for (std::size_t c = 0; c < hidden_; ++c) {
    const float normal =
        (hidden[c] - static_cast<float>(running_mean[c])) * inverse_deviation(running_variance[c]);
    hidden[c] = std::max(0.0f, parameters[kGamma][c] * normal + parameters[kBeta][c]);
  }
  std::vector<float> classes;
  multiply(hidden, parameters[kWeights2], 1, classes);
  for (std::size_t j = 0; j < kClasses; ++j) classes[j] += parameters[kBias2][j];
  return static_cast<int>(std::max_element(classes.begin(), classes.end()) - classes.begin());
}
