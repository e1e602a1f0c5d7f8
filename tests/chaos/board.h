// Board: what the ranks of a trial and its director tell each other: a file that all of them map,
// so that what a killed rank said last is still there. Each cell has one writer, its rank; the rest
// is the director's. Times are of the monotonic clock, in nanoseconds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "tests/chaos/plan.h"

namespace kolo::chaos {

enum class Phase : std::int32_t {
  kNone,
  kReady,  // waits for the others to be so, too
  kInit,
  kSteps,
  kNegotiate,  // holds its tensors back
  kIdle,
  kShutdown,
  kFailed,   // has seen the failure, and looks at what comes after
  kWaiting,  // for the director's word that the victim goes on
  kLast,     // in the last shutdown after a failure
  kDone,
};
const char* word_of(Phase phase);

// Text that other processes read only once its writer is done, or dead.
struct Text {
  std::array<char, 512> characters{};
  void set(const std::string& text);
  [[nodiscard]] std::string get() const { return characters.data(); }
};

struct Cell {
  std::atomic<std::int32_t> pid;
  std::atomic<Phase> phase;
  std::atomic<std::int64_t> steps;  // complete, with the right results
  std::atomic<std::int32_t> fired;  // a call was made to fail
  std::atomic<std::int64_t> died;   // kDie: right before it did
  // The first call that failed.
  std::int32_t status;
  Phase failed_in;
  std::int64_t entered;
  std::int64_t failed;
  Text error;
  // What came after it.
  std::int64_t pending_ended;  // when the last operation in flight had ended
  std::int64_t later_ns;       // the longest later call
  std::int32_t shutdown_status;
  std::int64_t shutdown_ns;
  Text complaint;  // what this rank itself found wrong; empty: nothing
};

struct Board {
  Plan plan;
  std::atomic<std::int64_t> fault_began;  // right before it was done
  std::atomic<std::int64_t> fault_ended;  // right after
  std::atomic<std::int64_t> resumed;      // the victim goes on
  std::atomic<bool> finish;               // end the steps
  std::array<Cell, kMostRanks> cells;
};

// The mapping of a file; throws std::runtime_error.
class BoardFile {
 public:
  static BoardFile create(const std::string& path);
  static BoardFile open(const std::string& path);
  BoardFile(BoardFile&& other) noexcept;
  BoardFile& operator=(BoardFile&&) = delete;
  ~BoardFile();

  Board* operator->() const { return board_; }
  Board& operator*() const { return *board_; }

 private:
  explicit BoardFile(Board* board) : board_(board) {}
  static BoardFile map(const std::string& path, int flags);
  Board* board_;
};

std::int64_t monotonic_ns();
void sleep_us(std::int64_t us);

}  // namespace kolo::chaos
