/* A rank for the launcher's tests that works as a trainer does: on the public interface alone.

   worker fall KIND RANK [SURVIVORS]
     All ranks add without a pause. RANK ends in the middle, by KIND: "exit:N", "return:N",
     "signal:N", or "abort:N" (kolo_abort, then exit); at the first error the others end by
     SURVIVORS (default "exit:1"). With a RANK that nobody has the job goes on for ever.

   worker add TOKEN STEPS
     Every rank adds TOKEN; ends with 0 if each sum is TOKEN times the size.

   worker meet FOLDER
     Makes FOLDER/<rank>, waits until someone opens the pipe FOLDER/go for writing, then joins;
     prints when it had joined, and ends with 0 if ranks 1 to n sum up to n(n+1)/2.

   worker place
     Prints its place on its host, and kolo_info(). */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <kolo/kolo.h>

static int end_by(const char* kind) {
  const char* colon = strchr(kind, ':');
  const int number = colon == NULL ? 99 : atoi(colon + 1);
  if (strncmp(kind, "return", 6) == 0) return number;
  if (strncmp(kind, "signal", 6) == 0) raise(number);
  _exit(number);
}

static kolo_context* join(void) {
  kolo_context* context = NULL;
  if (kolo_init(NULL, &context) == KOLO_OK) return context;
  fprintf(stderr, "worker: %s\n", kolo_last_error());
  exit(97);
}

/* The sum over the ranks; ends the process if there is none. */
static int64_t sum_of(kolo_context* context, int64_t value) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "sum";
  if (kolo_allreduce(context, &value, &value, 1, KOLO_INT64, KOLO_SUM, &options, NULL) != KOLO_OK) {
    fprintf(stderr, "worker: %s\n", kolo_last_error());
    exit(96);
  }
  return value;
}

static int fall(const char* kind, int rank, const char* survivors) {
  kolo_context* context = join();
  const int falls = kolo_rank(context) == rank;
  float values[1000] = {0};
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "values";
  for (int i = 0;; ++i) {
    if (falls && i == 50) {
      if (strncmp(kind, "abort", 5) == 0) kolo_abort(context, "enough");
      return end_by(kind);
    }
    if (kolo_allreduce(context, values, values, 1000, KOLO_FLOAT32, KOLO_SUM, &options, NULL) !=
        KOLO_OK) {
      return end_by(survivors);
    }
  }
}

static int add(int64_t token, int steps) {
  kolo_context* context = join();
  int right = 1;
  for (int i = 0; i < steps; ++i) {
    right = right && sum_of(context, token) == token * kolo_size(context);
  }
  if (kolo_shutdown(context) != KOLO_OK) return 95;
  return right ? 0 : 94;
}

static int meet(const char* folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, getenv("RANK"));
  const int mark = open(path, O_CREAT | O_WRONLY, 0600);
  snprintf(path, sizeof path, "%s/go", folder);
  const int go = open(path, O_RDONLY);
  if (mark < 0 || go < 0) return 93;
  close(mark);
  close(go);
  kolo_context* context = join();
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("joined %.3f\n", (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
  fflush(stdout);
  const int64_t size = kolo_size(context);
  const int64_t sum = sum_of(context, kolo_rank(context) + 1);
  if (kolo_shutdown(context) != KOLO_OK) return 95;
  return sum == size * (size + 1) / 2 ? 0 : 94;
}

static int place(void) {
  kolo_context* context = join();
  const char* info = NULL;
  if (kolo_info(context, &info) != KOLO_OK) return 92;
  printf("local rank %d of %d\n%s\n", kolo_local_rank(context), kolo_local_size(context), info);
  return kolo_shutdown(context) == KOLO_OK ? 0 : 95;
}

int main(int argc, char** argv) {
  const struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (argc >= 4 && strcmp(argv[1], "fall") == 0) {
    return fall(argv[2], atoi(argv[3]), argc > 4 ? argv[4] : "exit:1");
  }
  if (argc == 4 && strcmp(argv[1], "add") == 0) return add(atoll(argv[2]), atoi(argv[3]));
  if (argc == 3 && strcmp(argv[1], "meet") == 0) return meet(argv[2]);
  if (argc == 2 && strcmp(argv[1], "place") == 0) return place();
  return 98;
}
