#include "transport/inproc/inproc_channel.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "transport/inproc/wake_table.h"
#include "transport/transfer_queue.h"

namespace kolo::internal {
namespace {

// One end of a channel: what it has posted, what it has seen.
struct End {
  TransferQueue sends;            // not yet (wholly) taken by the peer
  TransferQueue taken;            // taken by the peer; this end still has to set `done`
  TransferQueue receives;         // without a message so far
  Transfer* receiving = nullptr;  // the receive that the peer's head send is flowing into
  std::size_t moved_bytes = 0;    // of the peer's head send
  bool finishing = false;         // finish() was called
  bool end_delivered = false;     // ... and the peer has seen it
  bool gone = false;              // destroyed or killed
  DroppedScopes dropped;
  Status broken;  // the error of every later advance()
  ChannelCounters counters;
};

struct Pair {
  std::mutex mutex;
  End ends[2];  // of the lower and of the higher rank
};

std::size_t pair_index(int size, int stream, int low, int high) {
  const auto n = static_cast<std::size_t>(size);
  return (static_cast<std::size_t>(stream) * n + static_cast<std::size_t>(low)) * n +
         static_cast<std::size_t>(high);
}

}  // namespace

struct InprocNetwork::Shared {
  Shared(int size_in, int streams_in, const InprocFaults& faults_in)
      : size(size_in),
        streams(streams_in),
        faults(faults_in),
        wakes(size_in),
        pairs(pair_index(size_in, streams_in, 0, 0)) {}

  Pair& pair(int stream, int a, int b) {
    return pairs[pair_index(size, stream, std::min(a, b), std::max(a, b))];
  }

  const int size;
  const int streams;
  const InprocFaults faults;
  WakeTable wakes;
  std::vector<Pair> pairs;  // those with low < high are used
};

namespace {

class InprocChannel final : public Channel {
 public:
  InprocChannel(std::shared_ptr<InprocNetwork::Shared> shared, int stream, int self, int peer)
      : shared_(std::move(shared)),
        pair_(shared_->pair(stream, self, peer)),
        mine_(pair_.ends[self < peer ? 0 : 1]),
        theirs_(pair_.ends[self < peer ? 1 : 0]),
        self_(self),
        peer_(peer),
        random_(shared_->faults.seed ^
                (pair_index(shared_->size, stream, self, peer) * 0x9e3779b97f4a7c15u)) {}

  ~InprocChannel() override {
    {
      const std::lock_guard lock(pair_.mutex);
      note_end();
      mine_.gone = true;
      forget_posted();
      if (!mine_.end_delivered) {
        break_end(theirs_, peer_lost("rank " + std::to_string(self_) +
                                     " closed its channel without taking leave"));
      }
    }
    shared_->wakes.wake(peer_);
  }

  void post_send(Transfer& send) override {
    {
      const std::lock_guard lock(pair_.mutex);
      KOLO_CHECK(!mine_.finishing && !mine_.dropped.contains(send.scope));
      send.done = false;
      mine_.sends.push(send);
    }
    shared_->wakes.wake(peer_);
  }

  void post_receive(Transfer& receive) override {
    const std::lock_guard lock(pair_.mutex);
    KOLO_CHECK(!mine_.dropped.contains(receive.scope));
    receive.done = false;
    mine_.receives.push(receive);
  }

  Status advance() override {
    bool wake_peer = false;
    bool wake_self = false;
    Status status;
    {
      const std::lock_guard lock(pair_.mutex);
      if (mine_.broken.is_ok()) {
        complete_sends();
        wake_peer = take_messages(wake_self);
      }
      status = mine_.broken;
      if (status.is_ok() && theirs_.end_delivered && mine_.receives.first != nullptr) {
        status = aborted("rank " + std::to_string(peer_) +
                         " took leave while this rank still expected data from it");
      }
    }
    if (wake_peer) shared_->wakes.wake(peer_);
    if (wake_self) shared_->wakes.wake(self_);
    return status;
  }

  void cancel() override {
    {
      const std::lock_guard lock(pair_.mutex);
      const bool half_way = mine_.receiving != nullptr || theirs_.receiving != nullptr;
      forget_posted();
      if (!half_way) return;
      break_end(mine_, aborted("the channel to rank " + std::to_string(peer_) +
                               " was cancelled in the middle of a message"));
      break_end(theirs_, peer_lost("rank " + std::to_string(self_) +
                                   " cancelled its channel in the middle of a message"));
    }
    shared_->wakes.wake(peer_);
  }

  void drop(std::uint32_t scope) override {
    {
      const std::lock_guard lock(pair_.mutex);
      complete_sends();
      const Transfer* head = mine_.sends.first;
      if (theirs_.receiving != nullptr && head != nullptr && head->scope == scope) {
        theirs_.receives.push_front(*std::exchange(theirs_.receiving, nullptr));
      }
      mine_.sends.drop(scope);
      mine_.receives.drop(scope);
      if (mine_.receiving != nullptr && mine_.receiving->scope == scope) mine_.receiving = nullptr;
      mine_.dropped.add(scope);
    }
    shared_->wakes.wake(peer_);
  }

  void finish() override {
    {
      const std::lock_guard lock(pair_.mutex);
      mine_.finishing = true;
    }
    shared_->wakes.wake(peer_);
  }

  [[nodiscard]] bool finished() const override {
    const std::lock_guard lock(pair_.mutex);
    return !mine_.broken.is_ok() || (mine_.end_delivered && theirs_.end_delivered);
  }
  [[nodiscard]] bool peer_finished() const override {
    const std::lock_guard lock(pair_.mutex);
    return theirs_.end_delivered;
  }
  [[nodiscard]] const ChannelCounters& counters() const override { return mine_.counters; }

