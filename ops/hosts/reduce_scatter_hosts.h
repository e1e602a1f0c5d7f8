// Reduce-scatter over several hosts whose ranks share windows: one reduction inside each host, then
// one message from every other host to each rank; tile by tile, several of them under way.
//
// A tile holds a like part of every rank's block. On each host, of a block that belongs to a rank
// elsewhere one rank takes care, in turn; of those of the host's ranks each rank itself.
//   1. pack what others of the host take care of into the lane's ring (packing publishes; not
//      needed for a tensor in the arena, nor where a rank is alone on its host)
//   2. reduce each part that is one's own care over the host's ranks into a partial: accumulators,
//      not rounded. Send the others' to whom they belong. Who is alone sends its contribution.
//   3. when every host's partial of the own part is here, combine them over the hosts, and finish
//      them into the output
//
// The order: T over the ranks of each host, then T over hosts; one rounding: the canonical one.
// Cost: 1 step inside a host and 1 between. A host sends (M-1)/M of the tensor over the wire, as
// partials. Staging: kTiles tiles of partials.
//
// No deadlock. A rank begins tile t when it has finished its part of t - kTiles and its messages of
// that tile are gone, and then posts every receive of the tile; each has memory of its own. Let m
// be the oldest tile of which some rank has not combined, sent and seen off everything. Everybody
// can begin m: what is still on the way of older tiles has its receive. All words kTaken have
// reached m, so all have room to pack m, and reduce it. Between two ranks messages go in the order
// of tiles, so all messages of m flow.
//
// In place nothing is overwritten while it is needed: a rank's block of its own input is read by
// that rank alone, before or while it is replaced. A rank with its tensor in the arena is done when
// all of its host have reduced everything.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/block_tiles.h"
#include "ops/hosts/hosts_reduction.h"

namespace kolo::internal {

class ReduceScatterHosts final : public HostsReduction {
 public:
  // `piece`: the whole input, and this rank's block as output. `counts`: by rank. At least two
  // hosts.
  void start(const Communicator& communicator, const HostsView& view, const Piece& piece,
             std::span<const std::size_t> counts, const Reduction& reduction,
             std::optional<std::size_t> input_place);

 private:
  bool move() override;
  bool finished() override;
  void lay_out_staging();
  bool begin_tiles();
  bool pack_tile();
  bool reduce_local();
  bool combine_next();

  [[nodiscard]] bool is_own_care(int of_rank) const;
  [[nodiscard]] static std::size_t slot(std::uint64_t tile) {
    return static_cast<std::size_t>(tile % WindowLane::kTiles);
  }
  [[nodiscard]] Transfer& send(std::uint64_t tile, std::size_t care) {
    return sends_[slot(tile) * cares_.size() + care];
  }
  [[nodiscard]] Transfer& receive(std::uint64_t tile, int from_host) {
    return receives_[slot(tile) * static_cast<std::size_t>(hosts()) +
                     static_cast<std::size_t>(from_host)];
  }
  [[nodiscard]] bool all_sent(std::uint64_t tile);
  // Where the partial of the own part is received from a host, or made for this one.
  [[nodiscard]] std::byte* staged(std::uint64_t tile, int of_host) const;

  BlockTiles cut_;
  std::vector<int> cares_;  // ranks of other hosts of whose blocks this one takes care
  std::vector<std::size_t> care_places_;  // of their partials in a slot of the staging
  std::vector<Transfer> sends_;           // [tiles under way][cares]
  std::vector<Transfer> receives_;        // [tiles under way][hosts]
  Staging staging_;
  std::byte* stage_ = nullptr;
  std::size_t slot_bytes_ = 0;
  std::size_t part_bytes_ = 0;  // room for a partial of the own part
  std::uint64_t begun_ = 0;     // tiles whose receives are posted
  std::uint64_t packed_ = 0;
  std::uint64_t reduced_ = 0;  // tiles whose partials are made, and sent
  std::uint64_t combined_ = 0;
};

}  // namespace kolo::internal
