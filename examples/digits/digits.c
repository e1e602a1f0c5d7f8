/* A data-parallel trainer in plain C: every rank computes the gradients of its own part of each
 * batch and hands them to kolo as they appear; kolo adds them up over all ranks while the backward
 * pass goes on. Look for "kolo_" to see all that a trainer needs.
 *
 *   kolorun -np 4 digits        four ranks
 *   digits --shards 4           the same training in one process, without kolo: equal weights
 *
 * With --device kolo's tensors are in the memory of a GPU. The model is computed on the host all
 * the same, so they are copied there and back, on one stream, which waits for kolo as the host
 * would.
 *
 * Steps: (1) broadcast the initial weights; per batch: (2) gradients of this rank's shard, each
 * submitted at once; (3) wait for each sum and step its weights; per epoch: (4) add up loss and
 * correct answers. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <kolo/kolo.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dataset.h"
#include "device.h"
#include "mlp.h"
#include "random.h"
#include "settings.h"
#include "shards.h"

static const float kLearningRate = 0.1f;
static const float kMomentum = 0.9f;

struct trainer {
  struct settings settings;
  struct dataset data;
  struct mlp model;
  struct tensors velocity;
  struct tensors gradients[kMaxShards]; /* the first holds this rank's, then the sum */
  float* device_weights[kTensors];      /* with --device; else NULL */
  float* device_gradients[kTensors];
  size_t* order; /* places of the training images, shuffled every epoch */
  uint64_t shuffle_state;

  kolo_context* kolo; /* NULL with --shards */
  size_t rank;
  size_t ranks; /* how many shards a batch has, in this process or over all */
  kolo_request requests[kTensors];

  double loss; /* of this rank, over the epoch */
  double step_s;
  double wait_s;
};

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A trainer cannot go on without its peers: says why, and ends this rank. */
static void require(kolo_status status) {
  if (status == KOLO_OK) return;
  fprintf(stderr, "digits: %s\n", kolo_last_error());
  exit(1);
}

static void require_memory(int result) {
  if (result == 0) return;
  fprintf(stderr, "digits: out of memory\n");
  exit(1);
}

/* Called from the backward pass, the last layer's tensors first. Returns at once. */
static void submit_gradient(void* user, int tensor) {
  struct trainer* t = user;
  float* gradient = t->gradients[0].data[tensor];
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = mlp_tensor_name(tensor);
  require(kolo_allreduce(t->kolo, gradient, gradient, t->gradients[0].count[tensor], KOLO_FLOAT32,
                         KOLO_SUM, &options, &t->requests[tensor]));
}

/* The same with --device: the gradient is copied there, and kolo reads it after the copy. */
static void submit_device_gradient(void* user, int tensor) {
  struct trainer* t = user;
  const size_t count = t->gradients[0].count[tensor];
  float* gradient = t->device_gradients[tensor];
  device_put(gradient, t->gradients[0].data[tensor], count);
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = mlp_tensor_name(tensor);
  options.stream = device_stream();
  require(kolo_allreduce(t->kolo, gradient, gradient, count, KOLO_FLOAT32, KOLO_SUM, &options,
                         &t->requests[tensor]));
}

/* The sums go back to the host: the stream waits for each, and the host once, for all of them. */
static void fetch_gradients(struct trainer* t) {
  for (int tensor = kTensors - 1; tensor >= 0; tensor--) {
    const size_t count = t->gradients[0].count[tensor];
    require(kolo_stream_wait(t->kolo, t->requests[tensor], device_stream(), KOLO_FOREVER));
    device_get(t->gradients[0].data[tensor], t->device_gradients[tensor], count);
  }
  device_wait();
}

/* Stochastic gradient descent with momentum, on one tensor. */
static void update_weights(struct trainer* t, int tensor) {
  float* weights = t->model.weights.data[tensor];
  float* velocity = t->velocity.data[tensor];
  const float* gradient = t->gradients[0].data[tensor];
  for (size_t i = 0; i < t->velocity.count[tensor]; i++) {
    velocity[i] = kMomentum * velocity[i] + gradient[i];
    weights[i] -= kLearningRate * velocity[i];
  }
  if (t->settings.device) device_put(t->device_weights[tensor], weights, t->velocity.count[tensor]);
}

/* The gradients are means over the whole batch because every shard scales its own by 1 / batch: the
 * sum over the ranks is then all that is left to do. */
