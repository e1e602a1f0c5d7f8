// DeviceRoad: how the tensors of one process set, each rank's on one device, travel: not known yet,
// by NCCL, or staged; and DeviceSetup, by which the ranks decide.
//
// Threads: the driver, but for the tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device_record.h"
#include "core/gpus.h"
#include "core/process_sets.h"
#include "ops/composed.h"
#include "ops/nccl/communicator.h"

namespace kolo::internal {

struct DeviceRoad {
  enum class State { kUnknown, kPending, kNccl, kStaged };

  // Meets the other ranks, before any operation of the communicator.
  class Open final : public cuda::Task {
   public:
    Open(cuda::LaunchThread& thread, DeviceRoad& road) : thread_(thread), road_(road) {}

   private:
    Result<cuda::EventRef> launch() override;
    cuda::LaunchThread& thread_;
    DeviceRoad& road_;
  };
  // Ends the communicator, after its last operation.
  class Close final : public cuda::Task {
   public:
    explicit Close(DeviceRoad& road) : road_(road) {}

   private:
    Result<cuda::EventRef> launch() override {
      road_.communicator->close();
      return cuda::EventRef();
    }
    DeviceRoad& road_;
  };

  State state = State::kUnknown;
  std::string why_staged;
  std::uint32_t process_set = 0;
  std::int32_t device = 0;  // this rank's
  int size = 1;
  int place = 0;
  nccl::UniqueId id;
  std::unique_ptr<nccl::Communicator> communicator;  // by NCCL
  bool packs = false;                                // fused tensors travel through a buffer
  std::unique_ptr<Open> open;
  std::unique_ptr<Close> close;
  std::size_t users = 0;    // operations that hold it
  bool is_opening = false;  // `open` has been posted
  bool given_up = false;    // by the engine's verdict
};

class DeviceSetup final : public ComposedOperation {
 public:
  struct Rank {  // what this one says of itself
    bool by_nccl = true;
    std::uint64_t host = 0;
    bool may_share = false;
  };
  DeviceSetup(Gpus& gpus, const Rank& rank) : gpus_(gpus), ask_(gpus, rank) {}

  void start(Collectives& collectives, std::uint32_t sequence, const DeviceRoad& road);
  [[nodiscard]] bool is_busy() const override { return !ask_.is_idle(); }
  // After cancel(). True: a task of it is left behind.
  bool take_back(const Status& why, Nanos patience) {
    return gpus_.thread().take_back(ask_, why, patience) ==
           cuda::LaunchThread::TakenBack::kLeftBehind;
  }
  [[nodiscard]] const std::vector<DeviceRecord>& records() const { return records_; }

 private:
  // Opens the device and makes this rank's record.
  class Ask final : public cuda::Task {
   public:
    Ask(Gpus& gpus, const Rank& rank) : gpus_(gpus), rank_(rank) {}
    void prepare(std::int32_t device, bool first) {
      device_ = device;
      is_first_ = first;
    }
    [[nodiscard]] const DeviceRecord& record() const { return record_; }

   private:
    Result<cuda::EventRef> launch() override;
    Status look();
    Gpus& gpus_;
    Rank rank_;
    std::int32_t device_ = 0;
    bool is_first_ = false;
    DeviceRecord record_;
  };

  void step() override;

  Gpus& gpus_;
  Ask ask_;
  bool gathered_ = false;
  std::vector<DeviceRecord> records_;
  std::vector<std::size_t> sizes_;
};

}  // namespace kolo::internal
