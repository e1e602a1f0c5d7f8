// In a file of its own, so that no compiler sees these next to the calls that they replace. An
// allocation is of the library that its caller lies in; of the one before it, if that is the
// standard library.
#include "tests/gpu/kolo_allocations.h"

#include <execinfo.h>
#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  [[nodiscard]] bool holds(const void* address) const {
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    return value >= begin && value < end;
  }
};

Range kolo_code;
Range standard_code;
std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};

int find(dl_phdr_info* info, std::size_t /*bytes*/, void* /*unused*/) {
  Range* range = nullptr;
  if (std::strstr(info->dlpi_name, "/libkolo.so") != nullptr) range = &kolo_code;
  if (std::strstr(info->dlpi_name, "/libstdc++.so") != nullptr) range = &standard_code;
  if (range == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    range->begin = info->dlpi_addr + part.p_vaddr;
    range->end = range->begin + part.p_memsz;
  }
  return 0;
}

void count(const void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  bool is_of_kolo = kolo_code.holds(caller);
  if (!is_of_kolo && standard_code.holds(caller)) {
    void* frames[12];
    const int depth = backtrace(frames, 12);
    int i = 0;
    while (i < depth && !standard_code.holds(frames[i])) ++i;
    while (i < depth && standard_code.holds(frames[i])) ++i;
    is_of_kolo = i < depth && kolo_code.holds(frames[i]);
  }
  if (is_of_kolo) ++allocations;
}

}  // namespace

void* operator new(std::size_t bytes) {
  count(__builtin_return_address(0));
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  count(__builtin_return_address(0));
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  count(__builtin_return_address(0));
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (bytes + unit) / unit * unit)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace gpu_test {

void count_allocations_of_kolo() {
  void* frames[2];
  backtrace(frames, 2);  // the first one allocates
  dl_iterate_phdr(find, nullptr);
  allocations = 0;
  counting = true;
}

std::size_t allocations_of_kolo() { return allocations; }

}  // namespace gpu_test
