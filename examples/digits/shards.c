#include "shards.h"

void add_in_tree_order(float* const* parts, size_t n, size_t count) {
  if (n < 2) return;
  size_t left = 1;
  while (2 * left < n) left *= 2;
  add_in_tree_order(parts, left, count);
  add_in_tree_order(parts + left, n - left, count);
  for (size_t i = 0; i < count; i++) parts[0][i] += parts[left][i];
}

double shards_gradients(struct mlp* model, const struct examples* from, const size_t* places,
                        size_t batch, struct tensors* shard_gradients, size_t shards) {
  const size_t part = batch / shards;
  double loss = 0.0;
  for (size_t shard = 0; shard < shards; shard++) {
    loss += mlp_gradients(model, from, places + shard * part, part, 1.0f / (float)batch,
                          &shard_gradients[shard], NULL, NULL);
  }
  float* parts[kMaxShards];
  for (int tensor = 0; tensor < kTensors; tensor++) {
    for (size_t shard = 0; shard < shards; shard++) {
      parts[shard] = shard_gradients[shard].data[tensor];
    }
    add_in_tree_order(parts, shards, shard_gradients[0].count[tensor]);
  }
  return loss;
}
