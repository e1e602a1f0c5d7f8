// ResponseCache: which units a sequencer has given a number, bounded, least recently ordered out
// first. Pure state; the sequencer alone inserts and evicts, and says so in the ordered stream.
// Ids are never used twice.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "coordinator/unit.h"

namespace kolo::internal {

class ResponseCache {
 public:
  struct Cached {
    std::uint64_t id = 0;
    UnitPtr unit;
  };

  // Host sequencers give odd ids and the root even ones, so an id says who ordered it.
  ResponseCache(std::size_t capacity, bool host_ids) : capacity_(capacity), host_ids_(host_ids) {}
  static bool is_host_id(std::uint64_t id) { return (id & 1) != 0; }

  [[nodiscard]] bool enabled() const { return capacity_ > 0; }
  [[nodiscard]] const Cached* find(const UnitKey& key) const;
  const Cached& insert(UnitPtr unit);  // the key must not be cached
  void touch(std::uint64_t id);        // most recently ordered
  void erase(std::uint64_t id);
  // The least recently ordered unit, while over capacity.
  [[nodiscard]] std::optional<Cached> victim() const;
  [[nodiscard]] std::vector<Cached> of_set(std::uint32_t process_set) const;
  [[nodiscard]] std::size_t size() const { return order_.size(); }

 private:
  using Order = std::list<Cached>;  // most recently ordered first
  std::size_t capacity_;
  bool host_ids_;
  std::uint64_t next_ = 1;
  Order order_;
  std::unordered_map<std::uint64_t, Order::iterator> by_id_;
  std::map<UnitKey, Order::iterator> by_key_;
};

}  // namespace kolo::internal
