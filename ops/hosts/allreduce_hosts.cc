#include "ops/hosts/allreduce_hosts.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr std::uint32_t kParts = 0;
constexpr std::uint32_t kResults = 1;

// Up to here a second step between hosts costs more than sending whole partials to everybody.
constexpr std::size_t kSmallSentBytes = std::size_t{32} << 10;

}  // namespace

void AllreduceHosts::start(const Communicator& communicator, const HostsView& view,
                           std::span<const Piece> pieces, const Reduction& reduction,
                           std::optional<std::size_t> input_place) {
  begin_reduction(communicator, view, pieces, reduction, input_place);
  tile_elements_ = WindowLane::kTileBytes / element();
  tiles_ = segment_count(group().elements(), tile_elements_);
  slices_ = map().max_local_size();
  owned_ = segment_count(static_cast<std::size_t>(slices_ - lane().rank()),
                         static_cast<std::size_t>(lane().size()));
  small_ =
      group().elements() * element() <= kSmallSentBytes / static_cast<std::size_t>(hosts() - 1);
  reset_exchanges();
  packed_ = whole_input() ? tiles_ : 0;
  begun_ = reduced_ = combined_ = whole_ = pulled_ = 0;
  use(tiles_);
}

// The largest tile, slice and share are the first.
void AllreduceHosts::reset_exchanges() {
  const std::size_t under_way =
      static_cast<std::size_t>(std::min<std::uint64_t>(tiles_, WindowLane::kTiles));
  slice_bytes_ = whole_lines(slice(0, 0).count * widest());
  share_bytes_ = whole_lines(share(0, 0, 0).count * widest());
  stage_ = staging_.reserve(under_way * owned_ *
                            (slice_bytes_ + static_cast<std::size_t>(hosts()) * share_bytes_));
  constexpr Transfer kIdle{.done = true};
  exchanges_.assign(WindowLane::kTiles * owned_ * static_cast<std::size_t>(hosts()),
                    {kIdle, kIdle, kIdle, kIdle});
}

Range AllreduceHosts::tile_range(std::uint64_t tile) const {
  return segment_of({0, group().elements()}, tile_elements_, static_cast<std::size_t>(tile));
}

Range AllreduceHosts::slice(std::uint64_t tile, int index) const {
  return line_slice(tile_range(tile), kCacheLineBytes / element(),
                    static_cast<std::size_t>(slices_), static_cast<std::size_t>(index));
}

// Of slice `index`, what the owner on `of_host` finishes.
Range AllreduceHosts::share(std::uint64_t tile, int index, int of_host) const {
  const Range whole = slice(tile, index);
  if (small_) return whole;
  return line_slice(whole, kCacheLineBytes / element(), static_cast<std::size_t>(hosts()),
                    static_cast<std::size_t>(of_host));
}

int AllreduceHosts::slice_index(std::size_t place) const {
  return lane().rank() + static_cast<int>(place) * lane().size();
}

// The number of a slice in the tags of its messages.
std::size_t AllreduceHosts::segment(std::uint64_t tile, int index) const {
  return static_cast<std::size_t>(tile) * static_cast<std::size_t>(slices_) +
         static_cast<std::size_t>(index);
}

AllreduceHosts::Exchange& AllreduceHosts::exchange(std::uint64_t tile, std::size_t place,
                                                   int of_host) {
  const auto slot = static_cast<std::size_t>(tile % WindowLane::kTiles);
  return exchanges_[(slot * owned_ + place) * static_cast<std::size_t>(hosts()) +
                    static_cast<std::size_t>(of_host)];
}

bool AllreduceHosts::all_done(std::uint64_t tile, Transfer Exchange::*which) {
  for (std::size_t place = 0; place < owned_; ++place) {
    for (int h = 0; h < hosts(); ++h) {
      if (!(exchange(tile, place, h).*which).done) return false;
    }
  }
  return true;
}

// Where the partial of another host's ranks is received; for this host, where its own is made.
std::byte* AllreduceHosts::staged(std::uint64_t tile, std::size_t place, int of_host) const {
  const auto slot = static_cast<std::size_t>(tile % WindowLane::kTiles);
  std::byte* of_slice =
      stage_ +
      (slot * owned_ + place) * (slice_bytes_ + static_cast<std::size_t>(hosts()) * share_bytes_);
  if (of_host == host()) return of_slice;
  return of_slice + slice_bytes_ + static_cast<std::size_t>(of_host) * share_bytes_;
}

std::byte* AllreduceHosts::result(std::uint64_t tile, Range range) const {
  return lane().result(number(tile)) + (range.begin - tile_range(tile).begin) * element();
}

const std::byte* AllreduceHosts::own_partial(std::uint64_t tile, std::size_t place) const {
  if (!alone()) return staged(tile, place, host());
  const Range whole = slice(tile, slice_index(place));
  return contribution(0, tile, whole, offset_in(tile, whole));
}

