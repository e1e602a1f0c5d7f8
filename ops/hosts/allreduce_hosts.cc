#include "ops/hosts/allreduce_hosts.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr std::uint32_t kParts = 0;
constexpr std::uint32_t kResults = 1;

// Up to here a second step between hosts costs more than sending whole partials to everybody.
constexpr std::size_t kSmallSentBytes = std::size_t{32} << 10;

std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace

void AllreduceHosts::start(const Communicator& communicator, const HostsView& view,
                           std::span<const Piece> pieces, const Reduction& reduction,
                           std::optional<std::size_t> input_place) {
  begin(communicator);
  view_ = view;
  lane_ = view.lane;
  host_ = view.map->host(rank());
  hosts_ = view.map->hosts();
  KOLO_CHECK(view.map->size() == size() && hosts_ > 1);
  KOLO_CHECK(lane_->size() == view.map->local_size(host_) &&
             lane_->rank() == view.map->local(rank()));
  group_.start(pieces, reduction, *view.local, TensorGroup::Layout::kWhole,
               TensorGroup::Fusion::kParts);
  group_.compose(*view.across, size());
  tile_elements_ = WindowLane::kTileBytes / element();
  tiles_ = segment_count(group_.elements(), tile_elements_);
  slices_ = view.map->max_local_size();
  owned_ = segment_count(static_cast<std::size_t>(slices_ - lane_->rank()),
                         static_cast<std::size_t>(lane_->size()));
  small_ = group_.elements() * element() <= kSmallSentBytes / static_cast<std::size_t>(hosts_ - 1);
  input_place_ = input_place;
  whole_input_ = pieces.size() == 1 && (alone() || input_place);
  peers_.reset(*lane_);
  partials_.resize(static_cast<std::size_t>(hosts_));
  for (int h = 0; h < hosts_; ++h) {
    partials_[static_cast<std::size_t>(h)] = view.map->local_size(h) > 1 ? 1 : 0;
  }
  inputs_.resize(static_cast<std::size_t>(std::max(hosts_, lane_->size())));
  reset_exchanges();
  entered_ = false;
  packed_ = whole_input_ ? tiles_ : 0;
  begun_ = reduced_ = combined_ = whole_ = pulled_ = 0;
  first_tile_ = lane_->begin();
  lane_->use(tiles_);
}

// The largest tile, slice and share are the first.
void AllreduceHosts::reset_exchanges() {
  const std::size_t under_way =
      static_cast<std::size_t>(std::min<std::uint64_t>(tiles_, WindowLane::kTiles));
  const std::size_t wide = std::max(group_.kernel().accumulator_bytes, element());
  slice_bytes_ = whole_lines(slice(0, 0).count * wide);
  share_bytes_ = whole_lines(share(0, 0, 0).count * wide);
  stage_ = staging_.reserve(under_way * owned_ *
                            (slice_bytes_ + static_cast<std::size_t>(hosts_) * share_bytes_));
  constexpr Transfer kIdle{.done = true};
  exchanges_.assign(WindowLane::kTiles * owned_ * static_cast<std::size_t>(hosts_),
                    {kIdle, kIdle, kIdle, kIdle});
}

Range AllreduceHosts::tile_range(std::uint64_t tile) const {
  return segment_of({0, group_.elements()}, tile_elements_, static_cast<std::size_t>(tile));
}

Range AllreduceHosts::slice(std::uint64_t tile, int index) const {
  return line_slice(tile_range(tile), kCacheLineBytes / element(),
                    static_cast<std::size_t>(slices_), static_cast<std::size_t>(index));
}

// Of slice `index`, what the owner on `host` finishes.
Range AllreduceHosts::share(std::uint64_t tile, int index, int host) const {
  const Range whole = slice(tile, index);
  if (small_) return whole;
  return line_slice(whole, kCacheLineBytes / element(), static_cast<std::size_t>(hosts_),
                    static_cast<std::size_t>(host));
}

int AllreduceHosts::slice_index(std::size_t place) const {
  return lane_->rank() + static_cast<int>(place) * lane_->size();
}

