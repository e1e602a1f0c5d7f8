// Collectives over several hosts that are made of simple ones, one after the other: inside each
// host over its window, between hosts over channels.
//
//   broadcast   the root to one rank of every other host; each of these to the others of its host
//   all-gather  inside each host; then host a and host b exchange their parts, by one rank of each;
//               then these spread what has come inside their host
//   all-to-all  between ranks of one host over its window, and side by side with that between all
//               others over channels, each pair by itself
//   barrier     inside each host, between the hosts' first ranks, inside each host again
// Cost: what the parts cost; they do not overlap, but for the all-to-all's.
// No deadlock: receives are posted before anything is sent, and wait for nothing.
//
// Threads: one at a time. No allocation once warm.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ops/barrier.h"
#include "ops/broadcast.h"
#include "ops/hosts/hosts_reduction.h"
#include "ops/window/window_operations.h"

namespace kolo::internal {

class StagedOperation : public Operation {
 public:
  Result<Progress> advance() final;
  // Also gives up the channels and the lane.
  void cancel() final;
  // A start that could not get its memory: every advance() returns `status`.
  void fail(Status status);

 protected:
  // First thing in a start(): forgets the last run.
  void begin(const Communicator& communicator, const HostsView& view, WindowOperations& local);
  // Starts what comes next on this rank; nothing when all is done.
  virtual Operation* next(int stage) = 0;

  [[nodiscard]] const Communicator& communicator() const { return communicator_; }
  [[nodiscard]] const HostMap& map() const { return *view_.map; }
  [[nodiscard]] int host() const { return view_.map->host(communicator_.rank); }
  [[nodiscard]] WindowOperations& local() const { return *local_; }
  // The communicator of one rank of each host, in the order of hosts: `rank_of(host)`.
  template <typename RankOf>
  Communicator across(const RankOf& rank_of);

 private:
  Communicator communicator_;
  HostsView view_;
  WindowOperations* local_ = nullptr;
  std::vector<Channel*> channels_;  // of across()
  Operation* current_ = nullptr;
  int stage_ = 0;
  Status failure_;
  bool done_ = true;
};

class HostsBroadcast final : public StagedOperation {
 public:
  void start(const Communicator& communicator, const HostsView& view, WindowOperations& local,
             int root, const void* input, void* output, std::size_t bytes);

 private:
  Operation* next(int stage) override;

  Broadcast broadcast_;
  int root_ = 0;
  const void* input_ = nullptr;
  void* output_ = nullptr;
  std::size_t bytes_ = 0;
};

class HostsBarrier final : public StagedOperation {
 public:
  void start(const Communicator& communicator, const HostsView& view, WindowOperations& local) {
    begin(communicator, view, local);
  }

 private:
  Operation* next(int stage) override;

  Barrier barrier_;
};

// Messages between ranks of different hosts, posted at once.
class Exchange final : public ChannelOperation {
 public:
  void start(const Communicator& communicator, std::size_t most_messages);
  // Before the first advance(). The sender's `number` is the receiver's.
  void send(int peer, std::size_t number, const std::byte* data, std::size_t bytes) {
    post_send(peer, next(), 0, number, data, bytes);
  }
  void receive(int peer, std::size_t number, std::byte* data, std::size_t bytes) {
    post_receive(peer, next(), 0, number, data, bytes);
  }

 private:
  bool step() override;
  Transfer& next();

  std::vector<Transfer> transfers_;
  std::size_t used_ = 0;
};

class HostsAllgather final : public StagedOperation {
 public:
  void start(const Communicator& communicator, const HostsView& view, WindowOperations& local,
             const void* input, void* output, std::span<const std::size_t> bytes);

 private:
  // Of one host's ranks that follow one another: their parts lie together.
  struct Run {
    Block block;
    int keeper = 0;  // local rank that has them
  };

  Operation* next(int stage) override;
  // The parts of this rank's host for those of the hosts that are its business.
  void exchange();

  Exchange exchange_;
  std::vector<Run> runs_;      // of the other hosts
  std::vector<Block> blocks_;  // by rank
  std::vector<Block> ours_;    // by local rank
  const void* input_ = nullptr;
  std::byte* output_ = nullptr;
};

class HostsAlltoall final : public StagedOperation {
 public:
  void start(const Communicator& communicator, const HostsView& view, WindowOperations& local,
             const void* input, void* output, std::span<const std::size_t> send_bytes,
             std::span<const std::size_t> receive_bytes);

 private:
  class SideBySide final : public Operation {
   public:
    void start(Operation& a, Operation& b);
    Result<Progress> advance() override;
    void cancel() override;

   private:
    Operation* a_ = nullptr;
    Operation* b_ = nullptr;
  };

  Operation* next(int stage) override;

  Exchange exchange_;
  SideBySide both_;
  std::vector<Block> to_;  // by rank
  std::vector<Block> from_;
  std::vector<Block> to_ours_;  // by local rank
  std::vector<Block> from_ours_;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

}  // namespace kolo::internal