bool AllreduceHosts::begin_tiles() {
  bool moved = false;
  for (; begun_ < tiles_ && lane().free(WindowLane::kPulled, number(begun_)); ++begun_) {
    // The receives of the tile that had this place are done, since it has been pulled.
    if (!all_done(begun_, &Exchange::part_send) || !all_done(begun_, &Exchange::result_send)) break;
    for (std::size_t place = 0; place < owned_; ++place) post_receives(begun_, place);
    moved = true;
  }
  return moved;
}

void AllreduceHosts::post_receives(std::uint64_t tile, std::size_t place) {
  const int index = slice_index(place);
  const Range own = share(tile, index, host());
  for (int h = 0; h < hosts(); ++h) {
    if (h == host()) continue;
    const int peer = map().owner(h, index);
    Exchange& with = exchange(tile, place, h);
    post_receive(peer, with.part_receive, kParts, segment(tile, index), staged(tile, place, h),
                 own.count * partial_bytes(h));
    if (small_) continue;
    const Range theirs = share(tile, index, h);
    post_receive(peer, with.result_receive, kResults, segment(tile, index), result(tile, theirs),
                 theirs.count * element());
  }
}

bool AllreduceHosts::pack_tile() {
  if (packed_ >= begun_) return false;
  lane().pack(group(), tile_range(packed_), lane().tile(number(packed_)));
  lane().publish(WindowLane::kPacked, number(++packed_));
  return true;
}

bool AllreduceHosts::reduce_local() {
  if (reduced_ == std::min(begun_, packed_) || !tiles_are_here(reduced_)) return false;
  for (std::size_t place = 0; place < owned_ && !alone(); ++place) {
    const Range whole = slice(reduced_, slice_index(place));
    make_partial(reduced_, whole, offset_in(reduced_, whole), staged(reduced_, place, host()));
  }
  if (!may_leave()) return false;
  for (std::size_t place = 0; place < owned_; ++place) send_parts(reduced_, place);
  ++reduced_;
  return true;
}

void AllreduceHosts::send_parts(std::uint64_t tile, std::size_t place) {
  const int index = slice_index(place);
  const Range whole = slice(tile, index);
  const std::size_t width = partial_bytes(host());
  for (int h = 0; h < hosts(); ++h) {
    if (h == host()) continue;
    const Range part = share(tile, index, h);
    post_send(map().owner(h, index), exchange(tile, place, h).part_send, kParts,
              segment(tile, index), own_partial(tile, place) + (part.begin - whole.begin) * width,
              part.count * width);
  }
}

bool AllreduceHosts::combine_next() {
  const std::uint64_t tile = combined_ / owned_;
  if (tile == reduced_) return false;
  const auto place = static_cast<std::size_t>(combined_ % owned_);
  for (int h = 0; h < hosts(); ++h) {
    if (!exchange(tile, place, h).part_receive.done) return false;
  }
  const int index = slice_index(place);
  const Range own = share(tile, index, host());
  combine(
      own,
      [&](int h) -> const std::byte* {
        if (h != host()) return staged(tile, place, h);
        return own_partial(tile, place) + (own.begin - slice(tile, index).begin) * partial_bytes(h);
      },
      result(tile, own));
  for (int h = 0; h < hosts() && !small_; ++h) {
    if (h == host()) continue;
    post_send(map().owner(h, index), exchange(tile, place, h).result_send, kResults,
              segment(tile, index), result(tile, own), own.count * element());
  }
  ++combined_;
  return true;
}

bool AllreduceHosts::publish_results() {
  bool moved = false;
  while (whole_ < combined_ / owned_ && all_done(whole_, &Exchange::result_receive)) {
    lane().publish(WindowLane::kTaken, number(++whole_));
    moved = true;
  }
  return moved;
}

bool AllreduceHosts::pull() {
  if (pulled_ == whole_ || !lane().all_reached(WindowLane::kTaken, number(pulled_) + 1)) {
    return false;
  }
  // In place the result replaces what has been sent.
  if (whole_input() && !all_done(pulled_, &Exchange::part_send)) return false;
  for (int i = 0; i < slices_; ++i) {  // each rank begins with its own
    const int index = (lane().rank() + i) % slices_;
    const Range range = slice(pulled_, index);
    const std::byte* from = lane().result(index % lane().size(), number(pulled_));
    lane().unpack(group(), range, from + (range.begin - tile_range(pulled_).begin) * element());
  }
  lane().publish(WindowLane::kPulled, number(++pulled_));
  return true;
}

// Having pulled everything, this rank knows that its host's other ranks have reduced everything:
// they read its arena no more.
bool AllreduceHosts::finished() {
  if (pulled_ != tiles_) return false;
  for (std::uint64_t tile = 0; tile < std::min<std::uint64_t>(tiles_, WindowLane::kTiles); ++tile) {
    if (!all_done(tile, &Exchange::part_send) || !all_done(tile, &Exchange::result_send)) {
      return false;
    }
  }
  return true;
}

bool AllreduceHosts::move() {
  bool moved = begin_tiles();
  moved = combine_next() || reduce_local() || pull() || pack_tile() || moved;
  return publish_results() || moved;
}

}  // namespace kolo::internal
