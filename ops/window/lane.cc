#include "ops/window/lane.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kolo::internal {

// One cache line. Offsets are stored plus one, 0 saying that there is none.
struct WindowLane::Mail {
  std::atomic<std::uint64_t> entered;  // operations, this one included
  std::uint64_t input;
  std::uint64_t output;
  std::byte contribution[kInlineBytes];
};

namespace {

constexpr std::size_t kFirstWord = 2 * kCacheLineBytes;
constexpr std::size_t kStaging = 4096;

std::uint64_t encode(const std::optional<std::size_t>& place) { return place ? *place + 1 : 0; }

std::optional<std::size_t> decode(std::uint64_t value) {
  if (value == 0) return std::nullopt;
  return static_cast<std::size_t>(value - 1);
}

}  // namespace

void WindowLane::clear(Window& window, std::size_t offset) {
  std::memset(window.own() + offset, 0, kStaging);
}

WindowLane::WindowLane(Window& window, std::size_t offset)
    : window_(window),
      offset_(offset),
      seen_(static_cast<std::size_t>(window.size())),
      entered_(static_cast<std::size_t>(window.size())) {
  static_assert(sizeof(Mail) == kCacheLineBytes);
  KOLO_CHECK(offset % kCacheLineBytes == 0 && offset + kBytes <= window.bytes());
}

std::size_t WindowLane::mail_offset(std::uint64_t operation) const {
  return offset_ + operation % 2 * kCacheLineBytes;
}

// One word after the last of Word: "given up".
std::size_t WindowLane::word_offset(std::size_t word) const {
  return offset_ + kFirstWord + word * kCacheLineBytes;
}

std::size_t WindowLane::staging_offset(std::size_t bytes) const {
  KOLO_CHECK(bytes <= kOneshotBytes);
  if (bytes <= kInlineBytes) return mail_offset(operation_) + sizeof(Mail) - kInlineBytes;
  return offset_ + kStaging + operation_ % 2 * kOneshotBytes;
}

std::size_t WindowLane::tile_offset(std::uint64_t number) const {
  return offset_ + kStaging + 2 * kOneshotBytes +
         static_cast<std::size_t>(number % kTiles) * kTileBytes;
}

std::size_t WindowLane::result_offset(std::uint64_t number) const {
  return tile_offset(number) + static_cast<std::size_t>(kTiles) * kTileBytes;
}

std::uint64_t WindowLane::begin() {
  ++operation_;
  return next_tile_;
}

bool WindowLane::peer_entered(int peer, std::uint64_t operations) {
  std::uint64_t& seen = entered_[static_cast<std::size_t>(peer)];
  if (seen >= operations || peer == rank()) return true;
  const auto now = window_.word<std::uint64_t>(peer, mail_offset(operations)).load();
  seen = std::max(seen, now);
  return seen >= operations;
}

bool WindowLane::may_enter() {
  for (int peer = 0; peer < size(); ++peer) {
    if (!peer_entered(peer, operation_ - 1)) return false;
  }
  return true;
}

void WindowLane::enter(const Places& places) {
  auto* mail = reinterpret_cast<Mail*>(window_.own() + mail_offset(operation_));
  mail->input = encode(places.input);
  mail->output = encode(places.output);
  mail->entered.store(operation_);
  published_ = true;
}

bool WindowLane::entered(int peer) { return peer_entered(peer, operation_); }

bool WindowLane::all_entered() {
  for (int peer = 0; peer < size(); ++peer) {
    if (!peer_entered(peer, operation_)) return false;
  }
  return true;
}

WindowLane::Places WindowLane::places(int peer) const {
  const auto* mail = reinterpret_cast<const Mail*>(window_.of(peer) + mail_offset(operation_));
  return {.input = decode(mail->input), .output = decode(mail->output)};
}

const std::byte* WindowLane::memory(int peer, std::size_t place, std::size_t bytes) const {
  KOLO_CHECK(place <= window_.bytes() && bytes <= window_.bytes() - place);
  return window_.of(peer) + place;
}

void WindowLane::finish() {
  for (Word word : {kPacked, kTaken, kPulled}) publish(word, next_tile_);
}

std::byte* WindowLane::staging(std::size_t bytes) { return window_.own() + staging_offset(bytes); }
const std::byte* WindowLane::staging(int peer, std::size_t bytes) const {
  return window_.of(peer) + staging_offset(bytes);
}
std::byte* WindowLane::tile(std::uint64_t number) { return window_.own() + tile_offset(number); }
const std::byte* WindowLane::tile(int peer, std::uint64_t number) const {
  return window_.of(peer) + tile_offset(number);
}
std::byte* WindowLane::result(std::uint64_t number) {
  return window_.own() + result_offset(number);
}
const std::byte* WindowLane::result(int peer, std::uint64_t number) const {
  return window_.of(peer) + result_offset(number);
}

void WindowLane::publish(Word word, std::uint64_t value) {
  if (own_[word] >= value) return;
  own_[word] = value;
  window_.own_word<std::uint64_t>(word_offset(word)).store(value);
  published_ = true;
}

bool WindowLane::reached(Word word, int peer, std::uint64_t value) {
  if (peer == rank()) return own_[word] >= value;
  std::uint64_t& seen = seen_[static_cast<std::size_t>(peer)][word];
  if (seen >= value) return true;
  seen = window_.word<std::uint64_t>(peer, word_offset(word)).load();
  return seen >= value;
}

bool WindowLane::all_reached(Word word, std::uint64_t value) {
  for (int peer = 0; peer < size(); ++peer) {
    if (!reached(word, peer, value)) return false;
  }
  return true;
}

void WindowLane::ring() {
  if (published_) window_.ring_all();
  published_ = false;
}

void WindowLane::give_up() {
  given_up_ = true;
  window_.own_word<std::uint64_t>(word_offset(kWords)).exchange(1);
}

bool WindowLane::nobody_gave_up() {
  // A read and a write at once: whatever was read before it stays before the looks below.
  window_.own_word<std::uint64_t>(word_offset(kWords)).fetch_add(0);
  for (int peer = 0; peer < size(); ++peer) {
    if (window_.word<std::uint64_t>(peer, word_offset(kWords)).load() != 0) return false;
  }
  return true;
}

void WindowLane::pack(const TensorGroup& group, Range range, std::byte* to) {
  group.pack(range, to);
  counters_.bytes_packed += range.count * group.element_size();
}

void WindowLane::unpack(const TensorGroup& group, Range range, const std::byte* from) {
  group.unpack(range, from);
  counters_.bytes_unpacked += range.count * group.element_size();
}

void WindowLane::pack(const std::byte* from, std::size_t bytes, std::byte* to) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  counters_.bytes_packed += bytes;
}

void WindowLane::unpack(const std::byte* from, std::size_t bytes, std::byte* to) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  counters_.bytes_unpacked += bytes;
}

}  // namespace kolo::internal
