// Rng: the one source of chance of a simulated run. The same seed gives the same run on every
// machine (no standard distribution, whose results are the library's own choice).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace kolo::internal {

// One step of splitmix64: also a hash of one number.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(mix(seed)) {}

  std::uint64_t next() { return mix(state_++); }
  // 0 .. n - 1; n > 0.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  int below(int n) { return static_cast<int>(below(static_cast<std::uint64_t>(n))); }
  bool chance(int percent) { return below(100) < percent; }

  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace kolo::internal
