/* The C snippets of docs/training.md, called by snippets_test.cc as every rank of a job of three.
 */
#include "tests/unit/training/snippets.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

static void check(kolo_status status) {
  if (status == KOLO_OK) return;
  fprintf(stderr, "%s\n", kolo_last_error());
  abort();
}

size_t place_in_set(kolo_context* kolo, int32_t pset) {
  int32_t ranks[3];

  size_t count = 0, place = 0;
  check(kolo_pset_ranks(kolo, pset, ranks, 3, &count));
  while (place < count && ranks[place] != kolo_rank(kolo)) ++place;

  return place;
}

void gather_rows(kolo_context* kolo, const int32_t* found, size_t found_count, int32_t* sums) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "found";
  options.allocate = 1;
  kolo_request request = KOLO_REQUEST_NULL;
  check(kolo_allgather(kolo, found, NULL, found_count, KOLO_INT32, &options, &request));
  check(kolo_wait(kolo, &request, KOLO_FOREVER));
  void* rows = NULL;
  size_t count = 0;
  const size_t* counts = NULL;
  check(kolo_request_output(kolo, request, &rows, &count, &counts));
  const int32_t* row = rows;
  for (int32_t rank = 0; rank < kolo_size(kolo); ++rank) {
    for (size_t i = 0; i < counts[rank]; ++i) sums[rank] += *row++;
  }
  check(kolo_request_free(kolo, &request)); /* and the rows with it */
}

void train_persistently(kolo_context* kolo, float* weight, float* bias, size_t n, int steps,
                        void (*backward)(kolo_context*, float*, float*)) {
  kolo_request requests[2];
  kolo_options options = KOLO_OPTIONS_INIT;
  options.persistent = 1;
  options.name = "weight";
  check(kolo_allreduce(kolo, weight, weight, n, KOLO_FLOAT32, KOLO_AVG, &options, &requests[0]));
  options.name = "bias";
  check(kolo_allreduce(kolo, bias, bias, 1, KOLO_FLOAT32, KOLO_AVG, &options, &requests[1]));
  for (int step = 0; step < steps; ++step) {
    backward(kolo, weight, bias);
    check(kolo_start(kolo, requests, 2));
    check(kolo_wait_all(kolo, requests, 2, KOLO_FOREVER));
  }
  for (int i = 0; i < 2; ++i) check(kolo_request_free(kolo, &requests[i]));
}

static void post(kolo_status status, const char* text, void* user) {
  if (status != KOLO_OK) fprintf(stderr, "%s\n", text);
  sem_post((sem_t*)user);
}

void be_told(kolo_context* kolo, float* gradient, size_t n, void (*other_work)(void)) {
  sem_t reduced;
  sem_init(&reduced, 0, 0);
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "gradient";
  options.callback = post;
  options.user = &reduced;
  kolo_request request = KOLO_REQUEST_NULL;
  check(kolo_allreduce(kolo, gradient, gradient, n, KOLO_FLOAT32, KOLO_AVG, &options, &request));
  check(kolo_request_free(kolo, &request)); /* goes on; the callback still tells */
  other_work();
  sem_wait(&reduced);
  sem_destroy(&reduced);
}
