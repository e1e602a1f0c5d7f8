// HostsReduction: what reductions over several hosts share. The ranks of a host reduce over their
// window into partials: accumulators, not rounded. These go to other hosts, where they are combined
// and finished: so the order is T over the ranks of each host, then T over hosts, and there is one
// rounding. Who is alone on its host sends its contribution instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/channel_operation.h"
#include "ops/host_map.h"
#include "ops/tensor_group.h"
#include "ops/window/peer_tensors.h"

namespace kolo::internal {

// What does not change from operation to operation; the caller's.
struct HostsView {
  const HostMap* map = nullptr;
  const ReductionOrder* local = nullptr;   // of this host's ranks
  const ReductionOrder* across = nullptr;  // of the hosts
  WindowLane* lane = nullptr;              // of this host's ranks
};

class HostsReduction : public ChannelOperation {
 protected:
  // First thing in a start(): at least two hosts. `input_place`: of a lone tensor in the arena.
  void begin_reduction(const Communicator& communicator, const HostsView& view,
                       std::span<const Piece> pieces, const Reduction& reduction,
                       std::optional<std::size_t> input_place);
  // Last thing in a start(): it takes so many tiles.
  void use(std::uint64_t tiles);

  // True if anything moved; called once this rank has entered.
  virtual bool move() = 0;
  // Whether all is done, and nobody needs anything of this rank's any more.
  [[nodiscard]] virtual bool finished() = 0;

  [[nodiscard]] const HostMap& map() const { return *view_.map; }
  [[nodiscard]] WindowLane& lane() const { return *view_.lane; }
  [[nodiscard]] int host() const { return host_; }
  [[nodiscard]] int hosts() const { return view_.map->hosts(); }
  [[nodiscard]] bool alone() const { return view_.lane->size() == 1; }
  [[nodiscard]] TensorGroup& group() { return group_; }
  [[nodiscard]] const TensorGroup& group() const { return group_; }
  [[nodiscard]] std::size_t element() const { return group_.element_size(); }
  [[nodiscard]] std::size_t widest() const;  // bytes of an element, finished or not
  [[nodiscard]] std::size_t partial_bytes(int of_host) const;  // of one element
  [[nodiscard]] std::uint64_t number(std::uint64_t tile) const { return first_tile_ + tile; }
  [[nodiscard]] const std::optional<std::size_t>& input_place() const { return input_place_; }
  // This rank packs nothing: its lone tensor lies in the arena, or nobody else of its host is
  // there.
  [[nodiscard]] bool whole_input() const { return whole_input_; }

  // Whether the contributions of this host's ranks to the tile can be read.
  [[nodiscard]] bool tiles_are_here(std::uint64_t tile);
  // Whether the partials made so far may leave: other hosts cannot see that a rank of this one has
  // given up and changed what was being read.
  [[nodiscard]] bool may_leave() const { return peers_.stand(); }
  // What local rank `local` contributes to `range`, which begins `offset` elements into the tile.
  // A lone tensor of this rank's own is read where it lies.
  [[nodiscard]] const std::byte* contribution(int local, std::uint64_t tile, Range range,
                                              std::size_t offset) const;
  // Of those of all ranks of this host.
  void make_partial(std::uint64_t tile, Range range, std::size_t offset, std::byte* partial);
  // Finishes `range`; partial_of(host) is where that host's partial lies.
  template <typename PartialOf>
  void combine(Range range, const PartialOf& partial_of, std::byte* output) {
    const auto count = static_cast<std::size_t>(hosts());
    for (std::size_t h = 0; h < count; ++h) inputs_[h] = partial_of(static_cast<int>(h));
    group_.combine(range, std::span(inputs_).first(count), partials_, output);
  }

 private:
  bool step() final;
  void abandoned() final;
  bool enter();

  HostsView view_;
  int host_ = 0;
  TensorGroup group_;
  std::optional<std::size_t> input_place_;
  bool whole_input_ = false;
  PeerTensors peers_;                    // of this host
  std::vector<unsigned char> partials_;  // by host: whether it sends partials
  std::vector<const std::byte*> inputs_;
  std::uint64_t first_tile_ = 0;
  bool entered_ = false;
};

// Rooms in staging begin on cache lines.
constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace kolo::internal
