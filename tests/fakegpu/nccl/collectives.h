// Runs the operations of one launch on the stream's thread: the collectives in order, each when all
// ranks have come, then all sends and receives together.
//
//   1. every rank shows what it is about to do; one step; all compare (a difference is a misuse)
//   2. per chunk of the slot: write the input, one step, make the output from all slots, one step
//   Cost: 1 + 2 * ceil(bytes / slot) steps.
//
// Threads: the stream's. Ownership: borrows everything.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/fakegpu/machine.h"
#include "tests/fakegpu/nccl/meeting.h"
#include "tests/fakegpu/nccl/operation.h"

namespace fakegpu {

class Launch {
 public:
  using Report = std::function<void(int error, const std::string& why)>;

  // `stop` ends what is stuck; `report` makes an error of the communicator visible.
  Launch(Machine& m, Meeting& meeting, Access& access, Meeting::Stop stop, Report report)
      : machine_(m),
        meeting_(meeting),
        access_(access),
        stop_(std::move(stop)),
        report_(std::move(report)) {}

  void run(const std::vector<Operation>& operations);

 private:
  struct Transfer;

  // False: stopped, or the operation cannot go on.
  bool begin(const Operation& operation);
  bool collective(const Operation& operation);
  bool agree(const Operation& operation);
  bool exchange(const Operation& operation, const std::byte* input, std::byte* output);
  void fill_slot(const Operation& operation, const std::byte* input, std::size_t offset,
                 std::size_t length);
  void empty_slots(const Operation& operation, std::byte* output, std::size_t offset,
                   std::size_t length);
  void weigh(const Operation& operation, std::byte* data, std::size_t count);
  bool transfers(const std::vector<Operation>& operations);
  bool advance(Transfer& transfer);
  void wait_for_stop();

  Machine& machine_;
  Meeting& meeting_;
  Access& access_;
  const Meeting::Stop stop_;
  const Report report_;
};

}  // namespace fakegpu
