// What the ranks of these tests do with kolo: all-reduces whose results are known to the last bit,
// small and large, one by one and many at a time.
#pragma once

#include <kolo/kolo.h>

#include <cstdio>
#include <string>
#include <vector>

namespace kolo::test {

inline bool complain(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, kolo_last_error());
  return false;
}

// Element i of a rank is (rank + 1) * (i % 100 + 1): sums of small whole numbers are exact.
inline bool check_sum(kolo_context* kolo, std::size_t count) {
  const int rank = kolo_rank(kolo);
  const int size = kolo_size(kolo);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(rank + 1) * static_cast<float>(i % 100 + 1);
  }
  std::vector<float> sums(count);
  if (kolo_allreduce(kolo, values.data(), sums.data(), count, KOLO_FLOAT32, KOLO_SUM, nullptr,
                     nullptr) != KOLO_OK) {
    return complain("kolo_allreduce");
  }
  const auto ranks = static_cast<float>(size * (size + 1) / 2);
  for (std::size_t i = 0; i < count; ++i) {
    if (sums[i] == ranks * static_cast<float>(i % 100 + 1)) continue;
    std::fprintf(stderr, "rank %d: element %zu of %zu is %g\n", rank, i, count,
                 static_cast<double>(sums[i]));
    return false;
  }
  return true;
}

// Many named tensors at a time, submitted in another order by each rank.
inline bool check_many(kolo_context* kolo) {
  constexpr std::size_t kTensors = 20;
  constexpr std::size_t kCount = 30000;
  const auto rank = static_cast<std::size_t>(kolo_rank(kolo));
  std::vector<std::vector<double>> tensors(kTensors);
  std::vector<kolo_request> requests(kTensors);
  for (std::size_t i = 0; i < kTensors; ++i) {
    const std::size_t t = (i + rank * 7) % kTensors;
    const std::string name = "tensor " + std::to_string(t);
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = name.c_str();
    tensors[t].assign(kCount, static_cast<double>(t));
    if (kolo_allreduce(kolo, tensors[t].data(), tensors[t].data(), kCount, KOLO_FLOAT64, KOLO_SUM,
                       &options, &requests[t]) != KOLO_OK) {
      return complain("kolo_allreduce");
    }
  }
  for (std::size_t t = 0; t < kTensors; ++t) {
    if (kolo_wait(kolo, &requests[t], KOLO_FOREVER) != KOLO_OK) return complain("kolo_wait");
    for (const double value : tensors[t]) {
      if (value == static_cast<double>(t) * kolo_size(kolo)) continue;
      std::fprintf(stderr, "tensor %zu holds %g\n", t, value);
      return false;
    }
  }
  return true;
}

inline bool check_sums(kolo_context* kolo) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{2048},
        std::size_t{100003}, (std::size_t{3} << 20) + 1}) {
    if (!check_sum(kolo, count)) return false;
  }
  return check_many(kolo);
}

}  // namespace kolo::test
