/* A multilayer perceptron in plain float32 loops: 64 - hidden - hidden - 10, ReLU, softmax with
 * cross entropy. Every loop has one fixed order, so equal inputs give equal bits.
 *
 * Its parameters are six tensors, numbered 0 to 5: weights and bias of each layer, first layer
 * first. A model owns its memory; one thread at a time. */
#ifndef KOLO_EXAMPLES_DIGITS_MLP_H
#define KOLO_EXAMPLES_DIGITS_MLP_H

#include <stddef.h>
#include <stdint.h>

#include "dataset.h"

enum { kLayers = 3, kTensors = 2 * kLayers };

/* A value for each parameter: the weights themselves, their gradients or their velocities. */
struct tensors {
  float* data[kTensors];
  size_t count[kTensors];
};

struct mlp {
  size_t width[kLayers + 1]; /* kFeatures, hidden, hidden, kClasses */
  struct tensors weights;
  size_t max_batch;
  float* activations[kLayers + 1]; /* [max_batch][width]; the last: probabilities */
  float* deltas[kLayers + 1];      /* [max_batch][width]: the loss by each layer's sums */
};

const char* mlp_tensor_name(int tensor);

/* 0, or -1 when memory has run out. Weights are drawn from `seed`, biases are zero. */
int mlp_create(struct mlp* model, size_t hidden, size_t max_batch, uint64_t seed);
void mlp_free(struct mlp* model);

int tensors_create(struct tensors* tensors, const struct mlp* like); /* zeros; 0 or -1 */
void tensors_free(struct tensors* tensors);

/* Called as soon as the gradient of `tensor` is complete: the last layer's first. */
typedef void (*gradient_ready)(void* user, int tensor);

/* Forward and backward over `count` examples (at most max_batch), given by their places in `from`.
 * `gradients` gets the sum over them, each times `scale`. Returns the sum of their losses. */
double mlp_gradients(struct mlp* model, const struct examples* from, const size_t* places,
                     size_t count, float scale, struct tensors* gradients, gradient_ready ready,
                     void* user);

/* How many of the examples from `first` up to `end` it classifies correctly. */
size_t mlp_count_correct(struct mlp* model, const struct examples* from, size_t first, size_t end);

/* FNV-1a, 64 bits, over all weights. */
uint64_t mlp_hash(const struct mlp* model);

#endif
