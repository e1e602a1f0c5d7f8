// Collectives over several hosts that are made of simple ones, one after the other: inside each
// host over its window, between hosts over channels.
//
//   broadcast   the root to one rank of every other host; each of these to the others of its host
//   all-gather  inside each host; then host a and host b exchange their parts, by one rank of each;
//               then these spread what has come inside their host
//   barrier     inside each host, between the hosts' first ranks, inside each host again
// Cost: what the parts cost; they do not overlap.
//
// Threads: one at a time. No allocation once warm.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ops/barrier.h"
#include "ops/broadcast.h"
#include "ops/hosts/allreduce_hosts.h"
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

class HostsAllgather final : public StagedOperation {
 public:
  void start(const Communicator& communicator, const HostsView& view, WindowOperations& local,
             const void* input, void* output, std::span<const std::size_t> bytes);

 private:
  // Exchanges the parts of this rank's host with those of the hosts that are its business.
  class Exchange final : public ChannelOperation {
   public:
    void start(const Communicator& communicator, const HostMap& map, std::byte* output,
               std::span<const Block> blocks);

   private:
    bool step() override;
    std::vector<Transfer> transfers_;
  };
  // Of one host's ranks that follow one another: their parts lie together.
  struct Run {
    Block block;
    int keeper = 0;  // local rank that has them
  };

  Operation* next(int stage) override;

  Exchange exchange_;
  std::vector<Run> runs_;      // of the other hosts
  std::vector<Block> blocks_;  // by rank
  std::vector<Block> ours_;    // by local rank
  const void* input_ = nullptr;
  std::byte* output_ = nullptr;
};

}  // namespace kolo::internal
