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

#include "ops/collectives.h"
#include "tests/conformance/mesh.h"

namespace kolo::internal {

class CollectiveJob {
 public:
  CollectiveJob(std::vector<int> host_index, std::uint64_t seed)
      : host_index_(std::move(host_index)),
        order_(host_index_),
        random_(seed),
        sequences_(host_index_.size(), 0xfffffff0u),  // runs over on the way
        sizes_(host_index_.size()) {}
  virtual ~CollectiveJob() = default;

  [[nodiscard]] int size() const { return static_cast<int>(host_index_.size()); }
  [[nodiscard]] const std::vector<int>& host_index() const { return host_index_; }
  [[nodiscard]] const ReductionOrder& order() const { return order_; }
  std::mt19937_64& random() { return random_; }

  // Every rank starts the same operations in the same order; one is in progress at a time. The
  // algorithm is for roads that can be asked for one.
  virtual Collectives& collectives(std::size_t rank, Algorithm algorithm) = 0;
  std::uint32_t next_sequence(std::size_t rank) { return ++sequences_[rank]; }

  Operation& allreduce(std::size_t rank, Algorithm algorithm, std::span<const Piece> pieces,
                       const Reduction& reduction) {
    return collectives(rank, algorithm).start_allreduce(next_sequence(rank), pieces, reduction);
  }
  Operation& reduce_scatter(std::size_t rank, Algorithm algorithm, const Piece& piece,
                            std::span<const std::size_t> counts, const Reduction& reduction) {
    return collectives(rank, algorithm)
        .start_reduce_scatter(next_sequence(rank), piece, counts, reduction);
  }
  Operation& allgather(std::size_t rank, Algorithm algorithm, const void* input, void* output,
                       std::span<const std::size_t> bytes) {
    return collectives(rank, algorithm).start_allgather(next_sequence(rank), input, output, bytes);
  }
  Operation& allgather(std::size_t rank, const void* input, void* output, std::size_t bytes) {
    sizes_[rank].assign(sequences_.size(), bytes);
    return allgather(rank, Algorithm::kDirect, input, output, sizes_[rank]);
  }
  Operation& alltoall(std::size_t rank, const void* input, void* output,
                      std::span<const std::size_t> send_bytes,
                      std::span<const std::size_t> receive_bytes) {
    return collectives(rank, Algorithm::kDirect)
        .start_alltoall(next_sequence(rank), input, output, send_bytes, receive_bytes);
  }
  Operation& broadcast(std::size_t rank, int root, std::span<const BroadcastPiece> pieces) {
    return collectives(rank, Algorithm::kDirect).start_broadcast(next_sequence(rank), root, pieces);
  }
  Operation& broadcast(std::size_t rank, int root, const void* input, void* output,
                       std::size_t bytes) {
    const BroadcastPiece piece{input, output, bytes};
    return broadcast(rank, root, {&piece, 1});
  }
  Operation& barrier(std::size_t rank) {
    return collectives(rank, Algorithm::kDirect).start_barrier(next_sequence(rank));
  }

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
  std::vector<std::uint32_t> sequences_;         // by rank, each used by its own thread
  std::vector<std::vector<std::size_t>> sizes_;  // the same
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
      : CollectiveJob(hosts, seed), mesh_(road.make(size(), seed)) {
    for (auto& row : mesh_.rows) {
      std::vector<Channel*>& channels = channels_.emplace_back();
      for (auto& channel : row) channels.push_back(channel.get());
    }
    for (int r = 0; r < size(); ++r) {
      const Communicator communicator{.rank = r,
                                      .size = size(),
                                      .channels = channels_[static_cast<std::size_t>(r)],
                                      .order = &order()};
      auto& of_rank = collectives_.emplace_back();
      for (AlgorithmChoice choice :
           {AlgorithmChoice::kOneshot, AlgorithmChoice::kDirect, AlgorithmChoice::kRing}) {
        of_rank.push_back(std::make_unique<ChannelCollectives>(communicator, choice));
      }
    }
  }

  Collectives& collectives(std::size_t rank, Algorithm algorithm) override {
    return *collectives_[rank][static_cast<std::size_t>(algorithm)];
  }
  void idle(std::size_t) override { mesh_.idle(); }
  // From here on the rank is dead; its own operation then is one that ends at once.
  Operation& lose(std::size_t rank) {
    for (auto& channel : mesh_.rows[rank]) channel.reset();
    return dead_.start_barrier(0);
  }

 private:
  Mesh mesh_;
  std::vector<std::vector<Channel*>> channels_;
  // [rank][algorithm], over the same channels
  std::vector<std::vector<std::unique_ptr<ChannelCollectives>>> collectives_;
  ChannelCollectives dead_{{}, AlgorithmChoice::kAuto};
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
