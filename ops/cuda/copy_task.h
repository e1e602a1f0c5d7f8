// CopyTask: tensors from device memory into pinned host memory, or back; and Staging, that memory.
//
// Threads: as Task; a Staging belongs to the task that uses it, until that has ended.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "ops/cuda/launch_thread.h"
#include "ops/cuda/task.h"

namespace kolo::internal::cuda {

// Grows on the launch thread and keeps its memory until release().
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  [[nodiscard]] std::byte* memory() const { return memory_; }
  Status reserve(const Runtime& runtime, std::size_t bytes);  // RESOURCE; contents are lost
  void release(const Runtime& runtime);

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

class CopyTask final : public Task {
 public:
  enum class Way { kToHost, kToDevice };
  struct Piece {
    void* device = nullptr;  // only read on the way to the host
    std::size_t offset = 0;  // in the staging
    std::size_t bytes = 0;
    EventRef ready;  // behind the work that makes it; may be none
  };

  explicit CopyTask(Way way) : way_(way) {}

  // Forgets the last copy. To be posted to `thread`. `bytes`: of the staging that are needed.
  void prepare(LaunchThread& thread, int device, Staging& staging, std::size_t bytes) {
    thread_ = &thread;
    device_ = device;
    staging_ = &staging;
    bytes_ = bytes;
    pieces_.clear();
    before_ = nullptr;
  }
  // On the launch thread, with the device current, before anything is copied.
  void set_before(std::function<Status()> work) { before_ = std::move(work); }
  void add(Piece piece) { pieces_.push_back(std::move(piece)); }

 private:
  Result<EventRef> launch() override;
  Status verdict() override { return failure_; }

  LaunchThread* thread_ = nullptr;
  Way way_;
  int device_ = 0;
  Staging* staging_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<Piece> pieces_;
  std::function<Status()> before_;
  Status failure_;  // of the launch
};

}  // namespace kolo::internal::cuda
