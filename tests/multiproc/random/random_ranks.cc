// random_ranks [--seed S] [--programs N] [--operations M] [--without sets,join,collectives,adasum]:
// one rank of N random programs with the seeds S, S + 1, ..., each with about M operations. Ends
// with 0 if all came out right; otherwise prints seed, operation, rank, the first element that
// differs and the command that does it again, and ends with 90.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/multiproc/random/flight.h"
#include "tests/multiproc/random/rank.h"

namespace {

using namespace kolo::programs;

bool read_arguments(int argc, char** argv, Dose& dose) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = argv[i + 1];
    if (flag == "--seed") {
      dose.seed = std::strtoull(value, nullptr, 10);
    } else if (flag == "--programs") {
      dose.programs = std::atoi(value);
    } else if (flag == "--operations") {
      dose.operations = std::atoi(value);
    } else if (flag == "--without") {
      dose.abilities.sets = std::strstr(value, "sets") == nullptr;
      dose.abilities.join = std::strstr(value, "join") == nullptr;
      dose.abilities.all_collectives = std::strstr(value, "collectives") == nullptr;
      dose.abilities.adasum = std::strstr(value, "adasum") == nullptr;
      dose.without = " --without " + std::string(value);
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What the launcher set for this job, as words before the program.
std::string launch_words(int size) {
  std::string words = "kolorun -np " + std::to_string(size);
  for (const char* name : {"KOLO_TRANSPORT", "KOLO_ALGORITHM", "KOLO_FUSION_THRESHOLD_BYTES",
                           "KOLO_FUSION_TENSOR_BYTES", "KOLO_CACHE_CAPACITY"}) {
    if (!variable(name).empty()) words += " -x " + std::string(name) + "=" + variable(name);
  }
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  Dose dose;
  if (!read_arguments(argc, argv, dose)) {
    std::fprintf(stderr, "usage: random_ranks [--seed S] [--programs N] [--operations M]\n");
    return 2;
  }
  kolo_context* context = nullptr;
  if (kolo_init(nullptr, &context) != KOLO_OK) {
    std::fprintf(stderr, "random_ranks: %s\n", kolo_last_error());
    return kFailed;
  }
  dose.replay = launch_words(kolo_size(context)) + " " + argv[0] + dose.without;
  if (kolo_rank(context) == 0) {
    std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(dose.seed),
                static_cast<unsigned long long>(dose.seed) +
                    static_cast<unsigned long long>(dose.programs) - 1);
    std::fflush(stdout);
  }
  const std::string road = variable("KOLO_TEST_ROAD");
  const char* info = "";
  if (!road.empty() && (kolo_info(context, &info) != KOLO_OK ||
                        std::strstr(info, ("\"road\":\"" + road + "\"").c_str()) == nullptr)) {
    std::fprintf(stderr, "random_ranks: the road is not %s\n", road.c_str());
    return kFailed;
  }
  run_programs(context, dose);
  if (kolo_shutdown(context) == KOLO_OK) return 0;
  std::fprintf(stderr, "random_ranks: kolo_shutdown: %s\n", kolo_last_error());
  return kFailed;
}