// The number of a slice in the tags of its messages.
std::size_t AllreduceHosts::segment(std::uint64_t tile, int index) const {
  return static_cast<std::size_t>(tile) * static_cast<std::size_t>(slices_) +
         static_cast<std::size_t>(index);
}

AllreduceHosts::Exchange& AllreduceHosts::exchange(std::uint64_t tile, std::size_t place,
                                                   int host) {
  const auto slot = static_cast<std::size_t>(tile % WindowLane::kTiles);
  return exchanges_[(slot * owned_ + place) * static_cast<std::size_t>(hosts_) +
                    static_cast<std::size_t>(host)];
}

bool AllreduceHosts::all_done(std::uint64_t tile, Transfer Exchange::*which) {
  for (std::size_t place = 0; place < owned_; ++place) {
    for (int h = 0; h < hosts_; ++h) {
      if (!(exchange(tile, place, h).*which).done) return false;
    }
  }
  return true;
}

// Where the partial of another host's ranks is received; for this host, where its own is made.
std::byte* AllreduceHosts::staged(std::uint64_t tile, std::size_t place, int host) const {
  const auto slot = static_cast<std::size_t>(tile % WindowLane::kTiles);
  std::byte* of_slice =
      stage_ +
      (slot * owned_ + place) * (slice_bytes_ + static_cast<std::size_t>(hosts_) * share_bytes_);
  if (host == host_) return of_slice;
  return of_slice + slice_bytes_ + static_cast<std::size_t>(host) * share_bytes_;
}

std::size_t AllreduceHosts::partial_bytes(int host) const {
  return partials_[static_cast<std::size_t>(host)] != 0 ? group_.kernel().accumulator_bytes
                                                        : element();
}

const std::byte* AllreduceHosts::tile_of(int local, std::uint64_t tile, Range range) const {
  if (local == lane_->rank() && whole_input_) return group_.input(range.begin);
  return peers_.input(local, range.begin * element(), range.count * element(), number(tile),
                      (range.begin - tile_range(tile).begin) * element());
}

std::byte* AllreduceHosts::result(std::uint64_t tile, Range range) const {
  return lane_->result(number(tile)) + (range.begin - tile_range(tile).begin) * element();
}

const std::byte* AllreduceHosts::own_partial(std::uint64_t tile, std::size_t place) const {
  if (!alone()) return staged(tile, place, host_);
  return tile_of(0, tile, slice(tile, slice_index(place)));
}

bool AllreduceHosts::enter() {
  if (entered_) return false;
  if (!lane_->may_enter()) return false;
  lane_->enter({.input = input_place_, .output = {}});
  entered_ = true;
  return true;
}

bool AllreduceHosts::begin_tiles() {
  bool moved = false;
  for (; begun_ < tiles_ && lane_->free(WindowLane::kPulled, number(begun_)); ++begun_) {
    // The receives of the tile that had this place are done, since it has been pulled.
    if (!all_done(begun_, &Exchange::part_send) || !all_done(begun_, &Exchange::result_send)) break;
    for (std::size_t place = 0; place < owned_; ++place) post_receives(begun_, place);
    moved = true;
  }
  return moved;
}

