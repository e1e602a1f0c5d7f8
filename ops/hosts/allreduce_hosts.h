// All-reduce over several hosts whose ranks share windows: reduce-scatter inside each host, one
// exchange for each slice between its owners, all-gather inside each host; tile by tile, several of
// them under way, so that all three go on at once.
//
// A tile is cut in as many slices as the largest host has ranks; on each host the ranks own them in
// turn, however many they are. A slice is cut in one share for each host.
//   1. pack a tile into the lane's ring (packing publishes; not needed for a tensor in the arena,
//      nor where a rank is alone on its host)
//   2. reduce each own slice over the host's ranks into a partial: accumulators, not rounded. Send
//      the others' shares of it to its owners on their hosts. Who is alone sends its contribution.
//   3. when every host's partial of the own share is here, combine them over the hosts, finish, and
//      send the result to the slice's other owners; theirs come right into the ring of results
//   4. when all owners on this host have their slices, pull them into the outputs
// Small totals: every owner gets whole partials in step 2 and finishes the slice alone.
//
// The order: T over the ranks of each host, then T over hosts; one rounding: the canonical one.
// Cost: 2 steps inside a host and 2 between hosts (1 if small). Over the wire a slice goes
// (M-1)/M times as partials, and (M-1)/M times as results. Staging: kTiles tiles of partials twice.
//
// No deadlock. A rank begins tile t when all ranks of its host have pulled t - kTiles, and then
// posts every receive of the tile; each has memory of its own. Let m be the oldest tile that some
// rank anywhere has not pulled. Everybody has begun m, or can. A stream is held up only by a
// message of a tile that its receiver has not begun, so of m + kTiles or later; its sender has
// begun that one, hence pulled m, with all its messages of m in front. So all messages of m flow.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/hosts/hosts_reduction.h"

namespace kolo::internal {

class AllreduceHosts final : public HostsReduction {
 public:
  // `input_place`: of a lone tensor in the arena. At least two hosts.
  void start(const Communicator& communicator, const HostsView& view, std::span<const Piece> pieces,
             const Reduction& reduction, std::optional<std::size_t> input_place);

 private:
  // The transfers of one own slice of a tile under way with one other host.
  struct Exchange {
    Transfer part_send, part_receive, result_send, result_receive;
  };

  bool move() override;
  bool finished() override;
  void reset_exchanges();
  bool begin_tiles();
  void post_receives(std::uint64_t tile, std::size_t place);
  bool pack_tile();
  bool reduce_local();
  void send_parts(std::uint64_t tile, std::size_t place);
  bool combine_next();
  bool publish_results();
  bool pull();

  [[nodiscard]] Range tile_range(std::uint64_t tile) const;
  [[nodiscard]] Range slice(std::uint64_t tile, int index) const;
  [[nodiscard]] Range share(std::uint64_t tile, int index, int of_host) const;
  [[nodiscard]] int slice_index(std::size_t place) const;  // of an own one
  [[nodiscard]] std::size_t segment(std::uint64_t tile, int index) const;
  [[nodiscard]] Exchange& exchange(std::uint64_t tile, std::size_t place, int of_host);
  [[nodiscard]] bool all_done(std::uint64_t tile, Transfer Exchange::*which);
  [[nodiscard]] std::byte* staged(std::uint64_t tile, std::size_t place, int of_host) const;
  [[nodiscard]] const std::byte* own_partial(std::uint64_t tile, std::size_t place) const;
  [[nodiscard]] std::byte* result(std::uint64_t tile, Range range) const;
  [[nodiscard]] std::size_t offset_in(std::uint64_t tile, Range range) const {  // in elements
    return range.begin - tile_range(tile).begin;
  }

  int slices_ = 1;         // of a tile
  std::size_t owned_ = 1;  // slices of a tile that are this rank's
  bool small_ = false;
  std::vector<Exchange> exchanges_;  // [tiles under way][own slices][hosts]
  Staging staging_;
  std::byte* stage_ = nullptr;
  std::size_t slice_bytes_ = 0;  // room for a partial of a slice
  std::size_t share_bytes_ = 0;
  std::size_t tile_elements_ = 0;
  std::uint64_t tiles_ = 0;
  std::uint64_t begun_ = 0;  // tiles whose receives are posted
  std::uint64_t packed_ = 0;
  std::uint64_t reduced_ = 0;   // tiles whose own slices are partials, and sent
  std::uint64_t combined_ = 0;  // own slices, of all tiles
  std::uint64_t whole_ = 0;     // tiles whose own slices are results
  std::uint64_t pulled_ = 0;
};

}  // namespace kolo::internal