 private:
  // All below: with the pair's mutex held.

  void complete_sends() {
    while (mine_.taken.first != nullptr) {
      Transfer* send = mine_.taken.pop();
      mine_.counters.bytes_sent += send->bytes;
      ++mine_.counters.messages_sent;
      send->done = true;
    }
  }

  // The peer's end has arrived once nothing is left in front of it.
  bool note_end() {
    if (!theirs_.finishing || theirs_.end_delivered || theirs_.sends.first != nullptr) return false;
    theirs_.end_delivered = true;
    return true;
  }

  // Moves what the fault plan allows; true if the peer has something to see.
  bool take_messages(bool& wake_self) {
    const InprocFaults& faults = shared_->faults;
    if (faults.stall_percent > 0 && random_.next() % 100 < faults.stall_percent) {
      wake_self = true;  // nobody else would tell this rank to come again
      return false;
    }
    std::size_t budget = SIZE_MAX;
    if (faults.max_move_bytes > 0) budget = 1 + random_.next() % faults.max_move_bytes;
    bool moved = false;
    while (mine_.broken.is_ok() && theirs_.sends.first != nullptr) {
      if (mine_.dropped.contains(theirs_.sends.first->scope)) {
        theirs_.taken.push(*theirs_.sends.pop());
        moved = true;
        continue;
      }
      if (!match_head()) break;
      const std::size_t before = budget;
      const bool complete = move_head(budget);
      moved = moved || complete || budget != before;
      if (!complete) {
        wake_self = true;
        break;
      }
    }
    moved = note_end() || moved;
    if (theirs_.gone && mine_.broken.is_ok() && mine_.sends.first != nullptr) {
      mine_.broken = peer_lost("rank " + std::to_string(peer_) + " has left; nothing can be sent");
    }
    return moved;
  }

  // Finds the receive for the peer's first message, if it has none yet.
  bool match_head() {
    if (mine_.receiving != nullptr) return true;
    const Transfer& send = *theirs_.sends.first;
    mine_.receiving = mine_.receives.take(send.scope, send.tag);
    if (mine_.receiving == nullptr) return false;
    mine_.moved_bytes = 0;
    if (mine_.receiving->bytes == send.bytes) return true;
    const std::string sizes = std::to_string(send.bytes) + " bytes where " +
                              std::to_string(mine_.receiving->bytes) + " were expected";
    break_end(mine_, Status(StatusCode::kInternal,
                            "rank " + std::to_string(peer_) + " sent a message of " + sizes));
    break_end(theirs_,
              peer_lost("rank " + std::to_string(self_) + " refused a message of " + sizes));
    return false;
  }

  // True when the message is complete.
  bool move_head(std::size_t& budget) {
    const Transfer& send = *theirs_.sends.first;
    const std::size_t bytes = std::min(budget, send.bytes - mine_.moved_bytes);
    if (bytes > 0) {
      std::memcpy(mine_.receiving->data + mine_.moved_bytes, send.data + mine_.moved_bytes, bytes);
    }
    mine_.moved_bytes += bytes;
    budget -= bytes;
    mine_.counters.bytes_received += bytes;
    if (mine_.moved_bytes < send.bytes) return false;
    ++mine_.counters.messages_received;
    std::exchange(mine_.receiving, nullptr)->done = true;
    theirs_.taken.push(*theirs_.sends.pop());
    return true;
  }

  void forget_posted() {
    complete_sends();
    mine_.sends = mine_.receives = {};
    mine_.receiving = nullptr;
    theirs_.receiving = nullptr;  // what was flowing was this end's
  }

  static void break_end(End& end, const Status& status) {
    if (end.broken.is_ok()) end.broken = status;
  }

  const std::shared_ptr<InprocNetwork::Shared> shared_;
  Pair& pair_;
  End& mine_;
  End& theirs_;
  const int self_;
  const int peer_;
  InprocRandom random_;
};

}  // namespace

InprocNetwork::InprocNetwork(int size, int streams, const InprocFaults& faults)
    : shared_(std::make_shared<Shared>(size, streams, faults)) {}

InprocNetwork::~InprocNetwork() = default;

std::vector<std::vector<std::unique_ptr<Channel>>> InprocNetwork::channels(int rank) {
  std::vector<std::vector<std::unique_ptr<Channel>>> result;
  for (int stream = 0; stream < shared_->streams; ++stream) {
    std::vector<std::unique_ptr<Channel>>& row = result.emplace_back();
    for (int peer = 0; peer < shared_->size; ++peer) {
      row.push_back(peer == rank ? nullptr
                                 : std::make_unique<InprocChannel>(shared_, stream, rank, peer));
    }
  }
  return result;
}

void InprocNetwork::set_wake(int rank, std::function<void()> wake) {
  shared_->wakes.set(rank, std::move(wake));
}

void InprocNetwork::kill(int rank, const std::string& reason) {
  for (int stream = 0; stream < shared_->streams; ++stream) {
    for (int peer = 0; peer < shared_->size; ++peer) {
      if (peer == rank) continue;
      Pair& pair = shared_->pair(stream, rank, peer);
      const std::lock_guard lock(pair.mutex);
      const Status lost = peer_lost("lost rank " + std::to_string(rank) + ": " + reason);
      for (End& end : pair.ends) {
        if (end.broken.is_ok()) end.broken = lost;
      }
    }
  }
  for (int peer = 0; peer < shared_->size; ++peer) shared_->wakes.wake(peer);
}

}  // namespace kolo::internal
