#include "mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

static const char* const kNames[kTensors] = {
    "layer1/weights", "layer1/bias",    "layer2/weights",
    "layer2/bias",    "layer3/weights", "layer3/bias",
};

const char* mlp_tensor_name(int tensor) { return kNames[tensor]; }

int tensors_create(struct tensors* tensors, const struct mlp* like) {
  memset(tensors, 0, sizeof *tensors);
  for (int layer = 0; layer < kLayers; layer++) {
    tensors->count[2 * layer] = like->width[layer] * like->width[layer + 1];
    tensors->count[2 * layer + 1] = like->width[layer + 1];
  }
  for (int i = 0; i < kTensors; i++) {
    tensors->data[i] = calloc(tensors->count[i], sizeof *tensors->data[i]);
    if (tensors->data[i] == NULL) return -1;
  }
  return 0;
}

void tensors_free(struct tensors* tensors) {
  for (int i = 0; i < kTensors; i++) free(tensors->data[i]);
  memset(tensors, 0, sizeof *tensors);
}

int mlp_create(struct mlp* model, size_t hidden, size_t max_batch, uint64_t seed) {
  memset(model, 0, sizeof *model);
  model->width[0] = kFeatures;
  model->width[1] = hidden;
  model->width[2] = hidden;
  model->width[3] = kClasses;
  model->max_batch = max_batch;
  if (tensors_create(&model->weights, model) != 0) return -1;
  for (int layer = 0; layer <= kLayers; layer++) {
    model->activations[layer] = malloc(max_batch * model->width[layer] * sizeof(float));
    model->deltas[layer] = malloc(max_batch * model->width[layer] * sizeof(float));
    if (model->activations[layer] == NULL || model->deltas[layer] == NULL) return -1;
  }
  for (int layer = 0; layer < kLayers; layer++) {
    const float bound = sqrtf(6.0f / (float)model->width[layer]);
    float* weights = model->weights.data[2 * layer];
    for (size_t i = 0; i < model->weights.count[2 * layer]; i++) {
      weights[i] = bound * (2.0f * random_unit(&seed) - 1.0f);
    }
  }
  return 0;
}

void mlp_free(struct mlp* model) {
  tensors_free(&model->weights);
  for (int layer = 0; layer <= kLayers; layer++) {
    free(model->activations[layer]);
    free(model->deltas[layer]);
  }
  memset(model, 0, sizeof *model);
}

/* out[j] = bias[j] + sum over i of in[i] * weights[i][j] */
static void layer_forward(const struct mlp* model, int layer, const float* in, float* out) {
  const size_t in_width = model->width[layer];
  const size_t out_width = model->width[layer + 1];
  const float* weights = model->weights.data[2 * layer];
  memcpy(out, model->weights.data[2 * layer + 1], out_width * sizeof *out);
  for (size_t i = 0; i < in_width; i++) {
    for (size_t j = 0; j < out_width; j++) out[j] += in[i] * weights[i * out_width + j];
  }
}

static void relu(float* values, size_t count) {
  for (size_t i = 0; i < count; i++) values[i] = values[i] > 0.0f ? values[i] : 0.0f;
}

static void softmax(float* values, size_t count) {
  float largest = values[0];
  for (size_t i = 1; i < count; i++) largest = values[i] > largest ? values[i] : largest;
  float sum = 0.0f;
  for (size_t i = 0; i < count; i++) {
    values[i] = expf(values[i] - largest);
    sum += values[i];
  }
  for (size_t i = 0; i < count; i++) values[i] /= sum;
}

/* Runs the example in row `n` of the batch; its input is in activations[0]. */
static void forward(struct mlp* model, size_t n) {
  for (int layer = 0; layer < kLayers; layer++) {
    const size_t out_width = model->width[layer + 1];
    const float* in = model->activations[layer] + n * model->width[layer];
    float* out = model->activations[layer + 1] + n * out_width;
    layer_forward(model, layer, in, out);
    if (layer + 1 < kLayers) relu(out, out_width);
  }
  softmax(model->activations[kLayers] + n * kClasses, kClasses);
}

