// In a file of its own, so that no compiler sees these next to the calls that they replace.
#include "tests/unit/transport/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> allocations{0};
}

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace kolo::internal {

std::size_t allocations_so_far() { return allocations; }

}  // namespace kolo::internal
