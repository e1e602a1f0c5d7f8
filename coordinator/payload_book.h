// PayloadBook: the bytes of small cached units that came along with the word of their readiness.
//
// When every rank of a unit has sent its payload, the order carries them all and the unit completes
// where it is ordered: no data connection is used. Opaque bytes here; levels, as toggles are: per
// rank and id the payload belongs to one parity. Pure state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace kolo::internal {

inline constexpr std::size_t kPayloadBytesMax = 40;  // of one rank

struct Payload {
  std::uint64_t id = 0;
  bool parity = false;
  int rank = 0;
  std::string bytes;
};

class PayloadBook {
 public:
  void add(Payload payload) {
    of_id_[payload.id][payload.rank] = {payload.parity, std::move(payload.bytes)};
  }
  void forget(std::uint64_t id) { of_id_.erase(id); }

  // The payloads of `ranks`, in that order, which are forgotten; nothing unless each has one of
  // the parity that `expected` gives for it.
  template <typename Expected>
  std::optional<std::vector<std::string>> take(std::uint64_t id, const std::vector<int>& ranks,
                                               const Expected& expected) {
    const auto found = of_id_.find(id);
    if (found == of_id_.end()) return std::nullopt;
    std::vector<std::string> payloads;
    payloads.reserve(ranks.size());
    for (const int rank : ranks) {
      const auto entry = found->second.find(rank);
      if (entry == found->second.end() || entry->second.parity != expected(rank)) {
        return std::nullopt;
      }
      payloads.push_back(entry->second.bytes);
    }
    of_id_.erase(found);
    return payloads;
  }

 private:
  struct Entry {
    bool parity = false;
    std::string bytes;
  };
  std::unordered_map<std::uint64_t, std::map<int, Entry>> of_id_;
};

}  // namespace kolo::internal
