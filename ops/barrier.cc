#include "ops/barrier.h"

#include <algorithm>
#include <bit>

namespace kolo::internal {

void Barrier::start(const Communicator& communicator) {
  begin(communicator);
  rounds_ = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size() - 1)));
  sends_.assign(rounds_, Transfer{});
  receives_.assign(rounds_, Transfer{});
  round_ = 0;
  for (std::size_t k = 0; k < rounds_; ++k) {
    const int from = (rank() + size() - (1 << k)) % size();
    post_signal_receive(from, receives_[k], 0, k);
  }
  if (rounds_ > 0) send_round();
}

void Barrier::send_round() {
  post_signal_send((rank() + (1 << round_)) % size(), sends_[round_], 0, round_);
}

bool Barrier::step() {
  bool moved = false;
  while (round_ < rounds_ && receives_[round_].done) {
    moved = true;
    if (++round_ < rounds_) send_round();
  }
  if (round_ == rounds_ &&
      std::all_of(sends_.begin(), sends_.end(), [](const Transfer& send) { return send.done; })) {
    complete();
  }
  return moved;
}

}  // namespace kolo::internal
