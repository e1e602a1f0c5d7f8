#include "ops/hosts/reduce_scatter_hosts.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {

void ReduceScatterHosts::start(const Communicator& communicator, const HostsView& view,
                               const Piece& piece, std::span<const std::size_t> counts,
                               const Reduction& reduction, std::optional<std::size_t> input_place) {
  begin_reduction(communicator, view, {&piece, 1}, reduction, input_place);
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size()));
  cut_.cut(counts, WindowLane::kTileBytes / element());
  KOLO_CHECK(cut_.elements() == piece.count);
  cares_.clear();
  for (int of_rank = 0; of_rank < size(); ++of_rank) {
    if (map().host(of_rank) != host() && is_own_care(of_rank)) cares_.push_back(of_rank);
  }
  lay_out_staging();
  sends_.assign(WindowLane::kTiles * cares_.size(), Transfer{.done = true});
  receives_.assign(WindowLane::kTiles * static_cast<std::size_t>(hosts()), Transfer{.done = true});
  packed_ = whole_input() ? cut_.tiles() : 0;
  begun_ = reduced_ = combined_ = 0;
  use(cut_.tiles());
}

// The largest part of a block is the first.
void ReduceScatterHosts::lay_out_staging() {
  const auto room = [&](int of_rank) {
    return cut_.tiles() == 0 ? 0 : whole_lines(cut_.part(of_rank, 0).count * widest());
  };
  part_bytes_ = room(rank());
  slot_bytes_ = part_bytes_ * static_cast<std::size_t>(hosts());
  care_places_.clear();
  for (int of_rank : cares_) {
    care_places_.push_back(slot_bytes_);
    if (!alone()) slot_bytes_ += room(of_rank);
  }
  const std::uint64_t under_way = std::min<std::uint64_t>(cut_.tiles(), WindowLane::kTiles);
  stage_ = staging_.reserve(static_cast<std::size_t>(under_way) * slot_bytes_);
}

bool ReduceScatterHosts::is_own_care(int of_rank) const {
  return map().owner(host(), map().local(of_rank)) == rank();
}

bool ReduceScatterHosts::all_sent(std::uint64_t tile) {
  for (std::size_t care = 0; care < cares_.size(); ++care) {
    if (!send(tile, care).done) return false;
  }
  return true;
}

std::byte* ReduceScatterHosts::staged(std::uint64_t tile, int of_host) const {
  return stage_ + slot(tile) * slot_bytes_ + static_cast<std::size_t>(of_host) * part_bytes_;
}

bool ReduceScatterHosts::begin_tiles() {
  bool moved = false;
  while (begun_ < cut_.tiles() && begun_ < combined_ + WindowLane::kTiles && all_sent(begun_)) {
    const std::size_t count = cut_.part(rank(), begun_).count;
    for (int h = 0; h < hosts(); ++h) {
      if (h == host()) continue;
      post_receive(map().owner(h, map().local(rank())), receive(begun_, h), 0,
                   static_cast<std::size_t>(begun_), staged(begun_, h), count * partial_bytes(h));
    }
    ++begun_;
    moved = true;
  }
  return moved;
}

bool ReduceScatterHosts::pack_tile() {
  if (packed_ == cut_.tiles() || !lane().free(WindowLane::kTaken, number(packed_))) return false;
  for (int of_rank = 0; of_rank < size(); ++of_rank) {
    // This rank reads its own tensor where it lies, the others what is their care.
    if (is_own_care(of_rank)) continue;
    lane().pack(group(), cut_.part(of_rank, packed_),
                lane().tile(number(packed_)) + cut_.offset(of_rank) * element());
  }
  lane().publish(WindowLane::kPacked, number(++packed_));
  return true;
}

bool ReduceScatterHosts::reduce_local() {
  if (reduced_ == std::min(begun_, packed_) || !tiles_are_here(reduced_)) return false;
  const auto partial_of = [&](std::size_t care) {
    return stage_ + slot(reduced_) * slot_bytes_ + care_places_[care];
  };
  if (!alone()) {
    make_partial(reduced_, cut_.part(rank(), reduced_), cut_.offset(rank()),
                 staged(reduced_, host()));
    for (std::size_t care = 0; care < cares_.size(); ++care) {
      make_partial(reduced_, cut_.part(cares_[care], reduced_), cut_.offset(cares_[care]),
                   partial_of(care));
    }
  }
  if (!may_leave()) return false;
  for (std::size_t care = 0; care < cares_.size(); ++care) {
    const Range part = cut_.part(cares_[care], reduced_);
    post_send(cares_[care], send(reduced_, care), 0, static_cast<std::size_t>(reduced_),
              alone() ? group().input(part.begin) : partial_of(care),
              part.count * partial_bytes(host()));
  }
  lane().publish(WindowLane::kTaken, number(++reduced_));
  return true;
}

bool ReduceScatterHosts::combine_next() {
  if (combined_ == reduced_) return false;
  for (int h = 0; h < hosts(); ++h) {
    if (!receive(combined_, h).done) return false;
  }
  const Range part = cut_.part(rank(), combined_);
  combine(
      part,
      [&](int h) -> const std::byte* {
        return h == host() && alone() ? group().input(part.begin) : staged(combined_, h);
      },
      group().output(part.begin - cut_.block(rank()).begin));
  ++combined_;
  return true;
}

bool ReduceScatterHosts::finished() {
  if (combined_ != cut_.tiles()) return false;
  for (const Transfer& transfer : sends_) {
    if (!transfer.done) return false;
  }
  return !input_place() || lane().all_reached(WindowLane::kTaken, number(cut_.tiles()));
}

bool ReduceScatterHosts::move() {
  const bool moved = begin_tiles();
  return combine_next() || reduce_local() || pack_tile() || moved;
}

}  // namespace kolo::internal
