#include "bench/kolo_bench/library.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "bench/common/text.h"

namespace kolo::bench {

void* allocate_plain(std::size_t bytes) {
  void* memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) die("no memory for " + std::to_string(bytes) + " bytes");
  std::memset(memory, 0, bytes);
  return memory;
}

}  // namespace kolo::bench
