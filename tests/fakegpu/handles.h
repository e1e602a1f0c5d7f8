// Tokens for what a C interface hands out: never reused, so that a stale one is told from a live
// one.
//
// Threads: any. Ownership: the table shares each object; whoever took one keeps it alive.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace fakegpu {

template <class Object>
class HandleTable {
 public:
  // Tokens look like addresses that no program may read; `kind` keeps tables apart.
  explicit HandleTable(std::uintptr_t kind) : next_((kind << 40) + 64) {}

  void* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t token = next_;
    next_ += 64;
    objects_.emplace(token, std::move(object));
    return reinterpret_cast<void*>(token);
  }
  // Null for what is no handle, or no longer.
  std::shared_ptr<Object> find(const void* token) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(token));
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Object> take(const void* token) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(token));
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }
  // One for which `is_one(object)`, or null.
  template <class Predicate>
  std::shared_ptr<Object> find_if(const Predicate& is_one) {
    const std::lock_guard lock(mutex_);
    for (const auto& [token, object] : objects_) {
      if (is_one(*object)) return object;
    }
    return nullptr;
  }
  // Takes those out for which `is_one(object)`; returns their number.
  template <class Predicate>
  long take_all(const Predicate& is_one) {
    const std::lock_guard lock(mutex_);
    return static_cast<long>(
        std::erase_if(objects_, [&is_one](const auto& entry) { return is_one(*entry.second); }));
  }
  // Whether this was a handle of the table once.
  bool is_stale(const void* token) {
    const std::lock_guard lock(mutex_);
    const auto value = reinterpret_cast<std::uintptr_t>(token);
    return value >= (next_ >> 40 << 40) && value < next_ && !objects_.contains(value);
  }
  long size() {
    const std::lock_guard lock(mutex_);
    return static_cast<long>(objects_.size());
  }

 private:
  std::mutex mutex_;
  std::uintptr_t next_;
  std::map<std::uintptr_t, std::shared_ptr<Object>> objects_;
};

}  // namespace fakegpu