static void step(struct trainer* t, const size_t* batch) {
  const double start_s = now_s();
  const size_t count = t->settings.batch / t->ranks;
  const gradient_ready submit = t->settings.device ? submit_device_gradient : submit_gradient;
  if (t->settings.shards > 0) {
    t->loss += shards_gradients(&t->model, &t->data.train, batch, t->settings.batch, t->gradients,
                                t->settings.shards);
  } else {
    t->loss += mlp_gradients(&t->model, &t->data.train, batch + t->rank * count, count,
                             1.0f / (float)t->settings.batch, &t->gradients[0],
                             t->settings.all_reduce ? submit : NULL, t);
  }
  if (t->settings.device && t->settings.all_reduce) {
    const double wait_start_s = now_s();
    fetch_gradients(t);
    t->wait_s += now_s() - wait_start_s;
  }
  for (int tensor = kTensors - 1; tensor >= 0; tensor--) {
    if (t->requests[tensor] != KOLO_REQUEST_NULL) {
      const double wait_start_s = now_s();
      require(kolo_wait(t->kolo, &t->requests[tensor], KOLO_FOREVER));
      t->wait_s += now_s() - wait_start_s;
    }
    update_weights(t, tensor);
  }
  t->step_s += now_s() - start_s;
}

/* The same on every rank: all start from the same seed. */
static void shuffle(struct trainer* t) {
  for (size_t i = t->data.train.count; i > 1; i--) {
    const size_t j = (size_t)(random_next(&t->shuffle_state) % i);
    const size_t place = t->order[i - 1];
    t->order[i - 1] = t->order[j];
    t->order[j] = place;
  }
}

/* Adds up a few numbers over all ranks; blocks. */
static void sum_over_ranks(struct trainer* t, double* values, size_t count) {
  if (t->kolo == NULL) return;
  require(kolo_allreduce(t->kolo, values, values, count, KOLO_FLOAT64, KOLO_SUM, NULL, NULL));
}

/* Returns the accuracy on the test images, of which every rank classifies its part. */
static double epoch(struct trainer* t, size_t number) {
  const size_t steps = t->data.train.count / t->settings.batch;
  const size_t tests = t->data.test.count;
  t->loss = t->step_s = t->wait_s = 0.0;
  shuffle(t);
  for (size_t i = 0; i < steps; i++) step(t, t->order + i * t->settings.batch);

  const int alone = t->kolo == NULL;
  const size_t first = alone ? 0 : t->rank * tests / t->ranks;
  const size_t end = alone ? tests : (t->rank + 1) * tests / t->ranks;
  double sums[4] = {t->loss, (double)mlp_count_correct(&t->model, &t->data.test, first, end),
                    t->step_s, t->wait_s};
  sum_over_ranks(t, sums, 4);
  const double images = (double)(steps * t->settings.batch);
  const double accuracy = sums[1] / (double)tests;
  const double mean_step_s = alone ? sums[2] : sums[2] / (double)t->ranks;
  if (t->rank == 0) {
    printf("epoch %2zu/%zu  loss %.4f  accuracy %.4f  %7.0f images/s  waiting %2.0f%%\n", number,
           t->settings.epochs, sums[0] / images, accuracy, images / mean_step_s,
           100.0 * sums[3] / sums[2]);
    fflush(stdout);
  }
  return accuracy;
}

static void join(struct trainer* t) {
  require(kolo_init(NULL, &t->kolo));
  t->rank = (size_t)kolo_rank(t->kolo);
  t->ranks = (size_t)kolo_size(t->kolo);
  if (t->settings.device) device_open(kolo_local_rank(t->kolo));
}

/* All ranks get rank 0's weights. */
static void broadcast_weights(struct trainer* t) {
  for (int i = 0; i < kTensors; i++) {
    float* weights = t->model.weights.data[i];
    const size_t count = t->model.weights.count[i];
    kolo_options options = KOLO_OPTIONS_INIT;
    if (t->settings.device) {
      t->device_weights[i] = device_alloc(count);
      t->device_gradients[i] = device_alloc(count);
      device_put(t->device_weights[i], weights, count);
      options.stream = device_stream(); /* with a stream the call returns before it is done, */
    }
    void* buffer = t->settings.device ? t->device_weights[i] : weights;
    require(
        kolo_broadcast(t->kolo, buffer, buffer, count, KOLO_FLOAT32, /*root=*/0, &options, NULL));
    if (t->settings.device) device_get(weights, buffer, count); /* and the stream waits for it */
  }
  if (t->settings.device) device_wait();
}