void AllreduceHosts::post_receives(std::uint64_t tile, std::size_t place) {
  const int index = slice_index(place);
  const Range own = share(tile, index, host_);
  for (int h = 0; h < hosts_; ++h) {
    if (h == host_) continue;
    const int peer = view_.map->owner(h, index);
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
  lane_->pack(group_, tile_range(packed_), lane_->tile(number(packed_)));
  lane_->publish(WindowLane::kPacked, number(++packed_));
  return true;
}

bool AllreduceHosts::reduce_local() {
  if (reduced_ == std::min(begun_, packed_) || !peers_.meet() || !peers_.stand() ||
      !peers_.tiles_are_here(number(reduced_))) {
    return false;
  }
  for (std::size_t place = 0; place < owned_ && !alone(); ++place) reduce_slice(reduced_, place);
  // Other hosts cannot see that a rank of this one has given up and changed what was being read: no
  // partial leaves that was made of such memory.
  if (!peers_.stand()) return false;
  for (std::size_t place = 0; place < owned_; ++place) send_parts(reduced_, place);
  ++reduced_;
  return true;
}

void AllreduceHosts::reduce_slice(std::uint64_t tile, std::size_t place) {
  const Range whole = slice(tile, slice_index(place));
  const auto ranks = static_cast<std::size_t>(lane_->size());
  for (std::size_t local = 0; local < ranks; ++local) {
    inputs_[local] = tile_of(static_cast<int>(local), tile, whole);
  }
  group_.reduce_partial(whole, std::span(inputs_).first(ranks), staged(tile, place, host_));
}

void AllreduceHosts::send_parts(std::uint64_t tile, std::size_t place) {
  const int index = slice_index(place);
  const Range whole = slice(tile, index);
  const std::size_t width = partial_bytes(host_);
  for (int h = 0; h < hosts_; ++h) {
    if (h == host_) continue;
    const Range part = share(tile, index, h);
    post_send(view_.map->owner(h, index), exchange(tile, place, h).part_send, kParts,
              segment(tile, index), own_partial(tile, place) + (part.begin - whole.begin) * width,
              part.count * width);
  }
}

bool AllreduceHosts::combine_next() {
  const std::uint64_t tile = combined_ / owned_;
  if (tile == reduced_) return false;
  const auto place = static_cast<std::size_t>(combined_ % owned_);
  for (int h = 0; h < hosts_; ++h) {
    if (!exchange(tile, place, h).part_receive.done) return false;
  }
  const int index = slice_index(place);
  const Range own = share(tile, index, host_);
  for (int h = 0; h < hosts_; ++h) {
    inputs_[static_cast<std::size_t>(h)] =
        h == host_
            ? own_partial(tile, place) + (own.begin - slice(tile, index).begin) * partial_bytes(h)
            : staged(tile, place, h);
  }
  const auto hosts = static_cast<std::size_t>(hosts_);
  group_.combine(own, std::span(inputs_).first(hosts), partials_, result(tile, own));
  for (int h = 0; h < hosts_ && !small_; ++h) {
    if (h == host_) continue;
    post_send(view_.map->owner(h, index), exchange(tile, place, h).result_send, kResults,
              segment(tile, index), result(tile, own), own.count * element());
  }
  ++combined_;
  return true;
}

bool AllreduceHosts::publish_results() {
  bool moved = false;
  while (whole_ < combined_ / owned_ && all_done(whole_, &Exchange::result_receive)) {
    lane_->publish(WindowLane::kTaken, number(++whole_));
    moved = true;
  }
  return moved;
}

bool AllreduceHosts::pull() {
  if (pulled_ == whole_ || !lane_->all_reached(WindowLane::kTaken, number(pulled_) + 1)) {
    return false;
  }
  // In place the result replaces what has been sent.
  if (whole_input_ && !all_done(pulled_, &Exchange::part_send)) return false;
  for (int i = 0; i < slices_; ++i) {  // each rank begins with its own
    const int index = (lane_->rank() + i) % slices_;
    const Range range = slice(pulled_, index);
    const std::byte* from = lane_->result(index % lane_->size(), number(pulled_));
    lane_->unpack(group_, range, from + (range.begin - tile_range(pulled_).begin) * element());
  }
  lane_->publish(WindowLane::kPulled, number(++pulled_));
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

bool AllreduceHosts::step() {
  bool moved = enter();
  if (entered_) {
    moved = begin_tiles() || moved;
    moved = combine_next() || reduce_local() || pull() || pack_tile() || moved;
    moved = publish_results() || moved;
    if (finished()) {
      lane_->finish();
      complete();
    }
  }
  lane_->ring();
  return moved;
}

void AllreduceHosts::abandoned() {
  if (lane_ != nullptr) lane_->give_up();
}

}  // namespace kolo::internal