static void load_example(struct mlp* model, size_t n, const struct examples* from, size_t place) {
  memcpy(model->activations[0] + n * kFeatures, from->features + place * kFeatures,
         kFeatures * sizeof(float));
}

/* The gradients of one layer: over the batch, input times delta. */
static void layer_gradients(const struct mlp* model, int layer, size_t count,
                            struct tensors* gradients) {
  const size_t in_width = model->width[layer];
  const size_t out_width = model->width[layer + 1];
  float* weights = gradients->data[2 * layer];
  float* bias = gradients->data[2 * layer + 1];
  memset(weights, 0, gradients->count[2 * layer] * sizeof *weights);
  memset(bias, 0, gradients->count[2 * layer + 1] * sizeof *bias);
  for (size_t n = 0; n < count; n++) {
    const float* in = model->activations[layer] + n * in_width;
    const float* delta = model->deltas[layer + 1] + n * out_width;
    for (size_t i = 0; i < in_width; i++) {
      for (size_t j = 0; j < out_width; j++) weights[i * out_width + j] += in[i] * delta[j];
    }
    for (size_t j = 0; j < out_width; j++) bias[j] += delta[j];
  }
}

/* Carries the deltas of a layer's output back through its weights and the ReLU before them. */
static void layer_backward(struct mlp* model, int layer, size_t count) {
  const size_t in_width = model->width[layer];
  const size_t out_width = model->width[layer + 1];
  const float* weights = model->weights.data[2 * layer];
  for (size_t n = 0; n < count; n++) {
    const float* out_delta = model->deltas[layer + 1] + n * out_width;
    const float* in = model->activations[layer] + n * in_width;
    float* in_delta = model->deltas[layer] + n * in_width;
    for (size_t i = 0; i < in_width; i++) {
      float sum = 0.0f;
      for (size_t j = 0; j < out_width; j++) sum += weights[i * out_width + j] * out_delta[j];
      in_delta[i] = in[i] > 0.0f ? sum : 0.0f;
    }
  }
}

double mlp_gradients(struct mlp* model, const struct examples* from, const size_t* places,
                     size_t count, float scale, struct tensors* gradients, gradient_ready ready,
                     void* user) {
  double loss = 0.0;
  for (size_t n = 0; n < count; n++) {
    const int label = from->labels[places[n]];
    load_example(model, n, from, places[n]);
    forward(model, n);
    const float* probabilities = model->activations[kLayers] + n * kClasses;
    float* delta = model->deltas[kLayers] + n * kClasses;
    loss -= log((double)probabilities[label] + 1e-30);
    for (int j = 0; j < kClasses; j++) {
      delta[j] = scale * (probabilities[j] - (j == label ? 1.0f : 0.0f));
    }
  }
  for (int layer = kLayers - 1; layer >= 0; layer--) {
    layer_gradients(model, layer, count, gradients);
    if (ready != NULL) { /* before the layer below is even begun: communication overlaps it */
      ready(user, 2 * layer);
      ready(user, 2 * layer + 1);
    }
    if (layer > 0) layer_backward(model, layer, count);
  }
  return loss;
}

size_t mlp_count_correct(struct mlp* model, const struct examples* from, size_t first, size_t end) {
  size_t correct = 0;
  for (size_t place = first; place < end; place++) {
    load_example(model, 0, from, place);
    forward(model, 0);
    int best = 0;
    for (int j = 1; j < kClasses; j++) {
      if (model->activations[kLayers][j] > model->activations[kLayers][best]) best = j;
    }
    correct += best == from->labels[place];
  }
  return correct;
}

uint64_t mlp_hash(const struct mlp* model) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int i = 0; i < kTensors; i++) {
    const unsigned char* bytes = (const unsigned char*)model->weights.data[i];
    for (size_t n = 0; n < model->weights.count[i] * sizeof(float); n++) {
      hash = (hash ^ bytes[n]) * 0x100000001b3u;
    }
  }
  return hash;
}