static void create_model(struct trainer* t) {
  /* Other ranks begin with other weights on purpose: the broadcast below must replace them. */
  require_memory(
      mlp_create(&t->model, t->settings.hidden, t->settings.batch, t->settings.seed + t->rank));
  require_memory(tensors_create(&t->velocity, &t->model));
  const size_t sets = t->settings.shards > 0 ? t->settings.shards : 1;
  for (size_t i = 0; i < sets; i++) require_memory(tensors_create(&t->gradients[i], &t->model));
  t->order = malloc(t->data.train.count * sizeof *t->order);
  require_memory(t->order == NULL ? -1 : 0);
  for (size_t i = 0; i < t->data.train.count; i++) t->order[i] = i;
  t->shuffle_state = t->settings.seed;
  if (t->kolo != NULL) broadcast_weights(t);
}

static int check_split(const struct trainer* t) {
  if (t->settings.batch % t->ranks == 0 && t->settings.batch <= t->data.train.count) return 0;
  fprintf(
      stderr,
      "digits: a batch of %zu does not fit %zu ranks and %zu images: choose --batch as a multiple "
      "of the ranks, at most the number of images\n",
      t->settings.batch, t->ranks, t->data.train.count);
  return -1;
}

static void greet(const struct trainer* t) {
  size_t parameters = 0;
  for (int i = 0; i < kTensors; i++) parameters += t->velocity.count[i];
  printf("digits: %zu images to train on, %zu to test; %zu parameters in %d tensors\n",
         t->data.train.count, t->data.test.count, parameters, kTensors);
  printf("digits: %zu %s, %zu images a step, %zu each%s%s\n", t->ranks,
         t->settings.shards > 0 ? "shards in one process"
         : t->ranks == 1        ? "rank"
                                : "ranks",
         t->settings.batch, t->settings.batch / t->ranks,
         t->settings.device ? ", weights and gradients on devices" : "",
         t->settings.all_reduce ? "" : "; WITHOUT all-reduce: every rank for itself");
}

/* Prints the weights' hash; -1 if the ranks have drifted apart. */
static int compare_weights(struct trainer* t) {
  for (int i = 0; i < kTensors && t->settings.device; i++) { /* those of the device are the ones */
    device_get(t->model.weights.data[i], t->device_weights[i], t->model.weights.count[i]);
  }
  if (t->settings.device) device_wait();
  const uint64_t hash = mlp_hash(&t->model);
  uint64_t least = hash;
  uint64_t most = hash;
  if (t->kolo != NULL) {
    require(kolo_allreduce(t->kolo, &hash, &least, 1, KOLO_UINT64, KOLO_MIN, NULL, NULL));
    require(kolo_allreduce(t->kolo, &hash, &most, 1, KOLO_UINT64, KOLO_MAX, NULL, NULL));
  }
  if (t->rank == 0) {
    printf("weights %016" PRIx64 " (%s)\n", hash,
           t->kolo == NULL ? "one process"
           : least == most ? "equal on all ranks"
                           : "DIFFERENT on other ranks");
  }
  return least == most ? 0 : -1;
}

static void free_trainer(struct trainer* t) {
  for (int i = 0; i < kTensors && t->settings.device; i++) {
    device_free(t->device_weights[i]);
    device_free(t->device_gradients[i]);
  }
  if (t->settings.device) device_close();
  for (size_t i = 0; i < kMaxShards; i++) tensors_free(&t->gradients[i]);
  tensors_free(&t->velocity);
  mlp_free(&t->model);
  free(t->order);
  dataset_free(&t->data);
}

int main(int argc, char** argv) {
  static struct trainer trainer; /* zeros */
  struct trainer* t = &trainer;
  int exit_code = 0;
  if (settings_parse(argc, argv, &t->settings, &exit_code) != 0) return exit_code;
  if (dataset_load(t->settings.data, &t->data) != 0) return 1;
  t->ranks = t->settings.shards;
  if (t->settings.shards == 0) join(t);
  if (check_split(t) != 0) return 2;
  create_model(t);

  if (t->rank == 0) greet(t);
  double accuracy = 0.0;
  for (size_t i = 1; i <= t->settings.epochs; i++) accuracy = epoch(t, i);
  if (t->rank == 0) printf("accuracy %.4f on images it has never seen\n", accuracy);
  const int result = compare_weights(t);

  if (t->kolo != NULL) require(kolo_shutdown(t->kolo));
  free_trainer(t);
  return result == 0 ? 0 : 1;
}
