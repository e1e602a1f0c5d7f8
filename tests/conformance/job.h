// CollectiveJob: the ranks of one job in this process and what each starts its collectives with,
// whatever road they take. The factory of them is what a conformance suite of collectives is given.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/operation_set.h"
#include "tests/conformance/mesh.h"

namespace kolo::internal {

class CollectiveJob {
 public:
  CollectiveJob(std::vector<int> host_index, std::uint64_t seed)
      : host_index_(std::move(host_index)), order_(host_index_), random_(seed) {}
  virtual ~CollectiveJob() = default;

  [[nodiscard]] int size() const { return static_cast<int>(host_index_.size()); }
  [[nodiscard]] const std::vector<int>& host_index() const { return host_index_; }
  [[nodiscard]] const ReductionOrder& order() const { return order_; }
  std::mt19937_64& random() { return random_; }

  // Every rank starts the same ones in the same order; one is in progress at a time.
  virtual Operation& allreduce(std::size_t rank, Algorithm algorithm, std::span<const Piece> pieces,
                               DataType dtype, ReduceOp op) = 0;
  virtual Operation& allgather(std::size_t rank, const void* input, void* output,
                               std::size_t bytes) = 0;
  virtual Operation& broadcast(std::size_t rank, int root, const void* input, void* output,
                               std::size_t bytes) = 0;
  virtual Operation& barrier(std::size_t rank) = 0;

  // Memory for a tensor of `rank`, at any alignment, until release().
  virtual std::byte* memory(std::size_t, std::size_t bytes) {
    heap_.push_back(std::make_unique<std::byte[]>(bytes + kAlignments));
    return heap_.back().get() + random_() % kAlignments;
  }
  virtual void release() { heap_.clear(); }
  // Called when an operation of `rank` is blocked, by the thread that drives it.
  virtual void idle(std::size_t) { std::this_thread::yield(); }

 protected:
  static constexpr std::size_t kAlignments = 64;

 private:
  std::vector<int> host_index_;
  ReductionOrder order_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<std::byte[]>> heap_;
};

struct CollectiveRoad {
  std::string name;
  std::function<std::unique_ptr<CollectiveJob>(const std::vector<int>& host_index,
                                               std::uint64_t seed)>
      make;
  std::vector<Algorithm> algorithms;  // that it can be asked for
  // Host layouts of n ranks that it serves; none if it does not serve so many.
  std::function<std::vector<std::vector<int>>(int n)> layouts;
  bool sampled = false;  // a slow road: of the many small cases a random part
  bool threads = false;  // a thread for every rank
};

inline void PrintTo(const CollectiveRoad& road, std::ostream* out) { *out << road.name; }

inline std::vector<int> one_host(int n) { return std::vector<int>(static_cast<std::size_t>(n), 0); }

// One host; blocks of two; one rank apart and the rest.
inline std::vector<std::vector<int>> layouts_for_channels(int n) {
  std::vector<int> pairs = one_host(n), apart = one_host(n);
  for (int r = 0; r < n; ++r) {
    pairs[static_cast<std::size_t>(r)] = r / 2;
    apart[static_cast<std::size_t>(r)] = r == 0 ? 0 : 1;
  }
  if (n == 1) return {one_host(n)};
  return n == 2 ? std::vector{one_host(n), apart} : std::vector{one_host(n), pairs, apart};
}

// Ranks that have nothing but channels.
class ChannelJob final : public CollectiveJob {
 public:
  ChannelJob(const Road& road, const std::vector<int>& hosts, std::uint64_t seed)
      : CollectiveJob(hosts, seed),
        mesh_(road.make(size(), seed)),
        sets_(hosts.size()),
        sequences_(hosts.size(), 0xfffffff0u) {
    for (auto& row : mesh_.rows) {
      std::vector<Channel*>& channels = channels_.emplace_back();
      for (auto& channel : row) channels.push_back(channel.get());
    }
  }

  Operation& allreduce(std::size_t rank, Algorithm algorithm, std::span<const Piece> pieces,
                       DataType dtype, ReduceOp op) override {
    return sets_[rank].start_allreduce(algorithm, communicator(rank), pieces, {dtype, op});
  }
  Operation& allgather(std::size_t rank, const void* input, void* output,
                       std::size_t bytes) override {
    return sets_[rank].start_allgather(communicator(rank), input, output, bytes);
  }
  Operation& broadcast(std::size_t rank, int root, const void* input, void* output,
                       std::size_t bytes) override {
    return sets_[rank].start_broadcast(communicator(rank), root, input, output, bytes);
  }
  Operation& barrier(std::size_t rank) override {
    return sets_[rank].start_barrier(communicator(rank));
  }
  void idle(std::size_t) override { mesh_.idle(); }
  // From here on the rank is dead; its own operation then is one that ends at once.
  Operation& lose(std::size_t rank) {
    for (auto& channel : mesh_.rows[rank]) channel.reset();
    return sets_[rank].start_barrier({});
  }

 private:
  Communicator communicator(std::size_t r) {
    return {.rank = static_cast<int>(r),
            .size = size(),
            .channels = channels_[r],
            .order = &order(),
            .sequence = ++sequences_[r]};  // runs over on the way
  }

  Mesh mesh_;
  std::vector<OperationSet> sets_;
  std::vector<std::uint32_t> sequences_;
  std::vector<std::vector<Channel*>> channels_;
};

inline CollectiveRoad over_channels(const Road& road) {
  return {.name = road.name,
          .make =
              [road](const std::vector<int>& hosts, std::uint64_t seed) {
                return std::make_unique<ChannelJob>(road, hosts, seed);
              },
          .algorithms = {Algorithm::kOneshot, Algorithm::kDirect, Algorithm::kRing},
          .layouts = layouts_for_channels,
          .sampled = road.sampled};
}

}  // namespace kolo::internal
