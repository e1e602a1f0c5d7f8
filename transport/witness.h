// Witness: how the ranks of one host see at once that one of them has died, and what had happened
// to it before. Destroying a witness is no death.
//
// Threads: leave_word() by one at a time; the rest by any.
#pragma once

#include <cstdint>

namespace kolo::internal {

class Witness {
 public:
  Witness() = default;
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  virtual ~Witness() = default;

  // A descriptor to watch edge-triggered for reading: a death strikes it. Nobody needs to read it.
  [[nodiscard]] virtual int bell() const = 0;
  // A rank (by its place among those of the host) whose process has died, or -1. A few loads: fit
  // for a waiting loop.
  [[nodiscard]] virtual int lost() const = 0;
  // Whether `peer` is one.
  [[nodiscard]] virtual bool is_lost(int peer) const = 0;

  // What this rank has to say to those who find it dead. The first word stays; not 0.
  virtual void leave_word(std::uint64_t word) = 0;
  // 0: none. Asked after is_lost(), it is final.
  [[nodiscard]] virtual std::uint64_t word_left_by(int peer) const = 0;
};

}  // namespace kolo::internal
