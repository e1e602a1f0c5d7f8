// Segment: one rank's part of the memory that the ranks of a host share: a sealed memfd without a
// name, mapped for writing by its owner alone.
//
// Sparse: memory stands only behind what commit() was called for. Sealed against shrinking, so no
// peer can make an access fail, and (Linux >= 5.1) against any further mapping or call that writes.
// Not part of core dumps, and absent in forked children: nobody else can write or keep it.
#pragma once

#include <linux/futex.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/crypto.h"
#include "transport/window.h"

namespace kolo::internal {

inline constexpr int kMaxLocalRanks = 512;

// An entry of the owner's robust list: the kernel finds `word` at a fixed distance from `list`.
struct VitalNode {
  robust_list list;
  std::atomic<std::uint32_t> word;
};

// What a segment begins with.
struct SegmentHeader {
  std::atomic<std::uint32_t> asleep;
  std::atomic<std::uint64_t> left_word;
  alignas(kCacheLineBytes) Digest nonce;
  alignas(kCacheLineBytes) std::array<VitalNode, kMaxLocalRanks> vitals;  // one per peer
};
static_assert(offsetof(SegmentHeader, asleep) == 0 &&
              offsetof(SegmentHeader, left_word) == Window::kLeftWordOffset &&
              sizeof(SegmentHeader) <= Window::kHeaderBytes);

// Shared memory mapped into this process. A forked child does not have it, and leaves it alone.
class Mapping {
 public:
  // RESOURCE: no address space. `rank` is whose memory it is, for the text.
  static Result<Mapping> map(int memory, std::size_t bytes, bool writable, int rank);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  [[nodiscard]] std::byte* begin() const { return begin_; }
  // Of a peer's memory only to be read.
  [[nodiscard]] SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(begin_); }

 private:
  Mapping(std::byte* begin, std::size_t bytes);
  std::byte* begin_;
  std::size_t bytes_;
  int process_;
};

struct Segment {
  // Of `bytes`, a multiple of the page; with memory behind its header, and a fresh nonce in it.
  // RESOURCE: names rank and bytes.
  static Result<Segment> create(int rank, std::size_t bytes);

  UniqueFd memory;
  Mapping mapping;
};

// Puts memory behind a part of `memory`, so that touching it cannot fail. RESOURCE otherwise.
Status commit_memory(int memory, std::size_t offset, std::size_t bytes);

// Maps a peer's segment for reading, if it is what it should be: of that size, sealed, and with
// that nonce in it, which shows that both really see the same memory.
Result<Mapping> map_peer(int memory, int rank, std::size_t bytes, const Digest& nonce);

}  // namespace kolo::internal
