// bits_ranks SEED ORDER_SEED: one rank of the bits test. Submits the tensors of the seed in a
// random order of its own, for several rounds, and prints the hash of all results and the road.
// Ends with 1 and the reason when anything fails.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "tests/multiproc/bits/tensors.h"

namespace kolo::bits {
namespace {

void must(kolo_status status, const char* what) {
  if (status == KOLO_OK) return;
  std::fprintf(stderr, "bits_ranks: %s: %s\n", what, kolo_last_error());
  std::fflush(nullptr);
  ::_exit(1);
}

// Where one tensor lies on this rank; output is input in place.
struct Place {
  std::vector<std::uint8_t> own[2];  // input, output, if not kolo's
  std::uint8_t* input = nullptr;
  std::uint8_t* output = nullptr;
};

std::uint8_t* memory_of(kolo_context* kolo, const Tensor& tensor, std::vector<std::uint8_t>& own) {
  const std::size_t bytes = tensor.count * bytes_of(tensor.dtype);
  if (!tensor.allocated) {
    own.resize(bytes);
    return own.data();
  }
  void* memory = nullptr;
  must(kolo_alloc(kolo, bytes, &memory), "kolo_alloc");
  return static_cast<std::uint8_t*>(memory);
}

std::vector<Place> places_of(kolo_context* kolo, const std::vector<Tensor>& list) {
  std::vector<Place> places(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    places[i].input = memory_of(kolo, list[i], places[i].own[0]);
    places[i].output =
        list[i].in_place ? places[i].input : memory_of(kolo, list[i], places[i].own[1]);
  }
  return places;
}

kolo_request submit(kolo_context* kolo, const Tensor& tensor, const Place& place) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = tensor.name.c_str();
  options.prescale = tensor.prescale;
  options.postscale = tensor.postscale;
  kolo_request request = KOLO_REQUEST_NULL;
  must(kolo_allreduce(kolo, place.input, place.output, tensor.count, tensor.dtype, tensor.op,
                      &options, &request),
       tensor.name.c_str());
  return request;
}

// Each of the list by itself or with its group, in a random order, also within groups.
std::vector<kolo_request> submit_all(kolo_context* kolo, const std::vector<Tensor>& list,
                                     const std::vector<Place>& places, std::mt19937_64& random) {
  std::vector<std::size_t> order(list.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<kolo_request> requests;
  bool done[kGroups] = {};
  for (const std::size_t i : order) {
    const int group = list[i].group;
    if (group < 0) {
      requests.push_back(submit(kolo, list[i], places[i]));
      continue;
    }
    if (std::exchange(done[group], true)) continue;
    const std::string name = "group " + std::to_string(group);
    must(kolo_group_begin(kolo, name.c_str()), "kolo_group_begin");
    for (const std::size_t j : order) {
      if (list[j].group == group) requests.push_back(submit(kolo, list[j], places[j]));
    }
    kolo_request whole = KOLO_REQUEST_NULL;
    must(kolo_group_end(kolo, &whole), "kolo_group_end");
    requests.push_back(whole);
  }
  return requests;
}

void run(kolo_context* kolo, std::uint64_t seed, std::uint64_t order_seed) {
  const std::vector<Tensor> list = tensors(seed);
  const int rank = kolo_rank(kolo);
  const std::vector<Place> places = places_of(kolo, list);
  std::mt19937_64 random(order_seed * 1000 + static_cast<std::uint64_t>(rank));
  Hash hash;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::vector<std::uint8_t> values = values_of(list[i], i, round, rank, seed);
      std::memcpy(places[i].input, values.data(), values.size());
    }
    std::vector<kolo_request> requests = submit_all(kolo, list, places, random);
    must(kolo_wait_all(kolo, requests.data(), requests.size(), 60'000), "kolo_wait_all");
    for (std::size_t i = 0; i < list.size(); ++i) {
      hash.add(places[i].output, list[i].count * bytes_of(list[i].dtype));
    }
  }
  const char* info = "";
  must(kolo_info(kolo, &info), "kolo_info");
  const char* road = std::strstr(info, "\"road\":\"");
  const std::string_view rest = road == nullptr ? "?\"" : road + std::strlen("\"road\":\"");
  std::printf("hash %s road %s\n", hash.text().c_str(),
              std::string(rest.substr(0, rest.find('"'))).c_str());
  std::fflush(stdout);
}

}  // namespace
}  // namespace kolo::bits

int main(int argc, char** argv) {
  using namespace kolo::bits;
  if (argc != 3) return 2;
  kolo_context* kolo = nullptr;
  must(kolo_init(nullptr, &kolo), "kolo_init");
  run(kolo, std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10));
  must(kolo_shutdown(kolo), "kolo_shutdown");
  return 0;
}
