/* The same step in one process, without kolo: the reference that a job of K ranks must equal. */
#ifndef KOLO_EXAMPLES_DIGITS_SHARDS_H
#define KOLO_EXAMPLES_DIGITS_SHARDS_H

#include "mlp.h"

enum { kMaxShards = 64 };

/* Adds parts[1..n-1] to parts[0] in kolo's canonical order: the contiguous balanced binary tree
 * whose left part is the largest power of two below n. Two: a+b; three: (a+b)+c; six:
 * ((a+b)+(c+d))+(e+f). */
void add_in_tree_order(float* const* parts, size_t n, size_t count);

/* The gradients of K equal, contiguous shards of the batch, one after the other, then added into
 * shard_gradients[0]; at most kMaxShards. Returns the sum of the losses. */
double shards_gradients(struct mlp* model, const struct examples* from, const size_t* places,
                        size_t batch, struct tensors* shard_gradients, size_t shards);

#endif
