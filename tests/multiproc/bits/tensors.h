// The fixed list of random tensors of the bits test: what every rank submits, and what it holds.
// All of it is a function of the seed, so that ranks and reference agree without a word.
#pragma once

#include <kolo/kolo.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo::bits {

struct Tensor {
  std::string name;
  kolo_dtype dtype = KOLO_FLOAT32;
  std::size_t count = 0;
  kolo_op op = KOLO_SUM;
  double prescale = 1.0;
  double postscale = 1.0;
  int group = -1;  // members of one group are submitted as one
  bool in_place = false;
  bool allocated = false;  // in kolo_alloc's memory
};

inline constexpr int kGroups = 2;
inline constexpr int kRounds = 3;  // unknown, then known

std::size_t bytes_of(kolo_dtype dtype);  // of one element

std::vector<Tensor> tensors(std::uint64_t seed);

// What `rank` brings in that round: finite numbers of mixed size, as bytes.
std::vector<std::uint8_t> values_of(const Tensor& tensor, std::size_t index, int round, int rank,
                                    std::uint64_t seed);

// FNV-1a, a word at a time.
class Hash {
 public:
  void add(const void* memory, std::size_t bytes);
  [[nodiscard]] std::string text() const;  // 16 hexadecimal digits

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace kolo::bits
