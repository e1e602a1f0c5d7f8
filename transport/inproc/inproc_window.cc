#include "transport/inproc/inproc_window.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace kolo::internal {
namespace {

// All segments, one after the other: pages appear when they are touched.
struct Memory {
  Memory(int size, std::size_t segment_bytes)
      : bytes(static_cast<std::size_t>(size) * segment_bytes),
        base(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (base != MAP_FAILED) ::munmap(base, bytes);
  }
  std::size_t bytes;
  void* base;
  std::vector<UniqueFd> bells;
};

class InprocWindow final : public Window {
 public:
  InprocWindow(int rank, std::size_t bytes, std::vector<const std::byte*> segments,
               std::shared_ptr<Memory> memory)
      : Window(rank, bytes,
               static_cast<std::byte*>(memory->base) + static_cast<std::size_t>(rank) * bytes,
               std::move(segments)),
        memory_(std::move(memory)) {}

  Status commit(std::size_t, std::size_t) override { return Status::ok(); }
  int bell() const override { return memory_->bells[static_cast<std::size_t>(rank())].get(); }
  int lost() const override { return -1; }

 private:
  void wake(int peer) override {
    const std::uint64_t one = 1;
    // It can only fail when the counter is full, and then the event is set anyway.
    [[maybe_unused]] const auto written =
        ::write(memory_->bells[static_cast<std::size_t>(peer)].get(), &one, sizeof one);
    counters_.rings.fetch_add(1, std::memory_order_relaxed);
  }
  std::shared_ptr<Memory> memory_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Window>>> make_inproc_windows(int size, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  bytes = std::max(Window::kHeaderBytes, (bytes + kPage - 1) / kPage * kPage);
  auto memory = std::make_shared<Memory>(size, bytes);
  if (memory->base == MAP_FAILED) {
    return resource_error("no address space for windows of " + std::to_string(bytes) + " bytes");
  }
  std::vector<const std::byte*> segments;
  for (int r = 0; r < size; ++r) {
    segments.push_back(static_cast<const std::byte*>(memory->base) +
                       static_cast<std::size_t>(r) * bytes);
    memory->bells.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!memory->bells.back().is_open()) {
      return resource_error("no descriptor for a window's bell; raise ulimit -n");
    }
  }
  std::vector<std::unique_ptr<Window>> windows;
  for (int r = 0; r < size; ++r) {
    windows.push_back(std::make_unique<InprocWindow>(r, bytes, segments, memory));
  }
  return windows;
}

}  // namespace kolo::internal
